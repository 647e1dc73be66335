"""Reads the next stretch of a sequential reader while its client is busy with the last one.

A consumer that catches up asks, takes, and asks again from where that ended. Between two of its requests this
node has nothing to do for it; so what it will ask for next is read then, and is there when it asks.
Invariants: what is given is what a read with the same limits gave a moment ago and would give now: committed
batches, whole, from the offset on, as many as the limit takes, none of them deleted or at or above the end
that is asked for. A stretch is given once, and forgotten where nobody comes for it. Bounded: one stretch of
at most `MOST_BYTES` for each of the `MOST` readers seen last; with more of them in turn nobody gains.
Only from the page cache: the disk is never waited for. Only where a partition's batches lie close together:
else a read holds, and costs, many times what it gives. Used from the loop's thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from storage.partition import PartitionLog
from storage.types import ReadResult, StorageError

LEAST_BYTES = 256 << 10
"""Who is given less than this has caught up, or asks for little: there is nothing to win."""
MOST_BYTES = 2 << 20
MOST = 4
DENSE_BYTES = 8 << 10
"""So long, on average, is a piece without other partitions' bytes where batches lie close together."""
PATIENCE_SECONDS = 1.0
"""A stretch is kept for as long at least, and not for twice as long."""

Read = Callable[[PartitionLog, int, int, int], ReadResult]
"""(partition, offset, most bytes, end offset) to batches."""


class _Stretch:
    """What somebody will ask for next, and the limits of the last answer."""

    __slots__ = ("end_offset", "max_bytes", "old", "partition", "result")

    def __init__(self, partition: PartitionLog, max_bytes: int, end_offset: int) -> None:
        self.partition = partition
        self.max_bytes = max_bytes
        self.end_offset = end_offset
        self.result: ReadResult | None = None
        """Once it was read."""
        self.old = False

    def serves(self, max_bytes: int, end_offset: int) -> bool:
        """Whether a read with these limits would give the same."""
        return self.max_bytes == max_bytes and self.end_offset <= end_offset


class ReadAhead:
    """See the module; one for each log group."""

    __slots__ = ("_closed", "_loop", "_read", "_stretches", "_sweeping", "hits")

    def __init__(self, loop: asyncio.AbstractEventLoop, read: Read) -> None:
        self._loop = loop
        self._read = read
        self._stretches: dict[tuple[int, int], _Stretch] = {}
        """By (partition's number, offset), oldest first."""
        self._sweeping = self._closed = False
        self.hits = 0

    def read(self, partition: PartitionLog, offset: int, max_bytes: int, end_offset: int) -> ReadResult:
        """What was read for whoever would come to this offset; else it is read now. Raises as that."""
        expected = result = None
        if self._stretches:
            key = partition.number, offset
            expected = self._stretches.get(key)
            if expected is not None and expected.result is None:
                del self._stretches[key]  # too late to read it ahead
            elif expected is not None and expected.serves(max_bytes, end_offset):
                del self._stretches[key]
                result = expected.result if offset >= partition.log_start_offset else None
        if result is None:
            result = self._read(partition, offset, max_bytes, end_offset)
        else:
            self.hits += 1
        if result.next_offset and _goes_on(result, max_bytes, end_offset):
            stretch = _Stretch(partition, max_bytes, end_offset)
            self._expect(stretch, result.next_offset, sequential=expected is not None)
        return result

    def _expect(self, stretch: _Stretch, offset: int, sequential: bool) -> None:
        """Somebody will probably ask for this, surely so if that somebody was expected: then it is read in
        the next turn but one, when an answer that was made at once has left."""
        if self._closed:
            return
        key = stretch.partition.number, offset
        former = self._stretches.pop(key, None)
        if former is not None and former.result is not None:
            former.old = False
            self._stretches[key] = former
            return
        if len(self._stretches) >= MOST:
            del self._stretches[next(iter(self._stretches))]
        self._stretches[key] = stretch
        if sequential:
            self._loop.call_soon(self._loop.call_soon, self._fill, key)
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(PATIENCE_SECONDS, self._sweep)

    def _fill(self, key: tuple[int, int]) -> None:
        stretch = self._stretches.get(key)
        if stretch is None or stretch.result is not None:
            return
        try:
            result = self._read(stretch.partition, key[1], stretch.max_bytes, stretch.end_offset)
        except (OSError, StorageError):
            return  # who asks for it will be told
        if _goes_on(result, stretch.max_bytes, stretch.end_offset):
            stretch.result = result

    def _sweep(self) -> None:
        for key, stretch in list(self._stretches.items()):
            if stretch.old:
                del self._stretches[key]
            stretch.old = True
        self._sweeping = bool(self._stretches)
        if self._sweeping:
            self._loop.call_later(PATIENCE_SECONDS, self._sweep)

    def close(self) -> None:
        """Forget everything, and read nothing ahead from now on."""
        self._closed = True
        self._stretches.clear()


def _goes_on(result: ReadResult, max_bytes: int, end_offset: int) -> bool:
    """Is this neither little nor too much, close together, and ended by its limit? What the end or the page
    cache cut short may be more by the time that it is asked for."""
    if not LEAST_BYTES <= result.total_bytes <= max_bytes <= MOST_BYTES:
        return False
    return 0 < result.next_offset < end_offset and result.total_bytes >= len(result.buffers) * DENSE_BYTES
