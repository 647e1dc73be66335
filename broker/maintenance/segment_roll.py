"""Seals a group's active segment when a compacted partition needs it.

The cleaner reaches what is in sealed files below both kept checkpoints. By Kafka's rules three settings
decide when the cleaner must reach a partition's newest records: `segment.ms`, `segment.bytes`,
`max.compaction.lag.ms`. Owns those (`roll_interval_ms`), and how often a group may be sealed at most
(`SegmentRoll`): for every such file another one is filled with zeros, and live records in it keep it. Does
not: seal (`storage/segment_sealer.py`), or decide what is cleaned. Source: Kafka's LogSegment.shouldRoll,
UnifiedLog.maxSegmentMs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.storage.log.index_file import SegmentPartition
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import StorageError

log = logging.getLogger("lockstep.compaction")

ANY_TIME: Final = -(1 << 62)
SEAL_SECONDS: Final = 30.0
"""Longer than a checkpoint takes on a slow disk."""
MEMBER_TIMEOUT_MS: Final = 600_000
"""A leader seals nothing for so long while a member is unreachable: that member could only catch up by a
snapshot afterwards."""
SMALL_FRACTION: Final = 8
MAX_SMALL: Final = 100
SMALL_FILE_MS: Final = 15_000
"""Beyond this number of files below an eighth of the full size each delays the next sealing by this time: a
year leaves some two thousand where no record in them is ever removed, however short a topic's segment.ms."""


def roll_interval_ms(
    partition: Partition,
    in_segments: Sequence[SegmentPartition],
    stable_offset: int,
    clean_to: int,
    now_ms: int,
) -> int | None:
    """The interval in ms at which segments are sealed for this partition; None if none is needed now.

    Args: as `compaction.plan_cleaning`. Reads indexes: for a thread.
    """
    partition_log, config, data_log = partition.log, partition.topic.config, partition.group.log
    reached_offset = max(
        partition_log.log_start_offset, clean_to, in_segments[-1].last_offset + 1 if in_segments else 0
    )
    end = min(stable_offset, partition_log.high_watermark)
    first = (
        data_log.timestamp_lookup(partition_log.local_id, ANY_TIME, reached_offset, end)
        if reached_offset < end
        else None
    )
    if first is None:
        return None
    age_ms = now_ms - first.max_timestamp if first.max_timestamp >= 0 else 0
    every_ms = min(config.segment_ms, config.max_compaction_lag_ms)
    waiting_bytes = data_log.partition_bytes(partition_log.local_id, reached_offset)
    if age_ms <= every_ms:
        if waiting_bytes <= config.segment_bytes:
            return None
        every_ms = 0
    if age_ms < config.min_compaction_lag_ms:
        return None
    old = sum([each.total_bytes for each in in_segments if each.last_offset < clean_to])
    new = sum([each.total_bytes for each in in_segments if each.last_offset >= clean_to]) + waiting_bytes
    is_worthwhile = (
        new > config.min_cleanable_dirty_ratio * (new + old) or age_ms > config.max_compaction_lag_ms
    )
    return every_ms if is_worthwhile else None


class SegmentRoll:
    """The times of the seals that this process made."""

    def __init__(self) -> None:
        self._sealed_ms: dict[LogGroup, int] = {}
        self._blocked_since_ms: dict[LogGroup, int] = {}

    async def seal(self, group: LogGroup, every_ms: int, now_ms: int) -> bool:
        """Seal the group's active segment, unless the last seal was less than `every_ms` ago; returns whether
        it was sealed."""
        full_bytes = group.log.options.segment_bytes
        small = sum([SMALL_FRACTION * segment.file_bytes < full_bytes for segment in group.log.segments()])
        last_ms = self._sealed_ms.get(group)
        min_interval_ms = max(every_ms, SMALL_FILE_MS * (small - MAX_SMALL))
        if last_ms is not None and now_ms - last_ms < min_interval_ms:
            return False
        blocked_since_ms = self._blocked_since_ms.setdefault(group, now_ms)
        try:
            is_sealed = await group.sealer.run(
                SEAL_SECONDS, without_members=now_ms - blocked_since_ms >= MEMBER_TIMEOUT_MS
            )
        except (StorageError, OSError) as error:
            log.warning(
                "log group %d: the active segment cannot be sealed for compaction: %s", group.group_id, error
            )
            return False
        if is_sealed:
            self._sealed_ms[group] = now_ms
            del self._blocked_since_ms[group]
        return is_sealed

    def keep(self, groups: set[LogGroup]) -> None:
        """Removes all groups but these."""
        for table in (self._sealed_ms, self._blocked_since_ms):
            for group in table.keys() - groups:
                del table[group]
