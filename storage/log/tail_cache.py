"""The newest batches of every partition, as the very bytes that were appended, up to a byte limit.

A row is a batch, or a run of neighbouring ones (`batch_runs.py`); a read looks for batches only within the
runs in which it begins and ends. Reads of the tail touch no file. What is kept of a partition has no gap and
reaches its newest batch. Eviction is oldest first over all partitions, a row at a time. The limit counts the
memory that is held: what batches and partitions cost beside their bytes, and a received message whole as long
as any row is in it, whatever became of its other rows. Used from the log's own thread only.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Final

from lockstep.storage.types import Buffer

_COMPACT_AT = 32
"""Evicted places that a partition has room for at least: of many partitions with few batches each, a thousand
would take more than the batches."""
_MIN_ORDER = 1024
ROW_COST_BYTES = 56
"""What a row costs without what holds its bytes: 8 bytes in each of five arrays, with room to grow and the
places of rows that are gone. Measured by `tracemalloc` (Python 3.11), as are the others."""
BATCH_COST_BYTES = ROW_COST_BYTES + 57
"""What a batch costs beside its bytes that is a row: its object's head, too. Of batches of 100 bytes it is as
much again."""
IN_RUN_COST_BYTES: Final = 65
"""What each batch of a run costs that has a buffer of its own: its head, and a place in a list."""
SHARED_COST_BYTES: Final = 400
"""What a buffer of many rows costs beside its bytes: its head, the view of it, and the count of its rows."""
COPY_COST_BYTES: Final = 100
"""The same of a row's copy, which has no view."""
PARTITION_COST_BYTES = 800
"""What a partition costs that has any batch here, and some places of rows that are gone."""
_MAX_SHARED = 4
"""A buffer of many rows that takes more than a fourth of the limit is not kept for them."""

_BASE_AND_LENGTH: Final = Struct(">qi")
_LENGTH_PREFIX_BYTES: Final = 12
"""Base offset and length: what a batch's length does not count."""


class SharedBuffer:
    """A buffer in which many rows lie, as a received message: held, and counted, while any is kept."""

    __slots__ = ("cost_bytes", "data", "rows")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self.cost_bytes = len(data) + (COPY_COST_BYTES if isinstance(data, bytes) else SHARED_COST_BYTES)
        self.rows = 0
        """The number of rows in it that are kept."""


Payload = Buffer | list[Buffer] | SharedBuffer
"""Of a row: a batch; the batches of a run; or what the row's batches lie in, one after the other."""


class PartitionTail:
    """One partition's cached batches; the first `start` entries are gone."""

    __slots__ = (
        "ahead",
        "bases",
        "ends",
        "evicted_bytes",
        "has_runs",
        "local_id",
        "next_offset",
        "payloads",
        "positions",
        "start",
        "total_bytes",
    )

    def __init__(self, local_id: int) -> None:
        self.local_id = local_id
        self.bases = array("q")
        self.ends = array("q")
        """Running total of bytes after each row, so that a byte budget is one bisection."""
        self.evicted_bytes = 0
        """The running total before the first row."""
        self.positions = array("q")
        """Of each row in its shared buffer; 0 where it has none."""
        self.payloads: list[Payload | None] = []
        self.has_runs = False
        """Whether any row was a run."""
        self.next_offset = 0
        """After the newest run."""
        self.start = 0
        self.ahead = 0
        """The number of rows that were evicted out of order."""
        self.total_bytes = 0

    def evict(self) -> int:
        """Forget the oldest row; the bytes that this frees."""
        start = self.start
        payload = self.payloads[start]
        self.payloads[start] = None
        self.start = start = start + 1
        if start >= _COMPACT_AT and start * 2 >= len(self.payloads):
            self.evicted_bytes = self.ends[start - 1]
            del self.bases[:start], self.ends[:start], self.positions[:start], self.payloads[:start]
            self.start = 0
        if isinstance(payload, SharedBuffer):
            payload.rows -= 1
            return ROW_COST_BYTES if payload.rows else ROW_COST_BYTES + payload.cost_bytes
        return _cost_bytes(payload) if payload is not None else 0

    def bytes_before(self, row: int) -> int:
        """The running total of bytes before a row."""
        return self.ends[row - 1] if row else self.evicted_bytes


