"""Writing what holds of groups once more, so that the files with their older records can go.

Owns: `Rewriting`, which does for `__consumer_offsets` what compaction does in Kafka. Segments mix partitions:
one old commit keeps a whole file. Where sealed files are kept by such records alone, the state of their
partitions is appended again, and the partitions' log starts move up to where that began (the mark).
Invariants: a record written again never follows a newer one of its key. What lies before the mark is
committed before anything is read from `state`; a key appended since, a tombstone too, is noted by the store
and left alone; any other is read and appended in one synchronous step. The log start moves when every key is
behind the mark and committed: readers from the beginning find the newest record of each. A crash before that
leaves records twice, which changes nothing.
Does not: keep records of kinds that `state` does not know, use the space reserved for a full disk, or free
files (retention does, right after). Source: Kafka's LogCleaner, min.cleanable.dirty.ratio.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Set
from typing import Final

from broker.groups.records import group_record, offset_record
from broker.groups.store import BATCH_BYTES, GroupStore
from broker.metadata import CONSUMER_OFFSETS, CONSUMER_OFFSETS_TOPIC_ID
from protocol.records.batch import read_header
from protocol.records.record import BatchBuilder
from storage.group import LogGroup
from storage.log.data_log import SealedSegment
from storage.partition import PartitionLog
from storage.types import StorageError

log = logging.getLogger("lockstep.groups")

RECORDS_PER_STEP: Final = 200
"""Records looked at before others are served: each that is written takes some 18 µs, its replay included."""
GAIN: Final = 2
"""The files must have so many times the bytes that are written for them: at most half more is written in all,
and files of no more than twice what holds are kept."""
RECORD_BYTES: Final = 80
"""A record without its names and metadata, rather too much than too little."""

Place = tuple[str, int]


class Rewriting:
    """Looks over one broker's log groups. Args: stores: one per data log group."""

    def __init__(self, stores: Iterable[GroupStore]) -> None:
        self._stores = list(stores)
        self._is_running = False

    async def enforce(self) -> int:
        """Write again where that lets files go; of how many partitions. Nothing while it is being done."""
        if self._is_running:
            return 0
        self._is_running = True
        try:
            return await self._enforce()
        finally:
            self._is_running = False

    async def _enforce(self) -> int:
        count = 0
        for store in self._stores:
            try:
                count += await _look_after(store)
            except StorageError as error:
                log.warning(
                    "group %d: files with old records of %s are kept for now: %s",
                    store.group.group_id,
                    CONSUMER_OFFSETS,
                    error,
                )
        return count


def pinned(group: LogGroup, own: Set[int]) -> tuple[set[int], int]:
    """Partitions among `own` that alone keep sealed segments from being freed, and these segments' bytes.

    May run in a thread.
    """
    numbers: set[int] = set()
    file_bytes = 0
    for segment in group.log.segments():
        live = _live(group, segment, own)
        if live:
            numbers |= live
            file_bytes += segment.total_bytes
    return numbers, file_bytes


def _live(group: LogGroup, segment: SealedSegment, own: Set[int]) -> set[int]:
    """The partitions with live records in a segment; none where one is not of `own`."""
    live: set[int] = set()
    for share in segment.partitions():
        if share.last_offset >= group.control.log_start(share.partition):
            if share.partition not in own:
                return set()
            live.add(share.partition)
    return live


async def _look_after(store: GroupStore) -> int:
    group = store.group
    own = {
        number
        for number, each in group.partitions.items()
        if each.topic_id == CONSUMER_OFFSETS_TOPIC_ID and each.log_start_offset < each.high_watermark
    }
    if not own or not group.is_leader:
        return 0
    numbers, file_bytes = await asyncio.to_thread(pinned, group, own)
    if not numbers:
        return 0
    store.noted = set()
    try:
        return await _rewrite(store, numbers, file_bytes)
    finally:
        store.noted = None


