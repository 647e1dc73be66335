"""Compaction keeps at least the newest record of every key, on every node independently.

Owns: the choice of partitions to clean now (`plan_cleaning`), the speed of a pass beside clients
(`IoThrottle`), and the loop. Leaders and followers clean alike: cleaning changes nothing that they replicate.

Invariants: a pass never reaches what is young (`min.compaction.lag.ms`), undecided (above the last stable
offset) and never takes the newest batch away; one group is cleaned at a time. Does not: decide which records
stay (`storage/compaction_rules.py`), touch files (`storage/compaction_pass.py`), or remember how far a
partition has been cleaned (`storage/compaction_progress.py`). Source: Kafka's LogCleanerManager.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from lockstep.broker.maintenance.future_records import FutureRecords
from lockstep.broker.maintenance.segment_roll import ANY_TIME, SegmentRoll, roll_interval_ms
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache, Partition
from lockstep.broker.process.heap import trim_heap
from lockstep.storage.compaction_pass import CompactionTarget, is_half_dead
from lockstep.storage.log.batch_reader import BatchLocation
from lockstep.storage.log.index_file import SegmentPartition
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import StorageError

log = logging.getLogger("lockstep.compaction")

SLICE_SECONDS: Final = 0.001
"""The cleaner yields after so long: other threads wait for the interpreter meanwhile."""
BUSY_PAUSE: Final = 14
"""While the broker is busy each slice is followed by a pause this many times as long: 7 % of a core."""
IDLE_PAUSE: Final = 0.5
BUSY_SHARE: Final = 0.02
"""A broker whose other threads take more of a core than this serves clients: large batches take little of the
processor, and their producers wait for every slice."""
SWITCH_SECONDS: Final = 0.0003
"""The longest time that other threads wait for the interpreter during a pass, instead of the usual 5 ms."""
MEASURE_SECONDS: Final = 0.1
"""The interval of these measurements."""
MAX_WARNINGS: Final = 10
"""Unreadable batches of a log group that are named in the log; there may be a million."""


class IoThrottle:
    """Limits the speed of a pass: little processor time while the broker is busy, and bytes a second.

    Called in the cleaner's thread with what was just read or written.
    """

    def __init__(
        self,
        bytes_per_second: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        thread_time: Callable[[], float] = time.thread_time,
        process_time: Callable[[], float] = time.process_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic, self._thread_time, self._process_time, self._sleep = (
            monotonic,
            thread_time,
            process_time,
            sleep,
        )
        self._slice_began: float | None = None
        self._bytes = 0
        self._pause: float = BUSY_PAUSE
        self._last_measurement = (0.0, 0.0, 0.0)

    def __call__(self, count: int) -> None:
        self._bytes += count
        now = self._thread_time()
        if self._slice_began is None:  # the first call in its thread
            self._slice_began = now
            self._last_measurement = self._monotonic(), now, self._process_time()
        used = now - self._slice_began
        if used < SLICE_SECONDS:
            return
        self._measure(now)
        self._sleep(max(used * self._pause, self._bytes / self._bytes_per_second - used))
        self._bytes = 0
        self._slice_began = self._thread_time()

    def _measure(self, thread_time: float) -> None:
        now = self._monotonic()
        began, own_then, all_then = self._last_measurement
        if now - began >= MEASURE_SECONDS:
            others = self._process_time() - all_then - (thread_time - own_then)
            self._pause = BUSY_PAUSE if others > BUSY_SHARE * (now - began) else IDLE_PAUSE
            self._last_measurement = now, thread_time, self._process_time()


class LogToClean(NamedTuple):
    """A partition and the range that a pass over it would clean."""

    partition: Partition
    dirty_offset: int
    end_offset: int
    ratio: float
    """The share of its cleanable bytes that are new."""
    oldest_ms: int
    """The time of the first batch that is new."""
    too_young: BatchLocation | None = None
    """The first batch that min.compaction.lag.ms keeps from being cleaned."""


def plan_cleaning(
    partition: Partition,
    in_segments: Sequence[SegmentPartition],
    stable_offset: int,
    clean_to: int,
    now_ms: int,
) -> LogToClean:
    """The range of a partition to be cleaned. May read indexes: call it on a thread.

    Args:
        stable_offset: its last stable offset, as the loop saw it.
        in_segments: the partition's batches in each segment that may be cleaned, oldest first.
        clean_to: below this it was cleaned before.
    """
    found, config = partition.log, partition.topic.config
    dirty = max(found.log_start_offset, clean_to)
    end = min(in_segments[-1].last_offset + 1 if in_segments else 0, stable_offset, found.high_watermark)
    data_log = partition.group.log
    too_young: BatchLocation | None = None
    if config.min_compaction_lag_ms > 0 and end > dirty:
        old_ms = now_ms - config.min_compaction_lag_ms + 1
        too_young = data_log.first_younger(found.local_id, old_ms, dirty, end)
        end = end if too_young is None else min(end, too_young.base_offset)
    new = sum([s.total_bytes for s in in_segments if s.last_offset >= dirty and s.first_offset < end])
    old = sum([s.total_bytes for s in in_segments if s.last_offset < dirty])
    if end <= dirty or not new:
        return LogToClean(partition, dirty, dirty, 0.0, now_ms, too_young)
    first = data_log.timestamp_lookup(found.local_id, ANY_TIME, dirty, end)
    oldest_ms = now_ms if first is None or first.max_timestamp < 0 else first.max_timestamp
    return LogToClean(partition, dirty, end, new / (new + old), oldest_ms, too_young)


def is_due(log_to_clean: LogToClean, now_ms: int) -> bool:
    """True if the partition is to be cleaned now."""
    config = log_to_clean.partition.topic.config
    if log_to_clean.end_offset <= log_to_clean.dirty_offset:
        return False
    return (
        log_to_clean.ratio > config.min_cleanable_dirty_ratio
        or now_ms - log_to_clean.oldest_ms > config.max_compaction_lag_ms
    )


@contextmanager
def _short_switches() -> Iterator[None]:
    """While a pass runs others wait less for the interpreter."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


