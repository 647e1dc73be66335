"""Reads the next range of a sequential reader while its client is busy with the last one.

A consumer that catches up fetches from where its last fetch ended. Between two of its requests this node has
nothing to do for it; so the next range is read then, and is there for the request. Invariants: the result
is that of a read with the same limits a moment ago, and now: committed
batches, whole, from the offset on, as many as the limit takes, none of them deleted or at or above the
requested end. A range is returned once, and dropped where no request comes for it. Bounded: one range of
at most `MAX_BYTES` for each of the `MAX_EXPECTED_READS` readers seen last; more of them would gain nothing.
Only from the page cache: the disk is never waited for. Only where a partition's batches lie close together:
else a read holds, and costs, many times what it gives. Used from the loop's thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import ReadResult, StorageError

MIN_BYTES = 256 << 10
"""A reader of less than this has caught up, or requests little: reading ahead would gain nothing."""
MAX_BYTES = 2 << 20
MAX_EXPECTED_READS = 4
DENSE_BYTES = 8 << 10
"""The average length of a buffer without other partitions' bytes where batches lie close together."""
KEEP_SECONDS = 1.0
"""A range is kept for as long at least, and not for twice as long."""

Read = Callable[[PartitionLog, int, int, int], ReadResult]
"""(partition, offset, most bytes, end offset) to batches."""


class _ExpectedRead:
    """An expected next read, with the limits of the last one."""

    __slots__ = ("end_offset", "max_bytes", "old", "partition", "result")

    def __init__(self, partition: PartitionLog, max_bytes: int, end_offset: int) -> None:
        self.partition = partition
        self.max_bytes = max_bytes
        self.end_offset = end_offset
        self.result: ReadResult | None = None
        """The result, once it was read."""
        self.old = False

    def serves(self, max_bytes: int, end_offset: int) -> bool:
        """Returns whether a read with these limits would give the same."""
        return self.max_bytes == max_bytes and self.end_offset <= end_offset


class ReadAhead:
    """See the module; one for each log group."""

    __slots__ = ("_closed", "_expected_reads", "_expiring", "_loop", "_read", "hits")

    def __init__(self, loop: asyncio.AbstractEventLoop, read: Read) -> None:
        self._loop = loop
        self._read = read
        self._expected_reads: dict[tuple[int, int], _ExpectedRead] = {}
        """By (local id, offset), oldest first."""
        self._expiring = self._closed = False
        self.hits = 0

    def read(self, partition: PartitionLog, offset: int, max_bytes: int, end_offset: int) -> ReadResult:
        """Returns the result that was read ahead for this offset; else reads it now. Raises as that."""
        expected = result = None
        if self._expected_reads:
            key = partition.local_id, offset
            expected = self._expected_reads.get(key)
            if expected is not None and expected.result is None:
                del self._expected_reads[key]  # too late to read it ahead
            elif expected is not None and expected.serves(max_bytes, end_offset):
                del self._expected_reads[key]
                result = expected.result if offset >= partition.log_start_offset else None
        if result is None:
            result = self._read(partition, offset, max_bytes, end_offset)
        else:
            self.hits += 1
        if result.next_offset and _is_sequential(result, max_bytes, end_offset):
            next_read = _ExpectedRead(partition, max_bytes, end_offset)
            self._expect(next_read, result.next_offset, sequential=expected is not None)
        return result

    def _expect(self, next_read: _ExpectedRead, offset: int, sequential: bool) -> None:
        """Expects a read, and for a sequential reader does it in the next loop iteration but one, when a
        response that was made at once has left."""
        if self._closed:
            return
        key = next_read.partition.local_id, offset
        former = self._expected_reads.pop(key, None)
        if former is not None and former.result is not None:
            former.old = False
            self._expected_reads[key] = former
            return
        if len(self._expected_reads) >= MAX_EXPECTED_READS:
            del self._expected_reads[next(iter(self._expected_reads))]
        self._expected_reads[key] = next_read
        if sequential:
            self._loop.call_soon(self._loop.call_soon, self._fill, key)
        if not self._expiring:
            self._expiring = True
            self._loop.call_later(KEEP_SECONDS, self._expire)

    def _fill(self, key: tuple[int, int]) -> None:
        next_read = self._expected_reads.get(key)
        if next_read is None or next_read.result is not None:
            return
        try:
            result = self._read(next_read.partition, key[1], next_read.max_bytes, next_read.end_offset)
        except (OSError, StorageError):
            return  # a request for it will raise this
        if _is_sequential(result, next_read.max_bytes, next_read.end_offset):
            next_read.result = result

    def _expire(self) -> None:
        for key, next_read in list(self._expected_reads.items()):
            if next_read.old:
                del self._expected_reads[key]
            next_read.old = True
        self._expiring = bool(self._expected_reads)
        if self._expiring:
            self._loop.call_later(KEEP_SECONDS, self._expire)

    def close(self) -> None:
        """Drops all ranges, and reads nothing ahead from now on."""
        self._closed = True
        self._expected_reads.clear()


def _is_sequential(result: ReadResult, max_bytes: int, end_offset: int) -> bool:
    """Returns whether a result is neither small nor too large, dense, and ended by its limit. A result that
    the end or the page cache cut short may be longer by the time of the next request."""
    if not MIN_BYTES <= result.total_bytes <= max_bytes <= MAX_BYTES:
        return False
    return 0 < result.next_offset < end_offset and result.total_bytes >= len(result.buffers) * DENSE_BYTES