async def _rewrite(store: GroupStore, numbers: Set[int], file_bytes: int) -> int:
    """From here on the store notes what is appended. Raises StorageError: no log start has moved."""
    group, term = store.group, store.group.term
    marks = {number: group.partitions[number].next_offset for number in sorted(numbers)}
    await group.committed()
    owned, live_bytes = await _owned(store, numbers)
    if live_bytes * GAIN > file_bytes:
        return 0
    if group.log.disk_full and not group.log.room_for(live_bytes):
        log.info("group %d: no room to write %d bytes again", group.group_id, live_bytes)
        return 0
    for number, group_ids in owned.items():
        await _write_again(store, group.partitions[number], group_ids)
    if group.term != term:
        return 0  # what was noted may have been cut off
    await group.advance_log_starts(marks)
    log.info(
        "group %d: %d bytes of %s written again for %d bytes of log files",
        group.group_id,
        live_bytes,
        CONSUMER_OFFSETS,
        file_bytes,
    )
    return len(marks)


async def _owned(store: GroupStore, numbers: Set[int]) -> tuple[dict[int, list[str]], int]:
    """The groups of each of these partitions, and about the bytes of all their records."""
    state = store.state
    owned: dict[int, list[str]] = {}
    live_bytes = looked = 0
    for group_id in list(state.group_ids()):
        partition = store.partition(group_id)
        looked += 1
        if partition is not None and partition.number in numbers:
            owned.setdefault(partition.number, []).append(group_id)
            each_bytes = RECORD_BYTES + len(group_id)
            live_bytes += each_bytes + len(state.group_value(group_id) or b"")
            for (topic, _), committed in list(state.offsets(group_id).items()):
                live_bytes += each_bytes + len(topic) + len(committed.metadata)
                looked += 1
                if looked >= RECORDS_PER_STEP:
                    looked = 0
                    await asyncio.sleep(0)
        if looked >= RECORDS_PER_STEP:
            looked = 0
            await asyncio.sleep(0)
    return owned, live_bytes


async def _write_again(store: GroupStore, partition: PartitionLog, group_ids: Iterable[str]) -> None:
    step = _Step(store, partition)
    for group_id in group_ids:
        # Offsets committed while others are served are noted: these are all that are not.
        for place in (None, *store.state.offsets(group_id)):
            step.take(group_id, place)
            if step.is_over:
                step.write()
                await store.group.committed()
                step = _Step(store, partition)
    step.write()
    await store.group.committed()


class _Step:
    """Records that are read from the state and appended before anybody else has a turn."""

    def __init__(self, store: GroupStore, partition: PartitionLog) -> None:
        self._store = store
        self._partition = partition
        self._builder = BatchBuilder()
        self._looked = 0
        self._has_written = False

    @property
    def is_over(self) -> bool:
        """Is it time to write, and let others have a turn?"""
        return self._has_written or self._looked >= RECORDS_PER_STEP

    def take(self, group_id: str, place: Place | None) -> None:
        """What holds of a group's generation (None) or of one of its offsets, unless it is noted or gone."""
        self._looked += 1
        found = _generation(self._store, group_id) if place is None else _offset(self._store, group_id, place)
        if found is None:
            return
        key, value, time_ms = found
        assert self._store.noted is not None
        if key in self._store.noted:
            return
        builder = self._builder
        if builder.record_count and builder.size_bytes + len(key) + len(value) > BATCH_BYTES:
            self.write()
        self._builder.append(value, key, timestamp_ms=time_ms)

    def write(self) -> None:
        """Append what was taken. Raises as LogGroup.append."""
        builder = self._builder
        if builder.record_count:
            batch = bytearray(builder.build())
            self._store.group.append(self._partition, batch, read_header(batch))
            self._builder = BatchBuilder()
            self._has_written = True


def _generation(store: GroupStore, group_id: str) -> tuple[bytes, bytes, int] | None:
    metadata, value = store.state.group(group_id), store.state.group_value(group_id)
    if metadata is None or value is None:
        return None
    return group_record(group_id, None)[0], value, max(metadata.state_time_ms, 0)


def _offset(store: GroupStore, group_id: str, place: Place) -> tuple[bytes, bytes, int] | None:
    committed = store.state.offsets(group_id).get(place)
    if committed is None:
        return None
    key, value = offset_record(group_id, *place, committed)
    assert value is not None
    return key, value, max(committed.commit_time_ms, 0)