class TailCache:
    """The newest batches in memory, for `read`."""

    __slots__ = ("_ahead", "_limit_bytes", "_max_shared_bytes", "_order", "_partitions", "_used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._max_shared_bytes = limit_bytes // _MAX_SHARED
        self._used_bytes = 0
        self._ahead = 0
        """The number of rows of `_order` that were removed already."""
        self._partitions: dict[int, PartitionTail] = {}
        self._order: deque[PartitionTail] = deque()

    def add(self, partition: int, base: int, payload: Buffer, length: int) -> None:
        """Add a batch in a buffer of its own."""
        tail = self._partitions.get(partition)
        if tail is None:
            tail = self._new(partition)
        tail.bases.append(base)
        tail.total_bytes = end = tail.total_bytes + length
        tail.ends.append(end)
        tail.positions.append(0)
        tail.payloads.append(payload)
        self._order.append(tail)
        self._used_bytes += length + BATCH_COST_BYTES
        if self._used_bytes > self._limit_bytes:
            self._evict()

    def add_run(
        self, partition: int, base: int, next_offset: int, batches: list[Buffer], length: int
    ) -> None:
        """Add neighbouring batches, each in a buffer of its own."""
        self._used_bytes += _cost_bytes(batches)
        self._add_run(partition, base, next_offset, batches, 0, length)

    def add_shared(
        self, partition: int, base: int, next_offset: int, buffer: SharedBuffer, begin: int, length: int
    ) -> None:
        """Add a batch, or neighbouring ones, that lie in a buffer with others."""
        if buffer.cost_bytes > self._max_shared_bytes and length <= self._limit_bytes:
            # The whole buffer would push out much else for as long as one of its rows is kept.
            buffer, begin = SharedBuffer(bytes(buffer.data[begin : begin + length])), 0
        if not buffer.rows:
            self._used_bytes += buffer.cost_bytes
        buffer.rows += 1
        self._used_bytes += ROW_COST_BYTES
        self._add_run(partition, base, next_offset, buffer, begin, length)

    def _add_run(
        self, partition: int, base: int, next_offset: int, batches: Payload, begin: int, length: int
    ) -> None:
        tail = self._partitions.get(partition)
        if tail is None:
            tail = self._new(partition)
        tail.has_runs = True
        tail.next_offset = next_offset
        tail.bases.append(base)
        tail.total_bytes = end = tail.total_bytes + length
        tail.ends.append(end)
        tail.positions.append(begin)
        tail.payloads.append(batches)
        self._order.append(tail)
        if self._used_bytes > self._limit_bytes:
            self._evict()

    def _new(self, partition: int) -> PartitionTail:
        tail = self._partitions[partition] = PartitionTail(partition)
        self._used_bytes += PARTITION_COST_BYTES
        return tail

    def _evict(self) -> None:
        """Forget the oldest rows."""
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
        if self._ahead > max(_MIN_ORDER, len(self._order) // 2):
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
        if tail.has_runs:
            return _read_runs(tail, first, offset, max_bytes, end_offset, min_one)
        ends = tail.ends
        before = tail.bytes_before(first)
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


def _read_runs(
    tail: PartitionTail, first: int, offset: int, max_bytes: int, end_offset: int, min_one: bool
) -> tuple[list[Buffer], int]:
    """`TailCache.read` from row `first` on, which holds the offset."""
    bases, ends, payloads = tail.bases, tail.ends, tail.payloads
    found: list[Buffer] = []
    row, total = first, 0
    stop = bisect_left(bases, end_offset, first)  # the first row at the end offset or after it
    if stop == first:
        return found, 0
    if offset > bases[row] and not isinstance(payloads[row], Buffer):
        total, is_whole = _take(tail, row, offset, max_bytes, end_offset, min_one, found)
        if not is_whole:
            return found, total
        row += 1
    before = tail.bytes_before(row)
    last = min(bisect_right(ends, before + max_bytes - total, row), stop)
    if last == stop and last > row and _end_of(tail, last - 1) > end_offset:
        last -= 1
    for each in range(row, last):
        payload = payloads[each]
        if isinstance(payload, SharedBuffer):
            found.append(_view(tail, each, payload))
        elif isinstance(payload, list):
            found += payload
        else:
            assert payload is not None
            found.append(payload)
    if last > row:
        total += ends[last - 1] - before
    if last < stop:
        min_one = min_one and not found
        more, _ = _take(tail, last, bases[last], max_bytes - total, end_offset, min_one, found)
        total += more
    return found, total


def _end_of(tail: PartitionTail, row: int) -> int:
    """The offset after a run; not above the end offset of any read for a batch alone, which is never cut."""
    if isinstance(tail.payloads[row], Buffer):
        return -1
    return tail.bases[row + 1] if row + 1 < len(tail.bases) else tail.next_offset


def _view(tail: PartitionTail, row: int, buffer: SharedBuffer) -> memoryview:
    """The bytes of a row in its shared buffer."""
    begin = tail.positions[row]
    return memoryview(buffer.data)[begin : begin + tail.ends[row] - tail.bytes_before(row)]


def _take(
    tail: PartitionTail,
    row: int,
    offset: int,
    max_bytes: int,
    end_offset: int,
    min_one: bool,
    found: list[Buffer],
) -> tuple[int, bool]:
    """Append the batches of a row from the one that holds `offset` on, as a read of the row's batches gives
    them: (their bytes, whether the row's last one is among them)."""
    payload = tail.payloads[row]
    assert payload is not None
    if not isinstance(payload, SharedBuffer):
        batches = payload if isinstance(payload, list) else [payload]
        return _take_batches(batches, offset, max_bytes, end_offset, min_one, found)
    view = _view(tail, row, payload)
    size, begin, at = len(view), 0, 0
    while at < size:
        base, length = _BASE_AND_LENGTH.unpack_from(view, at)
        if base > offset:
            break
        begin = at
        at += length + _LENGTH_PREFIX_BYTES
    end = begin
    while end < size:
        base, length = _BASE_AND_LENGTH.unpack_from(view, end)
        after = end + length + _LENGTH_PREFIX_BYTES
        if base >= end_offset or (after - begin > max_bytes and not (min_one and end == begin)):
            break
        end = after
    if end > begin:
        found.append(view[begin:end])
    return end - begin, end == size


def _take_batches(
    batches: Sequence[Buffer],
    offset: int,
    max_bytes: int,
    end_offset: int,
    min_one: bool,
    found: list[Buffer],
) -> tuple[int, bool]:
    """`_take` for batches in buffers of their own."""
    total = 0
    index = bisect_right(batches, offset, key=_base_offset) - 1
    while index < len(batches):
        batch = batches[index]
        size = len(batch)
        if _base_offset(batch) >= end_offset or (total + size > max_bytes and (total or not min_one)):
            return total, False
        found.append(batch)
        total += size
        index += 1
    return total, True


def _base_offset(batch: Buffer) -> int:
    return int.from_bytes(batch[:8], "big", signed=True)


def _cost_bytes(payload: Buffer | list[Buffer]) -> int:
    """Returns the memory that a row takes whose batches are in buffers of their own."""
    if isinstance(payload, list):
        return ROW_COST_BYTES + IN_RUN_COST_BYTES * len(payload) + sum(map(len, payload))
    return BATCH_COST_BYTES + len(payload)


def _is_kept(tail: PartitionTail) -> bool:
    """Returns False for a row that was removed before its turn, and counts it off."""
    if tail.ahead:
        tail.ahead -= 1
        return False
    return True
