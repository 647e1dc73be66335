"""Compaction: topics whose newest record of every key is all that has to stay, on every node for itself.

Owns: which partitions are worth a pass now (`planned`), at what pace it runs beside clients (`Pace`), and the
loop. Leaders and followers clean alike: what they do changes nothing that they replicate.

Invariants: a pass never reaches what is young (`min.compaction.lag.ms`), undecided (above the last stable
offset) and never takes the newest batch away; one group is cleaned at a time.
Does not: say which records stay (`storage/cleaning.py`), touch files (`storage/cleaner.py`), or remember how
far a partition has been cleaned (`storage/clean_ends.py`).
Source: Kafka's LogCleanerManager.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.future_records import FutureRecords
from broker.heap import give_memory_back
from broker.metadata import METADATA_GROUP, Cluster, TopicPartition
from broker.rolling import EVER, Rolling, waiting
from storage.cleaner import Wanted, is_half_dead
from storage.group import LogGroup
from storage.log.batch_index import SegmentPartition
from storage.log.reading import BatchPlace
from storage.types import StorageError

log = logging.getLogger("lockstep.compaction")

SLICE_SECONDS: Final = 0.001
"""So long the cleaner computes before it gives way: others wait for the interpreter meanwhile."""
BUSY_PAUSE: Final = 14
"""Beside a loaded broker each slice is followed by a pause so many times as long: 7 % of a core."""
IDLE_PAUSE: Final = 0.5
BUSY_SHARE: Final = 0.02
"""A broker whose other threads take more of a core than this serves somebody: large batches take little of
the processor, and their producers wait for every slice."""
SWITCH_SECONDS: Final = 0.0003
"""While a pass runs others wait so long at most for the interpreter, not the usual 5 ms."""
LOOK_SECONDS: Final = 0.1
"""How often that is measured."""
WARNINGS: Final = 10
"""So many batches of a log group that cannot be cleaned are named in the log; there may be a million."""


class Pace:
    """How fast a pass runs: little of the processor while the broker is busy, and so many bytes a second.

    Called in the cleaner's thread with what was just read or written.
    """

    def __init__(
        self,
        bytes_per_second: float,
        *,
        seconds: Callable[[], float] = time.monotonic,
        own: Callable[[], float] = time.thread_time,
        all_told: Callable[[], float] = time.process_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._seconds, self._own, self._all_told, self._sleep = seconds, own, all_told, sleep
        self._slice_began: float | None = None
        self._bytes = 0
        self._pause: float = BUSY_PAUSE
        self._looked = (0.0, 0.0, 0.0)

    def __call__(self, count: int) -> None:
        self._bytes += count
        now = self._own()
        if self._slice_began is None:  # the first call in its thread
            self._slice_began = now
            self._looked = self._seconds(), now, self._all_told()
        used = now - self._slice_began
        if used < SLICE_SECONDS:
            return
        self._look(now)
        self._sleep(max(used * self._pause, self._bytes / self._bytes_per_second - used))
        self._bytes = 0
        self._slice_began = self._own()

    def _look(self, own: float) -> None:
        now = self._seconds()
        began, own_then, all_then = self._looked
        if now - began >= LOOK_SECONDS:
            others = self._all_told() - all_then - (own - own_then)
            self._pause = BUSY_PAUSE if others > BUSY_SHARE * (now - began) else IDLE_PAUSE
            self._looked = now, own, self._all_told()


class Dirt(NamedTuple):
    """What a pass over a partition would do."""

    partition: TopicPartition
    dirty_offset: int
    end_offset: int
    ratio: float
    """Of its cleanable bytes that are new."""
    oldest_ms: int
    """The time of the first batch that is new."""
    young: BatchPlace | None = None
    """The first batch that min.compaction.lag.ms keeps from being cleaned."""


def planned(
    partition: TopicPartition,
    shares: Sequence[SegmentPartition],
    stable_offset: int,
    clean_to: int,
    now_ms: int,
) -> Dirt:
    """What there is to clean of a partition. May read indexes: for a thread.

    Args:
        stable_offset: its last stable offset, as the loop saw it.
        shares: the partition's parts of the segments that may be cleaned, oldest first.
        clean_to: below this it was cleaned before.
    """
    found, config = partition.log, partition.topic.config
    dirty = max(found.log_start_offset, clean_to)
    end = min(shares[-1].last_offset + 1 if shares else 0, stable_offset, found.high_watermark)
    data_log = partition.group.log
    young: BatchPlace | None = None
    if config.min_compaction_lag_ms > 0 and end > dirty:
        old_ms = now_ms - config.min_compaction_lag_ms + 1
        young = data_log.first_younger(found.number, old_ms, dirty, end)
        end = end if young is None else min(end, young.base_offset)
    new = sum([s.total_bytes for s in shares if s.last_offset >= dirty and s.first_offset < end])
    old = sum([s.total_bytes for s in shares if s.last_offset < dirty])
    if end <= dirty or not new:
        return Dirt(partition, dirty, dirty, 0.0, now_ms, young)
    first = data_log.timestamp_lookup(found.number, EVER, dirty, end)
    oldest_ms = now_ms if first is None or first.max_timestamp < 0 else first.max_timestamp
    return Dirt(partition, dirty, end, new / (new + old), oldest_ms, young)


def is_due(dirt: Dirt, now_ms: int) -> bool:
    """Whether the partition is to be cleaned now."""
    config = dirt.partition.topic.config
    if dirt.end_offset <= dirt.dirty_offset:
        return False
    return (
        dirt.ratio > config.min_cleanable_dirty_ratio
        or now_ms - dirt.oldest_ms > config.max_compaction_lag_ms
    )


class Compaction:
    """The loop over one broker's log groups. Args: new_pace: at what a pass runs, from bytes a second."""

    def __init__(
        self,
        cluster: Cluster,
        clock_ms: Callable[[], int],
        new_pace: Callable[[float], Callable[[int], None]] = Pace,
    ) -> None:
        self._cluster = cluster
        self._clock_ms = clock_ms
        self._new_pace = new_pace
        self._is_running = self._has_rewritten = False
        self._rolling = Rolling()
        self._future = FutureRecords(log, "compaction")
        self._futile: dict[LogGroup, object] = {}
        """What a pass that changed nothing was to do: not again before that is something else."""
        self._named: dict[LogGroup, _Named] = {}
        """Of each group the batches that cannot be cleaned and that the log has named."""

    async def run(self) -> None:
        """Look every so often, until cancelled. What passes leave in the heap is given back once the broker
        is idle: a busy one uses it again, and would wait while it is given back."""
        while True:
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(max(self._cluster.settings.log_cleaner_backoff_ms, 1) / 1000)
            is_busy = time.process_time() - used > BUSY_SHARE * (time.monotonic() - began)
            if self._has_rewritten and not is_busy:
                self._has_rewritten = False
                await asyncio.to_thread(give_memory_back)
            if self._cluster.settings.log_cleaner_enable:
                await self.enforce()

    async def enforce(self) -> int:
        """One look at every group; how many bytes the files on the disk have less."""
        if self._is_running:
            return 0
        self._is_running = True
        saved = 0
        try:
            for number, group in sorted(self._cluster.groups.items()):
                if number != METADATA_GROUP:
                    saved += await self._guarded(group)
        finally:
            self._is_running = False
        return saved

    async def _guarded(self, group: LogGroup) -> int:
        try:
            return await self._clean(group)
        except (StorageError, OSError) as error:
            group.log.reading_failed(error)
            log.warning("log group %d: compaction has to wait: %s", group.group_id, error)
        except Exception:  # a group may be given up in the midst of it; files only grow where this ends
            log.exception("log group %d: compaction failed", group.group_id)
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
        looked, every_ms = await self._look(group, compacted, now_ms)
        if every_ms is not None and await self._rolling.seal(group, every_ms, now_ms):
            looked, _ = await self._look(group, compacted, now_ms)
        due = [dirt for dirt in looked if is_due(dirt, now_ms)]
        to_do = [(dirt.partition.log.number, dirt.dirty_offset, dirt.end_offset) for dirt in due]
        asked = (group.clean_ends.forgotten, to_do)
        idle = not due or self._futile.get(group) == asked
        if idle and not await asyncio.to_thread(is_half_dead, group.log, group.control.log_start):
            return 0
        settings = self._cluster.settings
        pace = self._new_pace(settings.log_cleaner_io_max_bytes_per_second)
        wanted = [_wanted(dirt) for dirt in sorted(due, key=lambda dirt: -dirt.ratio)]
        usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            done = await group.clean(wanted, now_ms, settings.log_cleaner_dedupe_buffer_size, pace)
        finally:
            sys.setswitchinterval(usual)
        if done is None:
            return 0
        self._name(group, done.unreadable, {each.log.number: each for each in compacted})
        self._keep(set(self._cluster.groups.values()))
        freed = group.free_dead_segments()
        self._has_rewritten |= done.segments > 0
        if done.segments or freed or any([done.ends.get(number, 0) > dirty for number, dirty, _ in to_do]):
            self._futile.pop(group, None)
        else:
            self._futile[group] = asked
        log.log(
            logging.INFO if done.segments or freed else logging.DEBUG,
            "log group %d: cleaned %d partitions, %d files are %d bytes smaller, %d are gone",
            group.group_id,
            len(done.ends),
            done.segments,
            done.saved_bytes,
            freed,
        )
        return done.saved_bytes

    async def _look(
        self, group: LogGroup, compacted: Sequence[TopicPartition], now_ms: int
    ) -> tuple[list[Dirt], int | None]:
        stable = [each.log.last_stable_offset for each in compacted]
        return await asyncio.to_thread(self._looked, group, compacted, stable, now_ms)

    def _looked(
        self, group: LogGroup, compacted: Sequence[TopicPartition], stable: Sequence[int], now_ms: int
    ) -> tuple[list[Dirt], int | None]:
        """What there is to clean, and how far apart sealing has to be for what cannot be reached, if any."""
        shares: dict[int, list[SegmentPartition]] = {each.log.number: [] for each in compacted}
        for segment in group.log.cleanable_segments():
            for share in segment.shares(shares):
                shares[share.partition].append(share)
        found = []
        waits: list[int] = []
        for each, stable_offset in zip(compacted, stable, strict=True):
            number = each.log.number
            clean_to = group.clean_ends.of(number)
            found.append(planned(each, shares[number], stable_offset, clean_to, now_ms))
            self._future.note(each, found[-1].young, now_ms)
            every_ms = waiting(each, shares[number], stable_offset, clean_to, now_ms)
            waits += [] if every_ms is None else [every_ms]
        return found, max(min(waits), self._cluster.settings.log_cleaner_backoff_ms) if waits else None

    def _keep(self, groups: set[LogGroup]) -> None:
        """Forget all others."""
        topics = [topic for topic in self._cluster.topics() if topic.config.is_compacted]
        compacted = [partition for topic in topics for partition in topic.partitions]
        self._future.keep({(each.group.group_id, each.log.number) for each in compacted})
        self._rolling.keep(groups)
        self._futile = {each: asked for each, asked in self._futile.items() if each in groups}
        self._named = {each: named for each, named in self._named.items() if each in groups}

    def _name(
        self,
        group: LogGroup,
        unreadable: Sequence[tuple[int, int]],
        partitions: Mapping[int, TopicPartition],
    ) -> None:
        named = self._named.setdefault(group, _Named())
        fresh = [place for place in unreadable if place not in named.places]
        room = WARNINGS - len(named.places)
        for number, offset in fresh[:room]:
            named.places.add((number, offset))
            log.warning(
                "%s-%d: the batch at offset %d cannot be opened, or not be made again: it stays, "
                "one of %d in group %d",
                partitions[number].topic.name,
                partitions[number].index,
                offset,
                len(unreadable),
                group.group_id,
            )
        more = len(fresh[room:])
        if more and more != named.more:  # the same number, pass after pass, is no news
            log.warning("log group %d: and %d more batches that cannot be cleaned", group.group_id, more)
        named.more = more


class _Named:
    """Batches of one log group that the log has named: (partition number, base offset), at most WARNINGS."""

    def __init__(self) -> None:
        self.places: set[tuple[int, int]] = set()
        self.more = 0
        """How many others the last pass met."""


def _wanted(dirt: Dirt) -> Wanted:
    partition = dirt.partition.log
    return Wanted(
        partition.number,
        dirt.dirty_offset,
        dirt.end_offset,
        dirt.partition.topic.config.delete_retention_ms,
        partition.aborted_so_far(),
        partition.high_watermark - 1,
    )
