"""The store that seed 001 compares itself with: every payload goes to the Raft log, and when it is committed
again to a state machine that is a log, too.

Both are a `DataLog`, so that only the second copy makes the difference. It is made as well as it can be: one
write per commit, and no flush of its own, because the Raft log has the payloads already. The client hears of
a request when it is applied. Does not recover: it is only measured.
"""

from __future__ import annotations

from pathlib import Path

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.file_system import FileSystem
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import Buffer, DirectoryEntry, Frame, FrameKind

SECOND_GROUP = 1001
SECTION = "second"
_FRAME_ROOM = 4096


class SecondLog:
    """A `StateMachine` that appends what it is given to a log of its own, if `write` is set."""

    def __init__(self, directory: Path, options: LogOptions, fs: FileSystem) -> None:
        self.log = DataLog.open(directory, SECOND_GROUP, options, fs)
        self.log.start_preparing()
        self._entries: list[DirectoryEntry] = []
        self._payloads: list[Buffer] = []
        self._bytes = 0
        self._time_ms = 0

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """Take one committed batch."""
        if self._bytes + entry.length + _FRAME_ROOM + 64 * len(self._entries) > self.log.max_frame_bytes:
            self.write()
        self._entries.append(entry)
        self._payloads.append(payload)
        self._bytes += entry.length
        self._time_ms = max(self._time_ms, time_ms)

    def write(self) -> None:
        """Append what was taken since the last time, in one frame."""
        if not self._entries:
            return
        log = self.log
        records = sum(entry.record_count for entry in self._entries)
        frame = Frame(
            FrameKind.DATA,
            1,
            log.last_index + 1,
            log.next_lsn,
            self._time_ms,
            self._entries,
            self._payloads,
            records,
        )
        log.append([frame])
        self._entries, self._payloads, self._bytes = [], [], 0

    def snapshot(self, time_ms: int) -> bytes:
        """The end of the log; its content is on its own disk."""
        return self.log.last_index.to_bytes(8, "big")

    def restore(self, data: bytes) -> None:
        """Nothing to go back to: a measured store starts empty."""

    def close(self) -> None:
        self.write()
        self.log.close()
