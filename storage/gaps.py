"""Reads over gaps: offsets whose batches compaction took away, together with the file they were in.

The log knows which offsets its files begin with, the partition knows what is deleted: where the one has
nothing any more and the other says nothing was deleted, reading goes on with what follows, as it does over
batches that are gone within a file. Nobody is to read a member that may not know of a log start yet by which
files are gone (`DataLog.whole_index`).
"""

from __future__ import annotations

from typing import Final

from storage.log.data_log import DataLog
from storage.partition import PartitionLog
from storage.types import OffsetOutOfRange, ReadResult

MOST_TRIES: Final = 64
"""Neighbouring segments are freed one after the other; a reader that is as slow meets several of them."""


def read(
    log: DataLog, partition: PartitionLog, offset: int, max_bytes: int, end_offset: int, wait: bool
) -> ReadResult:
    """`DataLog.read_cold` or, without `wait`, `read`. OffsetOutOfRange where the offset is deleted."""
    return over_gaps(log, partition.number, partition.log_start_offset, offset, max_bytes, end_offset, wait)


def over_gaps(
    log: DataLog,
    number: int,
    log_start_offset: int,
    offset: int,
    max_bytes: int,
    end_offset: int,
    wait: bool = True,
) -> ReadResult:
    """As `read`, of a partition by its number; below `log_start_offset` all is deleted."""
    ask = log.read_cold if wait else log.read
    for left in reversed(range(MOST_TRIES)):
        try:
            return ask(number, offset, max_bytes, end_offset)
        except OffsetOutOfRange:
            first = log.first_offset(number)
            if not left or first is None or offset < log_start_offset:
                raise
            offset = max(offset, first)
    raise AssertionError
