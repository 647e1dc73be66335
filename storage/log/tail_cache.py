"""The newest batches of every partition, as the very bytes that were appended, up to a byte limit.

Reads of the tail touch no file. What is kept of a partition has no gap and reaches its newest batch.
Eviction is oldest first over all partitions. The limit counts what batches and partitions cost beside their
bytes. Used from the log's own thread only.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque

from lockstep.storage.types import Buffer

_COMPACT_AT = 32
"""Evicted places that a partition has room for at least: of many partitions with few batches each, a thousand
would take more than the batches."""
_LEAST_ORDER = 1024
BATCH_COST_BYTES = 91
"""What a batch costs beside its bytes: its object's head, and 8 bytes with room to grow in each of four
arrays. Measured by `tracemalloc` (Python 3.11); of batches of 100 bytes it is as much again."""
PARTITION_COST_BYTES = 420
"""What a partition costs that has any batch here; measured likewise."""


class PartitionTail:
    """One partition's cached batches; the first `start` entries are gone."""

    __slots__ = ("ahead", "bases", "ends", "local_id", "payloads", "start", "total_bytes")

    def __init__(self, local_id: int) -> None:
        self.local_id = local_id
        self.bases = array("q")
        self.ends = array("q")
        """Running total of bytes after each batch, so that a byte budget is one bisection."""
        self.payloads: list[Buffer | None] = []
        self.start = 0
        self.ahead = 0
        """So many were evicted before their turn."""
        self.total_bytes = 0

    def evict(self) -> int:
        start = self.start
        payload = self.payloads[start]
        self.payloads[start] = None
        self.start = start = start + 1
        if start >= _COMPACT_AT and start * 2 >= len(self.payloads):
            del self.bases[:start], self.ends[:start], self.payloads[:start]
            self.start = 0
        return BATCH_COST_BYTES + (len(payload) if payload is not None else 0)


class TailCache:
    """The newest batches in memory, for `read`."""

    __slots__ = ("_ahead", "_limit_bytes", "_order", "_partitions", "_used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._ahead = 0
        """So many batches of `_order` are gone already."""
        self._partitions: dict[int, PartitionTail] = {}
        self._order: deque[PartitionTail] = deque()

    def add(self, partition: int, base: int, payload: Buffer, length: int) -> None:
        tail = self._partitions.get(partition)
        if tail is None:
            tail = self._partitions[partition] = PartitionTail(partition)
            self._used_bytes += PARTITION_COST_BYTES
        tail.bases.append(base)
        tail.total_bytes = end = tail.total_bytes + length
        tail.ends.append(end)
        tail.payloads.append(payload)
        self._order.append(tail)
        self._used_bytes += length + BATCH_COST_BYTES
        while self._used_bytes > self._limit_bytes:
            oldest = self._order.popleft()
            if oldest.ahead:
                oldest.ahead -= 1
                self._ahead -= 1
                continue
            self._used_bytes -= oldest.evict()
            if oldest.start == len(oldest.payloads):  # partitions come and go
                self._drop(oldest)

    def _drop(self, empty: PartitionTail) -> None:
        del self._partitions[empty.local_id]
        self._used_bytes -= PARTITION_COST_BYTES

    def forget_below(self, partition: int, offset: int) -> None:
        """The batches of a partition below an offset have been cleaned, or the partition is closed: only the
        disk has what is left."""
        tail = self._partitions.get(partition)
        if tail is None:
            return
        count = max(0, bisect_left(tail.bases, offset, tail.start) - tail.start)
        for _ in range(count):
            self._used_bytes -= tail.evict()
        tail.ahead += count
        self._ahead += count
        if tail.start == len(tail.payloads):
            self._drop(tail)
        if self._ahead > max(_LEAST_ORDER, len(self._order) // 2):
            self._order = deque(filter(_is_kept, self._order))
            self._ahead = 0

    def read(
        self, partition: int, offset: int, max_bytes: int, end_offset: int, min_one: bool
    ) -> tuple[list[Buffer], int] | None:
        """(batches, bytes) from the batch that holds `offset`; None where that one is not kept."""
        tail = self._partitions.get(partition)
        if tail is None:
            return None
        bases, start = tail.bases, tail.start
        first = bisect_right(bases, offset, start) - 1
        if first < start:
            return None
        ends = tail.ends
        before = ends[first - 1] if first else ends[0] - len(tail.payloads[0] or b"")
        last = bisect_right(ends, before + max_bytes, first)
        if last == first and min_one:
            last = first + 1
        if last > first and bases[last - 1] >= end_offset:
            last = bisect_left(bases, end_offset, first, last)
        if last <= first:
            return [], 0
        return tail.payloads[first:last], ends[last - 1] - before  # type: ignore[return-value]

    def clear(self) -> None:
        """Forget everything: after a truncation."""
        self._partitions.clear()
        self._order.clear()
        self._used_bytes = self._ahead = 0


def _is_kept(tail: PartitionTail) -> bool:
    """Returns False for a batch that was removed before its turn, and counts it off."""
    if tail.ahead:
        tail.ahead -= 1
        return False
    return True
