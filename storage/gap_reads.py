"""Reads over gaps: offsets whose batches compaction removed, together with their segment.

The log knows with which offsets its segments begin, the partition knows what is deleted: where the log has no
batch and the partition has nothing deleted, the read continues with the next batch, as it does over batches
that were cleaned within a segment. Records that are known to be missing are no such gap: a read of them fails
(`missing_records.py`). No client may read from a member that may not know of a log start yet by
which segments were freed (`DataLog.whole_index`).
"""

from __future__ import annotations

from typing import Final

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.missing_records import offset_after_missing
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import OffsetOutOfRange, ReadResult

MAX_ATTEMPTS: Final = 64
"""The most attempts of one read: neighbouring segments may be freed one after the other meanwhile."""


def read(
    log: DataLog, partition: PartitionLog, offset: int, max_bytes: int, end_offset: int, wait: bool
) -> ReadResult:
    """`DataLog.read_cold` or, without `wait`, `read`. OffsetOutOfRange where the offset is deleted,
    DamagedBatch where its records are missing or damaged."""
    if log.damage.missing and offset < end_offset:
        offset = offset_after_missing(log, partition, offset)
        if offset >= end_offset:
            return ReadResult([], 0, next_offset=offset)
    return read_over_gaps(
        log, partition.local_id, partition.log_start_offset, offset, max_bytes, end_offset, wait
    )


def read_over_gaps(
    log: DataLog,
    local_id: int,
    log_start_offset: int,
    offset: int,
    max_bytes: int,
    end_offset: int,
    wait: bool = True,
) -> ReadResult:
    """Reads like `read`, from a partition by its local id; below `log_start_offset` all is deleted."""
    read_log = log.read_cold if wait else log.read
    for left in reversed(range(MAX_ATTEMPTS)):
        try:
            return read_log(local_id, offset, max_bytes, end_offset)
        except OffsetOutOfRange:
            first = log.first_offset(local_id)
            if not left or first is None or offset < log_start_offset:
                raise
            offset = max(offset, first)
    raise AssertionError
