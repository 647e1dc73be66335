"""A group's committed frames in the order of the log: for who plays several partitions of it as one.

Owns: from which frame a read goes on, for each of several readers that go forward side by side, and what is
read off the loop. Invariants: nothing above the applied entries is read; frames that are in memory are given
without a thread. Positions are LSNs.
Does not: choose batches, or know transactions.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from storage.group import LogGroup
from storage.log.lsn_lookup import FIRST_LSN, FramePlace, lsn_after
from storage.types import Frame, FramesGone

PLACES_KEPT: Final = 64
"""LSNs with the index of their frame: some for each recovery that is under way."""


class LsnFrames(NamedTuple):
    """What one read brought."""

    frames: Sequence[Frame]
    """They follow one another; none where nothing is there yet."""
    first_lsn: int
    """Nothing wanted lies between what was asked for and this."""
    over_gap: bool
    """But what has been freed: whether anything was deleted, the partitions' log starts say."""
    is_all: bool
    """There is nothing committed after them."""


class LsnReader:
    """Over one group, on its loop. From its making on the group keeps its newest frames in memory, as for
    followers: until its log is closed, for nothing turns that off when a reader is not used any more."""

    def __init__(self, group: LogGroup) -> None:
        self._group = group
        self._log = group.log
        self._log.keep_recent_frames(True)
        self._places: OrderedDict[int, int] = OrderedDict()
        """LSN to the index of the frame that holds it, or will."""
        self._kept_from: dict[int, tuple[int, int]] = {}
        """Partition to its log start and the LSN of that: to find one may take a scan of a whole segment."""

    async def read(self, first_lsn: int, max_bytes: int, wanted: Sequence[int]) -> LsnFrames:
        """Frames from the one that holds an LSN on: at least one, where it is committed, else at most
        `max_bytes`, with the batches of all partitions. `note` afterwards where the next read begins.

        Args: wanted: partitions by number; where only others have batches, segments may be passed over.
        Raises FramesGone where what is there changes meanwhile, CorruptLog, OSError.
        """
        upto, index = self._group.applied_index, self._places.get(first_lsn)
        if index is not None and index > upto:
            return LsnFrames((), first_lsn, False, True)
        place = FramePlace(index or 0, first_lsn, False)
        frames = None if index is None else self._log.frames(index, max_bytes)
        if frames is None:
            place, frames = await asyncio.to_thread(self._cold, first_lsn, max_bytes, wanted, upto, index)
            assert frames is not None
        # What is not committed may be lost with this leadership, and its LSNs be given again.
        frames = [frame for frame in frames if frame.index <= upto]
        if not frames:
            return LsnFrames((), place.lsn, place.over_gap, True)
        return LsnFrames(frames, place.lsn, place.over_gap, frames[-1].index == upto)

    def _cold(
        self, lsn: int, max_bytes: int, wanted: Sequence[int], upto: int, index: int | None
    ) -> tuple[FramePlace, list[Frame]]:
        """In a thread: the place of an LSN, and the frames from there on."""
        try:
            place = self._log.lsns.find(lsn, wanted, upto, index)
            return place, self._log.frames_cold(
                place.frame_index, max_bytes
            ) if place.frame_index <= upto else []
        except FramesGone:  # perhaps freed since its index was noted: look for it anew
            if index is None:
                raise
            return self._cold(lsn, max_bytes, wanted, upto, None)

    def note(self, lsn: int, index: int) -> None:
        """The next read from this LSN begins with this frame."""
        self._places[lsn] = index
        self._places.move_to_end(lsn)
        if len(self._places) > PLACES_KEPT:
            self._places.popitem(last=False)

    async def committed_end(self) -> int:
        """The LSN after the newest committed record. Raises FramesGone, CorruptLog, OSError."""
        index = self._group.applied_index
        if index == self._log.last_index:
            return self._log.next_lsn
        recent = self._log.frames(index, 0)
        return lsn_after(recent[0]) if recent else await asyncio.to_thread(self._log.lsns.after, index)

    async def first_kept(self, log_starts: Mapping[int, int]) -> int:
        """From here on nothing of these partitions is deleted.

        Args: log_starts: offsets, by partition number. Raises as `committed_end`.
        """
        lsns = []
        for partition, start in log_starts.items():
            if start:
                known, lsn = self._kept_from.get(partition, (0, 0))
                if known != start:
                    lsn = await asyncio.to_thread(self._log.lsns.kept_from, partition, start)
                    self._kept_from[partition] = start, lsn
                lsns.append(lsn)
        return max(lsns, default=FIRST_LSN)

    async def first_of(self, offsets: Mapping[int, int]) -> int | None:
        """The lowest LSN of these records; None where there are none, or their frames are gone.

        Args: offsets: by partition number. Raises as `committed_end`.
        """
        of_offset = self._log.lsns.of_offset
        found = [await asyncio.to_thread(of_offset, *each) for each in offsets.items()]
        return min([lsn for lsn in found if lsn is not None], default=None)