class Compaction:
    """The loop over one broker's log groups. Args: new_throttle: makes a throttle from bytes a second."""

    def __init__(
        self,
        cluster: MetadataCache,
        clock_ms: Callable[[], int],
        new_throttle: Callable[[float], Callable[[int], None]] = IoThrottle,
    ) -> None:
        self._cluster = cluster
        self._clock_ms = clock_ms
        self._new_throttle = new_throttle
        self._is_running = self._has_rewritten = False
        self._segment_roll = SegmentRoll()
        self._future_records = FutureRecords(log, "compaction")
        self._fruitless: dict[LogGroup, object] = {}
        """The task of a pass that changed nothing, by log group: it is not repeated before the task
        changes."""
        self._logged_batches: dict[LogGroup, _LoggedBatches] = {}
        """The unreadable batches that the log has named, by log group."""

    async def run(self) -> None:
        """Run passes periodically, until cancelled. Free heap pages return to the system once the broker is
        idle: a busy one uses them again, and would wait meanwhile."""
        while True:
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(max(self._cluster.settings.log_cleaner_backoff_ms, 1) / 1000)
            is_busy = time.process_time() - used > BUSY_SHARE * (time.monotonic() - began)
            if self._has_rewritten and not is_busy:
                self._has_rewritten = False
                await asyncio.to_thread(trim_heap)
            if self._cluster.settings.log_cleaner_enable:
                await self.enforce()

    async def enforce(self) -> int:
        """Check every group once; returns how many bytes were freed on the disk."""
        if self._is_running:
            return 0
        self._is_running = True
        saved = 0
        try:
            for group_id, group in sorted(self._cluster.groups.items()):
                if group_id != METADATA_GROUP:
                    saved += await self._clean_guarded(group)
        finally:
            self._is_running = False
        return saved

    async def _clean_guarded(self, group: LogGroup) -> int:
        """Joins also where cleaning failed: a segment that no node can repair must not stop all others
        small."""
        saved = await self._run_guarded(group, "compaction", self._clean)
        await self._run_guarded(group, "joining small segments", self._join)
        return saved

    async def _run_guarded(
        self, group: LogGroup, what: str, run: Callable[[LogGroup], Coroutine[object, object, int]]
    ) -> int:
        """The bytes it saved; 0 where it failed, which is logged."""
        try:
            return await run(group)
        except (StorageError, OSError) as error:
            group.log.reading_failed(error)
            log.warning("log group %d: %s is delayed: %s", group.group_id, what, error)
        except Exception:  # a group may be closed meanwhile; without this loop files would only grow
            log.exception("log group %d: %s failed", group.group_id, what)
        return 0

    async def _clean(self, group: LogGroup) -> int:
        now_ms = self._clock_ms()
        compacted = [
            partition
            for topic in self._cluster.topics()
            if topic.config.is_compacted
            for partition in topic.partitions
            if partition.group is group
        ]
        planned, every_ms = await self._plan(group, compacted, now_ms)
        if every_ms is not None and await self._segment_roll.seal(group, every_ms, now_ms):
            planned, _ = await self._plan(group, compacted, now_ms)
        due = [log_to_clean for log_to_clean in planned if is_due(log_to_clean, now_ms)]
        ranges = [
            (log_to_clean.partition.log.local_id, log_to_clean.dirty_offset, log_to_clean.end_offset)
            for log_to_clean in due
        ]
        key = (group.compaction_progress.resets, ranges)
        has_nothing = not due or self._fruitless.get(group) == key
        if has_nothing and not await asyncio.to_thread(is_half_dead, group.log, group.control.log_start):
            return 0
        settings = self._cluster.settings
        throttle = self._new_throttle(settings.log_cleaner_io_max_bytes_per_second)
        tasks = [
            _cleaning_task(log_to_clean)
            for log_to_clean in sorted(due, key=lambda log_to_clean: -log_to_clean.ratio)
        ]
        with _short_switches():
            result = await group.clean(tasks, now_ms, settings.log_cleaner_dedupe_buffer_size, throttle)
        if result is None:
            return 0
        self._log_unreadable(group, result.unreadable, {each.log.local_id: each for each in compacted})
        self._forget_others(set(self._cluster.groups.values()))
        freed = group.free_deleted_segments()
        self._has_rewritten |= result.segments > 0
        if (
            result.segments
            or freed
            or any([result.ends.get(local_id, 0) > dirty for local_id, dirty, _ in ranges])
        ):
            self._fruitless.pop(group, None)
        else:
            self._fruitless[group] = key
        log.log(
            logging.INFO if result.segments or freed else logging.DEBUG,
            "log group %d: cleaned %d partitions, %d segments are %d bytes smaller, %d were freed",
            group.group_id,
            len(result.ends),
            result.segments,
            result.saved_bytes,
            freed,
        )
        return result.saved_bytes

    async def _join(self, group: LogGroup) -> int:
        """Joins the files that are small now. Returns 0, as joins save hardly any bytes."""
        if not await asyncio.to_thread(group.log.has_small_neighbours):
            return 0
        throttle = self._new_throttle(self._cluster.settings.log_cleaner_io_max_bytes_per_second)
        with _short_switches():
            fewer = await group.join_small(throttle)
        if fewer:
            self._has_rewritten = True
            log.info("log group %d: small segments were joined, there are %d fewer", group.group_id, fewer)
        return 0

    async def _plan(
        self, group: LogGroup, compacted: Sequence[Partition], now_ms: int
    ) -> tuple[list[LogToClean], int | None]:
        stable = [each.log.last_stable_offset for each in compacted]
        return await asyncio.to_thread(self._plan_in_thread, group, compacted, stable, now_ms)

    def _plan_in_thread(
        self, group: LogGroup, compacted: Sequence[Partition], stable: Sequence[int], now_ms: int
    ) -> tuple[list[LogToClean], int | None]:
        """The ranges to clean, and the interval at which segments must be sealed for the rest; None for
        none."""
        in_segments: dict[int, list[SegmentPartition]] = {each.log.local_id: [] for each in compacted}
        for segment in group.log.cleanable_segments():
            for part in segment.partitions_among(in_segments):
                in_segments[part.local_id].append(part)
        found = []
        intervals_ms: list[int] = []
        for each, stable_offset in zip(compacted, stable, strict=True):
            local_id = each.log.local_id
            clean_to = group.compaction_progress.of(local_id)
            found.append(plan_cleaning(each, in_segments[local_id], stable_offset, clean_to, now_ms))
            self._future_records.note(each, found[-1].too_young, now_ms)
            every_ms = roll_interval_ms(each, in_segments[local_id], stable_offset, clean_to, now_ms)
            intervals_ms += [] if every_ms is None else [every_ms]
        if not intervals_ms:
            return found, None
        return found, max(min(intervals_ms), self._cluster.settings.log_cleaner_backoff_ms)

    def _forget_others(self, groups: set[LogGroup]) -> None:
        """Forget the log groups and partitions that this node no longer has or compacts."""
        topics = [topic for topic in self._cluster.topics() if topic.config.is_compacted]
        compacted = [partition for topic in topics for partition in topic.partitions]
        self._future_records.keep({(each.group.group_id, each.log.local_id) for each in compacted})
        self._segment_roll.keep(groups)
        self._fruitless = {each: key for each, key in self._fruitless.items() if each in groups}
        self._logged_batches = {
            each: logged for each, logged in self._logged_batches.items() if each in groups
        }

    def _log_unreadable(
        self,
        group: LogGroup,
        unreadable: Sequence[tuple[int, int]],
        partitions: Mapping[int, Partition],
    ) -> None:
        logged = self._logged_batches.setdefault(group, _LoggedBatches())
        unlogged = [place for place in unreadable if place not in logged.batches]
        warnings_left = MAX_WARNINGS - len(logged.batches)
        for local_id, offset in unlogged[:warnings_left]:
            logged.batches.add((local_id, offset))
            log.warning(
                "%s-%d: compaction keeps the batch at offset %d, which it cannot decompress or rebuild: "
                "one of %d in group %d",
                partitions[local_id].topic.name,
                partitions[local_id].index,
                offset,
                len(unreadable),
                group.group_id,
            )
        more = len(unlogged[warnings_left:])
        if more and more != logged.omitted_count:  # the same number, pass after pass, is no news
            log.warning("log group %d: compaction cannot clean %d more batches", group.group_id, more)
        logged.omitted_count = more


class _LoggedBatches:
    """Batches of one log group that the log has named: (local id, base offset), at most
    MAX_WARNINGS."""

    def __init__(self) -> None:
        self.batches: set[tuple[int, int]] = set()
        self.omitted_count = 0
        """The number of others that the last pass met."""


def _cleaning_task(log_to_clean: LogToClean) -> CompactionTarget:
    partition = log_to_clean.partition.log
    return CompactionTarget(
        partition.local_id,
        log_to_clean.dirty_offset,
        log_to_clean.end_offset,
        log_to_clean.partition.topic.config.delete_retention_ms,
        partition.aborted_so_far(),
        partition.high_watermark - 1,
    )
