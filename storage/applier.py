"""Applies committed frames: they wait here from their append to their commit, and are applied in order.

Invariants: frames are applied once, in index order, never above the commit; `index` never goes back. Frames
that were recovered from the disk rather than appended are read again when their commit is known, a chunk at
a time. After a truncation the speculative state is rebuilt from the newest checkpoint and what is left of the
log. Does not know who leads. Source: docs/storage_rules.md, decision 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from lockstep.storage.checkpointer import Checkpointer
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import frame_bytes
from lockstep.storage.partition import PartitionLog
from lockstep.storage.state_machines import StateMachines
from lockstep.storage.types import Checkpoint, CorruptLog, Frame

CHUNK_BYTES = 1 << 20
"""Bytes that are read again and applied in one iteration of the loop."""


class Applier:
    """The frames between `index` and the end of the log."""

    __slots__ = ("_checkpointer", "_in_flight", "_log", "_state", "in_flight_bytes", "index")

    def __init__(
        self, log: DataLog, state: StateMachines, checkpointer: Checkpointer, applied_index: int
    ) -> None:
        self._log = log
        self._state = state
        self._checkpointer = checkpointer
        self._in_flight: deque[Frame] = deque()
        """The newest appended frames, without a gap up to the end of the log."""
        self.in_flight_bytes = 0
        self.index = applied_index
        """The last applied entry."""

    def on_append(self, frames: Sequence[Frame], is_in_tail: bool, tail_matches_log: bool) -> None:
        """Takes frames that are in the log now.

        Args: is_in_tail: the tail machines have seen their batches already. tail_matches_log: the tail
        machines have seen nothing that is not in the log; a checkpoint needs that, to be of one moment.
        """
        for frame in frames:
            if not is_in_tail:
                self._state.replay_appended(frame)
            self._in_flight.append(frame)
            self.in_flight_bytes += frame_bytes(frame)
        if tail_matches_log:
            self._checkpointer.on_append(frames[-1].time_ms)

    def apply_at_once(
        self, frames: Sequence[Frame], tail_matches_log: bool, advanced: dict[PartitionLog, None]
    ) -> None:
        """Does `on_append` and `apply` for frames of this leader that are committed already, while none
        waits."""
        if tail_matches_log:
            self._checkpointer.on_append(frames[-1].time_ms)
        for frame in frames:
            self._apply(frame, advanced)

    def apply(self, commit_index: int, advanced: dict[PartitionLog, None]) -> bool:
        """Applies the committed frames of the log; `advanced` gets the partitions that grew. True: call
        again."""
        upto = min(commit_index, self._log.last_index)
        in_flight = self._in_flight
        if self.index < upto and (not in_flight or in_flight[0].index > self.index + 1):
            return self._apply_from_disk(upto, advanced)
        while in_flight and in_flight[0].index <= upto:
            frame = in_flight.popleft()
            self.in_flight_bytes -= frame_bytes(frame)
            self._apply(frame, advanced)
        return False

    def _apply_from_disk(self, upto: int, advanced: dict[PartitionLog, None]) -> bool:
        in_flight = self._in_flight
        for frame in self._read(self.index + 1):
            if frame.index > upto or (in_flight and frame.index >= in_flight[0].index):
                break
            self._apply(frame, advanced)
        return self.index < upto

    def _read(self, first_index: int) -> Sequence[Frame]:
        """Reads a chunk of the log from an existing entry on."""
        frames = self._log.frames_cold(first_index, CHUNK_BYTES)
        if not frames or frames[0].index != first_index:
            raise CorruptLog(f"entry {first_index} is in the log and cannot be read")
        return frames

    def _apply(self, frame: Frame, advanced: dict[PartitionLog, None]) -> None:
        self._state.apply_committed(frame, advanced)
        frame.runs = None  # it may be kept for followers
        self.index = frame.index
        if self._state.control.just_closed:
            self._forget_closed()
        self._checkpointer.on_apply(frame.index, frame.time_ms)

    def _forget_closed(self) -> None:
        """Lets the log free its memory of partitions that have just been closed."""
        closed, self._state.control.just_closed = self._state.control.just_closed, []
        for local_id in closed:
            self._log.forget_partition(local_id)

    def on_truncate(self, last_index: int) -> None:
        """Drops the frames after `last_index`, which are truncated, and all that was derived from them."""
        in_flight = self._in_flight
        while in_flight and in_flight[-1].index > last_index:
            self.in_flight_bytes -= frame_bytes(in_flight.pop())
        self._checkpointer.on_truncate(last_index)
        self.rebuild_tail()

    def rebuild_tail(self) -> None:
        """Rebuilds the speculative state from the newest checkpoint and the log above it."""
        checkpoint = self._log.load_checkpoint()
        self._state.restore_tail(checkpoint.sections if checkpoint else {})
        index = checkpoint.index if checkpoint else 0
        while index < self._log.last_index:
            for frame in self._read(index + 1):
                self._state.replay_appended(frame)
                index = frame.index

    def on_install(self, checkpoint: Checkpoint) -> None:
        """Takes over the state of a snapshot that the log has been switched to."""
        self._in_flight.clear()
        self.in_flight_bytes = 0
        self._state.restore(checkpoint.sections)
        self._log.forget_closed(self._state.control.is_closed)
        self.index = checkpoint.index
        self._checkpointer.on_install(checkpoint.index)
