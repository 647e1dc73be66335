"""The rows of a batch index that stand for several batches, and what these are: six bytes a batch. Pure.

A row is an entry of a `BatchIndex`: a single batch or a run. A run is two or more neighbouring batches of
one partition in one frame (`batch_runs`). Length, record count and age of each of its batches are kept in 16
bits; a run in which one does not fit is not kept as a run, but as a row for each batch. A row that is no run
costs nothing here. One thread appends, several read without a lock: they look a run up in `rows` first, so
`rows` grows last, when the other columns have the run already.
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
    """The runs of one `BatchIndex`. An age is by how many ms a batch is older than the newest of its run."""

    __slots__ = ("batch_ends", "batch_fields", "checksums", "rows")

    def __init__(self) -> None:
        self.rows = array("I")
        """Rows of the index that are runs, rising."""
        self.batch_ends = array("I")
        """The number of batches of a run and of all runs before it."""
        self.checksums = array("I")
        """CRC-32C of all bytes of a run."""
        self.batch_fields = array("H")
        """Of each run the lengths of its batches, then their record counts, then their ages."""

    def add(
        self, row: int, lengths: Sequence[int], counts: Sequence[int], ages: Sequence[int], checksum: int
    ) -> None:
        """One more run, of values that fit."""
        fields = self.batch_fields
        fields.extend(lengths)
        fields.extend(counts)
        fields.extend(ages)
        self.checksums.append(checksum)
        self.batch_ends.append(len(fields) // 3)
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
        end, begin = self.batch_ends[run], self.batch_ends[run - 1] if run else 0
        count, at = end - begin, 3 * begin
        fields = self.batch_fields
        return (
            fields[at : at + count],
            fields[at + count : at + 2 * count],
            fields[at + 2 * count : 3 * end],
        )

    def extend(self, other: RunTable, first: int, last: int, shift: int) -> None:
        """Add the runs among rows [first, last) of another table, as rows that are `shift` higher."""
        begin, end = bisect_left(other.rows, first), bisect_left(other.rows, last)
        if begin >= end:
            return
        before = other.batch_ends[begin - 1] if begin else 0
        added = len(self.batch_fields) // 3 - before
        self.batch_fields.extend(other.batch_fields[3 * before : 3 * other.batch_ends[end - 1]])
        self.checksums.extend(other.checksums[begin:end])
        self.batch_ends.extend([each + added for each in other.batch_ends[begin:end]])
        self.rows.extend([row + shift for row in other.rows[begin:end]])

    @property
    def memory_bytes(self) -> int:
        return TABLE_COST_BYTES + RUN_BYTES * len(self.rows) + 2 * len(self.batch_fields)

    @property
    def file_bytes(self) -> int:
        """The bytes of its columns in an index file."""
        return RUN_BYTES * len(self.rows) + 2 * len(self.batch_fields)


def fits(lengths: Sequence[int], counts: Sequence[int], timestamps: Sequence[int], newest: int) -> bool:
    """Returns whether batches can be one run in a table."""
    return max(counts) <= MAX_VALUE and max(lengths) <= MAX_VALUE and newest - min(timestamps) <= MAX_VALUE
