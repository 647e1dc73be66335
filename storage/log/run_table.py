"""The rows of a batch index that stand for several batches, and what these are: six bytes a batch. Pure.

Such a row is a run (`batch_runs`) of two batches or more. Length, record count and age of each of its batches
are kept in 16 bits; a run in which one does not fit is not kept as a run, but as a row for each batch. A row
that is no run costs nothing here. Appended by one thread, read by several: `rows` grows last.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

MAX_VALUE: Final = (1 << 16) - 1
"""LIMIT. The largest length, record count and age of a batch within a run."""
TABLE_COST_BYTES: Final = 450
"""What a table costs in memory beside its runs. Measured by `tracemalloc` (Python 3.11)."""
RUN_BYTES: Final = 12
BATCH_BYTES: Final = 6


class RunTable:
    """See the module. An age is how many milliseconds a batch is older than the newest one of its run."""

    __slots__ = ("checksums", "details", "ends", "rows")

    def __init__(self) -> None:
        self.rows = array("I")
        """Rows of the index that are runs, rising."""
        self.ends = array("I")
        """How many batches a run has together with those before it."""
        self.checksums = array("I")
        """CRC-32C of all bytes of a run."""
        self.details = array("H")
        """Of each run the lengths of its batches, then their record counts, then their ages."""

    def add(
        self, row: int, lengths: Sequence[int], counts: Sequence[int], ages: Sequence[int], checksum: int
    ) -> None:
        """One more run, of values that fit."""
        details = self.details
        details.extend(lengths)
        details.extend(counts)
        details.extend(ages)
        self.checksums.append(checksum)
        self.ends.append(len(details) // 3)
        self.rows.append(row)

    def find(self, row: int) -> int:
        """The number of the run that a row of the index is; -1 where it is a batch."""
        at = bisect_left(self.rows, row)
        return at if at < len(self.rows) and self.rows[at] == row else -1

    def has_any(self, first: int, last: int) -> bool:
        """Returns whether any of rows [first, last) is a run."""
        return bisect_left(self.rows, first) < bisect_left(self.rows, last)

    def checksums_of(self, first: int, last: int) -> dict[int, int]:
        """The checksum of each run among rows [first, last), by row."""
        begin, end = bisect_left(self.rows, first), bisect_left(self.rows, last)
        return dict(zip(self.rows[begin:end], self.checksums[begin:end], strict=True))

    def batches(self, run: int) -> tuple[array[int], array[int], array[int]]:
        """Lengths, record counts and ages of a run's batches."""
        end, begin = self.ends[run], self.ends[run - 1] if run else 0
        count, at = end - begin, 3 * begin
        details = self.details
        return (
            details[at : at + count],
            details[at + count : at + 2 * count],
            details[at + 2 * count : 3 * end],
        )

    def extend(self, other: RunTable, first: int, last: int, shift: int) -> None:
        """Add the runs among rows [first, last) of another table, as rows that are `shift` higher."""
        begin, end = bisect_left(other.rows, first), bisect_left(other.rows, last)
        if begin >= end:
            return
        before = other.ends[begin - 1] if begin else 0
        more = len(self.details) // 3 - before
        self.details.extend(other.details[3 * before : 3 * other.ends[end - 1]])
        self.checksums.extend(other.checksums[begin:end])
        self.ends.extend([each + more for each in other.ends[begin:end]])
        self.rows.extend([row + shift for row in other.rows[begin:end]])

    @property
    def memory_bytes(self) -> int:
        return TABLE_COST_BYTES + RUN_BYTES * len(self.rows) + 2 * len(self.details)

    @property
    def file_bytes(self) -> int:
        """The bytes of its columns in an index file."""
        return RUN_BYTES * len(self.rows) + 2 * len(self.details)


def fits(lengths: Sequence[int], counts: Sequence[int], timestamps: Sequence[int], newest: int) -> bool:
    """Returns whether batches can be one run in a table."""
    return max(counts) <= MAX_VALUE and max(lengths) <= MAX_VALUE and newest - min(timestamps) <= MAX_VALUE
