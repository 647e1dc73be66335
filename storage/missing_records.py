"""Records that a salvaged log lacks at its beginning, by partition.

A log whose state file is lost does not know its oldest segment any more: where the oldest ones are gone
together with their index files, they were freed, or they are missing. A segment is freed once each of its
partitions begins above it. So what a partition still has by its log start, and no segment has, is missing,
unless compaction removed it, which only the topic's settings tell. A log start that is in the log and not
committed yet counts: it is what freed the segment where it was committed before. Does not: know topics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from lockstep.protocol.records.record import iter_records
from lockstep.storage.control_partition import ControlPartition
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import ENTRY_RAW
from lockstep.storage.types import CONTROL_PARTITION, LAST_OFFSET, Frame


class MissingRecords(NamedTuple):
    """Offsets from `first_offset` on, below `end_offset`, that a partition lacks."""

    topic_id: bytes
    partition: int
    first_offset: int
    end_offset: int


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
            found.append(MissingRecords(partition.topic_id, partition.index, start, end))
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
