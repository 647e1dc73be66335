"""Records that are missing at the beginning of a salvaged log, by partition.

A log whose state file is lost does not know its oldest segment any more: where the oldest ones are gone
together with their index files, they were freed, or they are missing. A segment is freed once each of its
partitions begins above it. So what a partition still has by its log start, and no segment has, is missing,
unless compaction removed it, which depends on the topic's settings. A log start that is in the log and not
committed yet counts: it is what freed the segment where it was committed before. With log.flush=os a power
loss may take a log start and leave the freeing, so there nothing is certain.

The search is repeated where the damage file, which recorded its result, cannot be read.

Missing ranges are recorded in the log's damage table as not confirmed. The broker, which knows the topics,
confirms them, as possible ones where compaction may have removed the records, or drops them. A missing range
counts only as long as it is above the log start and the log has no batch there: a snapshot that brings the
records ends it. Does not: know topics.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from lockstep.protocol.records.record import iter_records
from lockstep.storage.control_partition import ControlPartition
from lockstep.storage.log.format import ENTRY_RAW
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import (
    CONTROL_PARTITION,
    LAST_OFFSET,
    NO_SEGMENT,
    DamagedBatch,
    Frame,
    StorageError,
)

if TYPE_CHECKING:
    from lockstep.storage.log.damage import DamagedRange
    from lockstep.storage.log.data_log import DataLog

log_of_groups = logging.getLogger(__name__)


class MissingRecords(NamedTuple):
    """Offsets from `first_offset` on, below `end_offset`, that are missing in a partition."""

    topic_id: bytes
    partition_index: int
    local_id: int
    first_offset: int
    end_offset: int


def record_missing_records(log: DataLog, control: ControlPartition) -> list[MissingRecords]:
    """Records the missing ranges in `log.damage`; with log.flush=os returns them instead.

    It never keeps the log from being opened: a failure is logged, and the next start searches again.
    """
    try:
        found = find_missing_records(log, control)
        certain = found if log.options.flush else []
        log.record_missing([(each.local_id, each.first_offset, each.end_offset) for each in certain])
    except (OSError, StorageError, ValueError) as error:
        log_of_groups.warning(
            "log group %d: the search for records that are missing at the beginning of its log failed, or "
            "its result could not be recorded; the next start searches again: %s",
            log.group_id,
            error,
        )
        return []
    return [] if log.options.flush else found


def find_missing_records(log: DataLog, control: ControlPartition) -> list[MissingRecords]:
    """Returns the offsets that are neither deleted nor in the log, once `control` has replayed it. Reads the
    frames above the checkpoint. Raises as `DataLog.replay`."""
    starts = _log_starts_in(log)
    found = []
    for partition in control.partitions.values():
        if partition.local_id == CONTROL_PARTITION:
            continue
        start = max(partition.log_start_offset, starts.get(partition.local_id, 0))
        first = log.first_offset(partition.local_id)
        end = partition.next_offset if first is None else first
        if start < end:
            found.append(MissingRecords(partition.topic_id, partition.index, partition.local_id, start, end))
    return found


def _log_starts_in(log: DataLog) -> Mapping[int, int]:
    """Returns the log starts by local id that frames above the checkpoint record; beyond every offset for a
    closed partition."""
    starts: dict[int, int] = {}
    for frame in log.replay():
        for command in _commands_of(frame):
            match command:
                case {"do": "close", "partition": int(local_id)}:
                    starts[local_id] = LAST_OFFSET
                case {"do": "log_start", "partition": int(local_id), "offset": int(offset)}:
                    starts[local_id] = max(starts.get(local_id, 0), offset)
    return starts


def _commands_of(frame: Frame) -> list[object]:
    return [
        json.loads(bytes(record.value or b"{}"))
        for entry, payload in zip(frame.directory, frame.payloads, strict=True)
        if entry.partition == CONTROL_PARTITION and not entry.flags & ENTRY_RAW
        for record in iter_records(payload)
    ]


def is_still_missing(log: DataLog, partition: PartitionLog | None, missing: DamagedRange) -> bool:
    """Returns whether a part of a missing range is neither deleted nor in the log. For any thread."""
    if partition is None:
        return False
    first = log.first_offset(missing.local_id)
    end = missing.end_offset if first is None else min(missing.end_offset, first)
    return max(missing.first_offset, partition.log_start_offset) < end


def is_obsolete(log: DataLog, control: ControlPartition, missing: DamagedRange) -> bool:
    """Returns whether no record of a missing range is missing any more: its partition is closed, or all of
    the range is deleted or in the log. A partition that a restart has not opened yet is not closed."""
    partition = control.partitions.get(missing.local_id)
    if partition is None:
        return missing.local_id < control.next_local_id
    return not is_still_missing(log, partition, missing)


def drop_obsolete(log: DataLog, control: ControlPartition) -> None:
    """Drops obsolete missing ranges, at a start. A failed write leaves them to the next one."""
    obsolete = [
        each for ranges in log.damage.missing.values() for each in ranges if is_obsolete(log, control, each)
    ]
    if obsolete:
        with contextlib.suppress(OSError):
            log.damage.resolve_missing([], obsolete)


def offset_after_missing(log: DataLog, partition: PartitionLog, offset: int) -> int:
    """Returns the offset with which a read continues: behind missing ranges that are skipped or
    that compaction may have removed.

    For any thread. Raises DamagedBatch if the offset is in one that was not.
    """
    first = log.first_offset(partition.local_id)
    for each in log.damage.missing.get(partition.local_id, ()):
        if not each.first_offset <= offset < each.end_offset or offset < partition.log_start_offset:
            continue
        if first is not None and first <= offset:
            break  # a snapshot has brought the records
        if not (each.is_skipped or each.is_possible):
            raise _missing_error(each)
        offset = each.end_offset
    return offset


def require_none_missing(log: DataLog, partitions: Iterable[PartitionLog], lsn: int) -> None:
    """Raises DamagedBatch if records of these partitions from an LSN on are missing for certain and not
    skipped. For any thread."""
    if lsn < log.oldest_lsn:
        for partition in partitions:
            for each in _current_ranges(log, partition):
                if not each.is_possible:
                    raise _missing_error(each)


def has_missing_records(log: DataLog, partition: PartitionLog) -> bool:
    """Returns whether records of a partition are missing for certain and not skipped. For any thread."""
    return not all(each.is_possible for each in _current_ranges(log, partition))


def has_damaged_records(log: DataLog, control: ControlPartition) -> bool:
    """Returns whether records of open partitions above their log starts are damaged in a file and not
    skipped. For any thread."""
    return any(
        each.sequence != NO_SEGMENT
        and not each.is_skipped
        and each.local_id in control.partitions
        and each.end_offset > control.partitions[each.local_id].log_start_offset
        for each in log.damage.known()
    )


def _current_ranges(log: DataLog, partition: PartitionLog) -> Iterator[DamagedRange]:
    for each in log.damage.missing.get(partition.local_id, ()):
        if not each.is_skipped and is_still_missing(log, partition, each):
            yield each


def _missing_error(missing: DamagedRange) -> DamagedBatch:
    first, end = missing.first_offset, missing.end_offset
    problem = f"offsets {first} to {end - 1} are missing: {missing.problem}"
    return DamagedBatch(NO_SEGMENT, missing.serial, missing.local_id, first, end, problem)


def may_miss_records(log: DataLog, control: ControlPartition) -> bool:
    """Returns whether a snapshot of this log would miss records, for certain or possibly, that are not
    skipped. For any thread."""
    return any(
        True
        for local_id in log.damage.missing
        if local_id in control.partitions
        for _ in _current_ranges(log, control.partitions[local_id])
    )
