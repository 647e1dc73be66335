"""Retention deletes records that are too old or too many, and frees their space.

Owns: the rules (`expired_by_size`, `expired_by_time`) and the loop that applies them off the hot path.
By time a record goes as soon as it and all before it are too old, whichever file holds it; by size a
partition loses what a sealed segment holds of it, oldest first, while more than the limit would remain.
Invariants: nothing at or above the high watermark goes; a log start is logged by the group's leader before
a segment is freed. Does not: free a segment that holds a live record of any partition: what is dead in
it goes when it is rewritten (`compaction.py`).
Source: Kafka's UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from lockstep.broker.maintenance.future_records import FutureRecords
from lockstep.broker.metadata.metadata_cache import (
    METADATA_GROUP,
    METADATA_TOPIC_ID,
    MetadataCache,
    Partition,
)
from lockstep.broker.requests.time_slices import TimeSlice
from lockstep.protocol.plural import pluralize
from lockstep.storage.log.batch_reader import BatchLocation
from lockstep.storage.log.index_file import SegmentPartition
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import NotLeader, StorageError

log = logging.getLogger("lockstep.retention")

COMMIT_SECONDS: Final = 10.0
"""The longest wait for the commit of a log start; it may still commit later."""
PARTITIONS_PER_STEP: Final = 50
"""Partitions checked at once on a thread: few enough that others hardly wait."""
FIRST_CHECK_SECONDS: Final = 30.0
"""The first check comes early, as in Kafka: a broker that is restarted often still enforces retention."""


def _key(partition: Partition) -> tuple[int, int]:
    return partition.group.group_id, partition.log.local_id


def expired_by_size(in_segments: Sequence[SegmentPartition], total_bytes: int, retention_bytes: int) -> int:
    """The new log start by size: 0 where nothing is too much.

    `in_segments`: the partition's batches in each sealed segment, oldest first.
    """
    start = 0
    for part in in_segments:
        if total_bytes - part.total_bytes < retention_bytes:
            break
        total_bytes -= part.total_bytes
        start = part.last_offset + 1
    return start


def first_kept_by_time(partition: Partition, now_ms: int, retention_ms: int) -> BatchLocation | None:
    """The first batch that is still young enough; None where there is none. Reads indexes."""
    log_start, end = partition.log.log_start_offset, partition.log.high_watermark
    if log_start >= end:
        return None
    data_log = partition.group.log
    return data_log.first_younger(partition.log.local_id, now_ms - retention_ms, log_start, end)


def expired_by_time(partition: Partition, kept: BatchLocation | None) -> int:
    """The new log start by time, where `kept` is the first batch to be kept."""
    log_start = partition.log.log_start_offset
    return max(log_start, partition.log.high_watermark if kept is None else kept.base_offset)


class Retention:
    """The loop over one broker's topics."""

    def __init__(self, cluster: MetadataCache, clock_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._clock_ms = clock_ms
        self._future_records = FutureRecords(log, "retention by time")

    async def run(self, interval_seconds: float) -> None:
        """Enforce periodically, until cancelled."""
        await asyncio.sleep(min(interval_seconds, FIRST_CHECK_SECONDS))
        while True:
            try:
                await self.enforce(self._clock_ms())
            except (StorageError, OSError) as error:
                log.warning("retention is delayed: %s", error)
            except Exception:  # a group may be closed meanwhile; without this loop the disk fills
                log.exception("retention failed")
            await asyncio.sleep(interval_seconds)

    async def enforce(self, now_ms: int) -> int:
        """Apply every topic's limits once; returns how many partitions lost records."""
        limited = await self._find_limited()
        starts: dict[LogGroup, dict[int, int]] = {}
        for first in range(0, len(limited), PARTITIONS_PER_STEP):
            step = limited[first : first + PARTITIONS_PER_STEP]
            for partition, start in await asyncio.to_thread(self._new_starts, step, now_ms):
                if start > partition.log.log_start_offset:
                    starts.setdefault(partition.group, {})[partition.log.local_id] = start
        self._future_records.keep({_key(each) for each in limited})
        self._advance_metadata_start(starts)
        for group, new_starts in starts.items():
            still_open = {
                local_id: start for local_id, start in new_starts.items() if local_id in group.partitions
            }
            if still_open:
                try:  # its failure must not stop the other groups, or the freeing of segments
                    async with asyncio.timeout(COMMIT_SECONDS):
                        await group.advance_log_starts(still_open)
                except NotLeader:
                    pass  # the new leader does it
                except TimeoutError:
                    log.warning("log group %d: retention is delayed: no majority commits it", group.group_id)
                except StorageError as error:
                    log.warning("log group %d: retention is delayed: %s", group.group_id, error)
        for group in list(self._cluster.groups.values()):
            freed = group.free_deleted_segments()
            if freed:
                log.info("log group %d: %s freed", group.group_id, pluralize(freed, "log file"))
        return sum(len(new_starts) for new_starts in starts.values())

    async def _find_limited(self) -> list[Partition]:
        """The partitions led here that may lose records, looked for in time slices."""
        limited: list[Partition] = []
        time_slice = TimeSlice()
        for topic in self._cluster.topics():
            if time_slice.is_over:
                await asyncio.sleep(0)
                time_slice = TimeSlice()
            config = topic.config
            has_limit = config.retention_ms >= 0 or config.retention_bytes >= 0
            if has_limit and "delete" in config.cleanup_policy:
                limited += [
                    partition
                    for partition in topic.partitions
                    if partition.group.is_leader
                    and partition.log.log_start_offset < partition.log.high_watermark
                ]
        return limited

    def _advance_metadata_start(self, starts: dict[LogGroup, dict[int, int]]) -> None:
        """Checkpoints carry the metadata: its records are needed no longer than the file they are in."""
        group = self._cluster.groups.get(METADATA_GROUP)
        if group is not None and group.is_leader and group.log.segments():
            for partition in group.partitions.values():
                has_records = partition.log_start_offset < partition.high_watermark
                if partition.topic_id == METADATA_TOPIC_ID and has_records:
                    starts.setdefault(group, {})[partition.local_id] = partition.high_watermark

    def _new_starts(self, partitions: Sequence[Partition], now_ms: int) -> list[tuple[Partition, int]]:
        """The new log starts; a partition whose log cannot be read keeps its records and delays no other."""
        starts: list[tuple[Partition, int]] = []
        for partition in partitions:
            try:
                starts.append((partition, self._new_start(partition, now_ms)))
            except (StorageError, OSError) as error:
                name = f"{partition.topic.name}-{partition.index}"
                log.warning("%s: retention is delayed: %s", name, error)
        return starts

    def _new_start(self, partition: Partition, now_ms: int) -> int:
        config = partition.topic.config
        start = partition.log.log_start_offset
        if config.retention_ms >= 0:
            kept = first_kept_by_time(partition, now_ms, config.retention_ms)
            start = max(start, expired_by_time(partition, kept))
            self._future_records.note(partition, kept, now_ms)
        if config.retention_bytes >= 0:
            in_segments, total = partition.group.log.partition_in_segments(partition.log.local_id, start)
            start = max(start, expired_by_size(in_segments, total, config.retention_bytes))
        return min(start, partition.log.high_watermark)
