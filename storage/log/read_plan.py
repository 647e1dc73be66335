"""The plan of a read: rows of a batch index, the system calls for them, and the views. Pure.

Columns of many rows go through functions of the standard library: a read of small batches has a thousand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from operator import add, sub
from typing import Final

from lockstep.storage.log.batch_index import BatchIndex
from lockstep.storage.types import Buffer

MAX_GAP_BYTES = 16 << 10
"""Reading this much of other partitions' bytes costs less than another system call."""
MAX_READ_BYTES = 4 << 20
"""The most that one system call reads."""
MAX_ROWS_AT_ONCE: Final = 1024
"""LIMIT. Rows whose bytes are added up at a time: a segment has many more than a read takes."""


class ReadPlan:
    """Rows [first, last) of `index`; `more`: the budget or the end offset ended them before the segment
    did."""

    __slots__ = ("first", "index", "last", "more", "skipped_bytes", "total_bytes")

    def __init__(self, index: BatchIndex, first: int, last: int, total_bytes: int, more: bool) -> None:
        self.index = index
        """The segment's index; or rows of it in which the first and the last run are split into batches."""
        self.first = first
        self.last = last
        self.total_bytes = total_bytes
        self.more = more
        self.skipped_bytes = 0
        """Bytes of damaged batches that are skipped."""


def plan_read(index: BatchIndex, offset: int, budget: int, end_offset: int, min_one: bool) -> ReadPlan:
    """The batches from `offset` to before `end_offset`, at most `budget` bytes; one at least with `min_one`.

    Rows that are runs are taken whole, but for the runs in which the read begins and ends: of these the
    batches are planned one by one.
    """
    bases = index.bases
    count = len(bases)
    first = max(0, bisect_right(bases, offset) - 1)
    if next_offset(index, first) <= offset:
        first += 1  # the batch that held it has been freed with a segment in which nothing was left
    stop = bisect_left(bases, end_offset, first)
    if index.runs is None or not index.runs.has_any(first, stop):
        return _plan_rows(index, first, stop, budget, min_one, stop < count)
    rows = BatchIndex()
    begin = first
    if bases[first] < offset and index.is_run(first):
        batches = index.batches(first)
        rows.extend(batches, bisect_right(batches.bases, offset) - 1, len(batches.bases))
        begin += 1
    left = max(budget, 0) - rows.total_bytes
    if left >= 0:
        last = _plan_rows(index, begin, stop, left, False, False).last
        if last < stop or (last > begin and next_offset(index, last - 1) > end_offset):
            last -= last == stop  # the row that fits in part, or not at all
            batches = index.batches(last)
            rows.extend(index, begin, last)
            rows.extend(batches, 0, len(batches.bases))
        else:
            rows.extend(index, begin, last)
    rows_stop = bisect_left(rows.bases, end_offset)
    return _plan_rows(rows, 0, rows_stop, budget, min_one, stop < count or rows_stop < len(rows.bases))


def _plan_rows(
    index: BatchIndex, first: int, stop: int, budget: int, min_one: bool, is_cut: bool
) -> ReadPlan:
    """`plan_read` of rows [first, stop), each as a whole. `is_cut`: there are more behind them."""
    lengths = index.lengths
    total = 0
    last = first
    while last < stop:
        estimated_rows = (budget - total) // (
            lengths[last] or 1
        ) + 2  # if all of them are as large as this one
        rows = lengths[last : min(stop, last + max(1, min(estimated_rows, MAX_ROWS_AT_ONCE)))]
        totals = [*accumulate(rows, initial=total)]
        if totals[-1] <= budget:
            total = totals[-1]
            last += len(rows)
            continue
        taken = max(0, bisect_right(totals, budget) - 1)
        total = totals[taken]
        last += taken
        if total or not min_one:
            return ReadPlan(index, first, last, total, True)
        total = lengths[last]
        last += 1
        if total:
            return ReadPlan(index, first, last, total, True)
    return ReadPlan(index, first, last, total, is_cut or total >= max(budget, 1))


def covered_rows(index: BatchIndex, first: int, last: int, end: int) -> int:
    """The row after the last of [first, last) that ends at or before a position in the segment; `first` where
    none does."""
    positions, lengths = index.positions, index.lengths
    row = bisect_left(positions, end, first, last)
    while row > first and positions[row - 1] + lengths[row - 1] > end:
        row -= 1
    return row


def read_ranges(index: BatchIndex, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The ranges of rows [first, last) that one system call each reads, small gaps included."""
    positions, lengths = index.positions, index.lengths
    if first == last:
        return
    span = positions[last - 1] + lengths[last - 1] - positions[first]
    if span <= MAX_READ_BYTES and span - sum(lengths[first:last]) <= MAX_GAP_BYTES:
        yield first, last
        return
    ends = map(add, positions[first : last - 1], lengths[first : last - 1])
    gaps = map(sub, positions[first + 1 : last], ends)
    far = [row for row, gap in enumerate(gaps, first + 1) if gap > MAX_GAP_BYTES]
    begin = first
    for stop in (*far, last):
        while begin < stop:
            end = positions[begin] + MAX_READ_BYTES
            row = bisect_right(positions, end, begin, stop)
            while row > begin + 1 and positions[row - 1] + lengths[row - 1] > end:
                row -= 1
            yield begin, row
            begin = row


def next_offset(index: BatchIndex, row: int) -> int:
    """The offset after a row's batches."""
    return index.bases[row + 1] if row + 1 < len(index.bases) else index.next_offset


def append_views(index: BatchIndex, first: int, last: int, view: memoryview, buffers: list[Buffer]) -> int:
    """Append views of rows [first, last), adjacent batches as one view; returns their bytes. `view` begins at
    row `first`."""
    if first == last:
        return 0
    positions, lengths = index.positions, index.lengths
    start = positions[first]
    total = sum(lengths[first:last])
    if positions[last - 1] + lengths[last - 1] - start == total:
        if total:
            buffers.append(view[:total])
        return total
    begin = end = 0
    for row in range(first, last):
        length = lengths[row]
        if length:
            at = positions[row] - start
            if at != end:
                if end > begin:
                    buffers.append(view[begin:end])
                begin = at
            end = at + length
    if end > begin:
        buffers.append(view[begin:end])
    return total
