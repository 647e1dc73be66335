"""The newest frames in memory, by index, up to a byte limit: what followers that keep up are sent.

They are the very frames that were appended; their payloads are shared with the tail cache, not copied. What
is kept has no gap and ends at the newest frame. Frames that an active follower does not have yet are kept
beyond the limit, up to a higher one: many producers have more on its way than the limit, and to read again
what was just appended took half of a leader's time. The limits count what frames and batches cost beside
their bytes. Used from the log's own thread only.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from lockstep.storage.types import ENTRY_BYTES, Frame

_NO_INDEX = 1 << 62
"""Higher than every frame's index."""
_COMPACT_AT = 1024
FRAME_COST_BYTES = 430
"""What a frame costs beside its bytes: the object, its head's and the lists'. Measured by `tracemalloc`
(Python 3.11); small frames of one batch take nearly four times their bytes."""
BATCH_COST_BYTES = 70
"""What each of its batches costs: its buffer's head, and a place in a list. Measured likewise."""
RECEIVED_COST_BYTES = 900
"""What a received frame costs beside the bytes of its message: views, and a head of its own, in which each
batch has its entry once more."""
_SHARE_EVICTED = 16
"""A full ring makes room for a sixteenth of itself at once: most frames then cost no look at the oldest."""


class RecentFrames:
    """The newest frames in memory, for `frames`. With a limit of 0 it keeps nothing; otherwise at least the
    newest frame.

    Args:
        most_bytes: the limit of frames that are needed.
    """

    __slots__ = (
        "_costs",
        "_ends",
        "_frames",
        "_full_at",
        "_most_bytes",
        "_needed_from",
        "_start",
        "_total_bytes",
        "_total_cost",
        "limit_bytes",
    )

    def __init__(self, limit_bytes: int, most_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self._most_bytes = most_bytes
        self._needed_from = _NO_INDEX
        """The lowest index that is needed still."""
        self._frames: list[Frame | None] = []
        self._ends = array("q")
        """Running total of bytes after each frame, so that a byte budget is one bisection."""
        self._costs = array("q")
        """The same of what frames cost, which is what the limits count."""
        self._start = 0
        self._total_bytes = self._total_cost = 0
        self._full_at = limit_bytes
        """The running total of costs beyond which there is too much."""

    def add(self, frame: Frame, size: int) -> None:
        self._frames.append(frame)
        self._total_bytes = total = self._total_bytes + size
        self._ends.append(total)
        self._total_cost = total = self._total_cost + cost_bytes(frame, size)
        self._costs.append(total)
        if total > self._full_at:
            self._evict(total - self.limit_bytes + self.limit_bytes // _SHARE_EVICTED)

    def need(self, index: int | None) -> None:
        """Frames from there on are needed beyond the limit; None: none is."""
        self._needed_from = _NO_INDEX if index is None else index
        if self._total_cost > self._full_at:
            self._evict(self._total_cost - self.limit_bytes)

    def _evict(self, least: int) -> None:
        """Forget frames until what is kept begins at `least` of the running total of costs or after it, or
        with what is needed."""
        frames, costs, start = self._frames, self._costs, self._start
        newest = len(frames) - 1
        needed = start + max(0, self._needed_from - self.first_index)
        beyond = self._total_cost - self._most_bytes
        while start < newest:
            before = costs[start - 1] if start else 0
            if before >= least or (start >= needed and before >= beyond):
                break
            frames[start] = None
            start += 1
        if start >= _COMPACT_AT and start * 2 >= len(frames):
            self._total_bytes -= _cut(self._ends, start)
            self._total_cost -= _cut(costs, start)
            del frames[:start]
            start = 0
        self._start = start
        self._full_at = (costs[start - 1] if start else 0) + self.limit_bytes

    @property
    def first_index(self) -> int:
        """The lowest index kept; 0 where nothing is."""
        first = self._frames[self._start] if self._start < len(self._frames) else None
        return first.index if first is not None else 0

    def get(self, index: int) -> Frame | None:
        first = self.first_index
        if not first <= index < first + len(self._frames) - self._start or first == 0:
            return None
        return self._frames[self._start + index - first]

    def read(self, first_index: int, max_bytes: int) -> list[Frame] | None:
        """Frames from `first_index` on, at most `max_bytes` but at least one; None where that one is not
        kept."""
        if self.get(first_index) is None:
            return None
        begin = self._start + first_index - self.first_index
        before = self._ends[begin - 1] if begin else 0
        end = max(begin + 1, bisect_right(self._ends, before + max_bytes, begin))
        return self._frames[begin:end]  # type: ignore[return-value]

    def truncate(self, last_index: int) -> None:
        """Forget the frames after this index."""
        first = self.first_index
        keep = max(0, min(len(self._frames), self._start + last_index + 1 - first))
        if first == 0 or keep <= self._start:
            self.clear()
            return
        del self._frames[keep:], self._ends[keep:], self._costs[keep:]
        self._total_bytes, self._total_cost = self._ends[-1], self._costs[-1]

    def limit_to(self, limit_bytes: int) -> None:
        """Changes the limit; the kept frames are dropped where it differs."""
        if limit_bytes != self.limit_bytes:
            self.limit_bytes = limit_bytes
            self.clear()

    def clear(self) -> None:
        self._frames.clear()
        del self._ends[:], self._costs[:]
        self._start = self._total_bytes = self._total_cost = 0
        self._full_at = self.limit_bytes
        self._needed_from = _NO_INDEX


def cost_bytes(frame: Frame, size: int) -> int:
    """Estimates the memory of a frame of this size."""
    if frame.body is not None:
        return size + RECEIVED_COST_BYTES + ENTRY_BYTES * frame.batch_count
    return size + FRAME_COST_BYTES + BATCH_COST_BYTES * frame.batch_count


def _cut(totals: array[int], count: int) -> int:
    """Forget the first of these running totals; what they came to."""
    before = totals[count - 1]
    del totals[:count]
    for number, total in enumerate(totals):
        totals[number] = total - before
    return before
