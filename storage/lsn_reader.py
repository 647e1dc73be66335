"""A group's committed frames in the order of the log, for a player of several partitions as one.

Owns: the frame with which a read continues, for each of several readers that go forward side by side, and
the reads off the loop. Invariants: nothing above the applied entries is read; frames that are in memory are
returned without a thread. Positions are LSNs.
Does not: choose batches, or know transactions.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from lockstep.storage.log.lsn_lookup import FIRST_LSN, FrameLocation, lsn_after
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import Frame, FramesUnavailable

KEPT_POSITIONS: Final = 64
"""LSNs with the index of their frame: some for each recovery that is under way."""


class LsnFrames(NamedTuple):
    """The result of one read."""

    frames: Sequence[Frame]
    """Consecutive frames; none where nothing is committed yet."""
    first_lsn: int
    """No requested batch lies between the requested LSN and this."""
    over_gap: bool
    """Frames between the two have been freed; the partitions' log starts show whether records were
    deleted."""
    is_all: bool
    """Whether nothing is committed after them."""


class LsnReader:
    """A reader of one group, on its loop. The group keeps its newest frames in memory from now on, as for
    followers, until its log is closed."""

    def __init__(self, group: LogGroup) -> None:
        self._group = group
        self._log = group.log
        self._log.keep_recent_frames(True)
        self._positions: OrderedDict[int, int] = OrderedDict()
        """LSN to the index of the frame that holds it, now or later."""
        self._kept_from: dict[int, tuple[int, int]] = {}
        """Partition to its log start and that one's LSN: to find it may take a scan of a whole segment."""

    async def read(self, first_lsn: int, max_bytes: int, partitions: Sequence[int]) -> LsnFrames:
        """Reads frames from the one that holds an LSN on: at least one, where it is committed, else at most
        `max_bytes`, with the batches of all partitions. `note` afterwards where the next read begins.

        Args: partitions: partitions by local id; segments with batches of others only may be skipped.
        Raises FramesUnavailable where the log changes meanwhile, CorruptLog, OSError.
        """
        upto, index = self._group.applied_index, self._positions.get(first_lsn)
        if index is not None and index > upto:
            return LsnFrames((), first_lsn, False, True)
        location = FrameLocation(index or 0, first_lsn, False)
        frames = None if index is None else self._log.frames(index, max_bytes)
        if frames is None:
            location, frames = await asyncio.to_thread(
                self._cold, first_lsn, max_bytes, partitions, upto, index
            )
            assert frames is not None
        # Uncommitted entries may be lost with this leadership, and their LSNs be used again.
        frames = [frame for frame in frames if frame.index <= upto]
        if not frames:
            return LsnFrames((), location.lsn, location.over_gap, True)
        return LsnFrames(frames, location.lsn, location.over_gap, frames[-1].index == upto)

    def _cold(
        self, lsn: int, max_bytes: int, partitions: Sequence[int], upto: int, index: int | None
    ) -> tuple[FrameLocation, list[Frame]]:
        """Finds the frame of an LSN, and reads from there on. In a thread."""
        try:
            location = self._log.lsns.find(lsn, partitions, upto, index)
            return location, self._log.frames_cold(
                location.frame_index, max_bytes
            ) if location.frame_index <= upto else []
        except FramesUnavailable:  # perhaps freed since its index was noted: search again
            if index is None:
                raise
            return self._cold(lsn, max_bytes, partitions, upto, None)

    def note(self, lsn: int, index: int) -> None:
        """Records that the next read from this LSN begins with this frame."""
        self._positions[lsn] = index
        self._positions.move_to_end(lsn)
        if len(self._positions) > KEPT_POSITIONS:
            self._positions.popitem(last=False)

    async def committed_end(self) -> int:
        """Returns the LSN after the newest committed record. Raises FramesUnavailable, CorruptLog,
        OSError."""
        index = self._group.applied_index
        if index == self._log.last_index:
            return self._log.next_lsn
        recent = self._log.frames(index, 0)
        return lsn_after(recent[0]) if recent else await asyncio.to_thread(self._log.lsns.after, index)

    async def first_kept(self, log_starts: Mapping[int, int]) -> int:
        """Returns the LSN from which on nothing of these partitions is deleted.

        Args: log_starts: offsets, by local id. Raises as `committed_end`.
        """
        lsns = []
        for partition, start in log_starts.items():
            if start:
                cached, lsn = self._kept_from.get(partition, (0, 0))
                if cached != start:
                    lsn = await asyncio.to_thread(self._log.lsns.kept_from, partition, start)
                    self._kept_from[partition] = start, lsn
                lsns.append(lsn)
        return max(lsns, default=FIRST_LSN)

    async def first_of(self, offsets: Mapping[int, int]) -> int | None:
        """Returns the lowest LSN of these records; None where there are none, or their frames were freed.

        Args: offsets: by local id. Raises as `committed_end`.
        """
        of_offset = self._log.lsns.of_offset
        found = [await asyncio.to_thread(of_offset, *each) for each in offsets.items()]
        return min([lsn for lsn in found if lsn is not None], default=None)
