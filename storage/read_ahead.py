"""Reads the next stretch of a sequential reader while its client is busy with the last one.

A consumer that catches up asks, takes, and asks again from where that ended. Between two of its requests this
node has nothing to do for it; so what it will ask for next is read then, and is there when it asks.
Invariants: what is given is what a read gave a moment ago: committed batches, whole, from the offset on, none
of them deleted or at or above the end that is asked for. A stretch is given once, and forgotten where nobody
comes for it. Bounded: one stretch of at most `MOST_BYTES` for each of the `MOST` readers seen last.
Only from the page cache: the disk is never waited for. Used from the loop's thread only.
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


class ReadAhead:
    """See the module; one for each log group."""

    __slots__ = ("_loop", "_read", "_stretches", "_sweeping", "hits")

    def __init__(self, loop: asyncio.AbstractEventLoop, read: Read) -> None:
        self._loop = loop
        self._read = read
        self._stretches: dict[tuple[int, int], _Stretch] = {}
        """By (partition's number, offset), oldest first."""
        self._sweeping = False
        self.hits = 0

    def read(self, partition: PartitionLog, offset: int, max_bytes: int, end_offset: int) -> ReadResult:
        """What was read for whoever would come to this offset; else it is read now. Raises as that."""
        expected = self._stretches.pop((partition.number, offset), None)
        result = _of(expected, max_bytes, end_offset) if offset >= partition.log_start_offset else None
        if result is None:
            result = self._read(partition, offset, max_bytes, end_offset)
        else:
            self.hits += 1
        if result.next_offset < end_offset and result.total_bytes >= LEAST_BYTES and max_bytes <= MOST_BYTES:
            stretch = _Stretch(partition, max_bytes, end_offset)
            self._expect(stretch, result.next_offset, sequential=expected is not None)
        return result

    def _expect(self, stretch: _Stretch, offset: int, sequential: bool) -> None:
        """Somebody will probably ask for this, surely so if that somebody was expected: then it is read once
        the answer before it has left, in the next turn but one."""
        key = stretch.partition.number, offset
        if not offset or key in self._stretches:
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
        if result.total_bytes and not result.cold:
            stretch.result = result

    def _sweep(self) -> None:
        for key, stretch in list(self._stretches.items()):
            if stretch.old:
                del self._stretches[key]
            stretch.old = True
        self._sweeping = bool(self._stretches)
        if self._sweeping:
            self._loop.call_later(PATIENCE_SECONDS, self._sweep)

    def clear(self) -> None:
        """Forget everything; what is under way reads nothing any more."""
        self._stretches.clear()


def _of(stretch: _Stretch | None, max_bytes: int, end_offset: int) -> ReadResult | None:
    """What was read, where it is within these limits."""
    if stretch is None or stretch.result is None or stretch.end_offset > end_offset:
        return None
    return stretch.result if stretch.result.total_bytes <= max_bytes else None
