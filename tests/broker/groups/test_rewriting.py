"""Old records of `__consumer_offsets` are written again, and the files they kept are freed."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.groups import rewriting
from broker.groups.records import CommittedOffset, GroupMetadata, Record, group_record, offset_record
from broker.groups.rewriting import Rewriting
from broker.groups.state import GroupsState
from broker.groups.store import GroupStore
from broker.metadata import CONSUMER_OFFSETS_TOPIC_ID
from broker.server import Broker
from protocol.errors import ErrorCode
from protocol.records.batch import iter_headers
from protocol.records.record import iter_records
from storage.group import LogGroup
from storage.log.data_log import DataLog
from storage.partition import PartitionLog
from storage.types import DirectoryEntry, StorageError, StorageFull
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client, batch

ENTRY = DirectoryEntry(0, 0, 0, 0, 0, 0, 0)
TOPIC_ID = bytes(15) + b"\x77"


@pytest.fixture
async def broker(start_broker: StartBroker) -> AsyncIterator[Broker]:
    """A broker with groups, and a topic `gone` whose records are too old as soon as they are there."""
    started = await start_broker()
    await started.services.groups.ready()
    client = await Client.connect(started.port)
    await client.create("gone", retention_ms="1000")
    await client.create("t")  # offsets of topics that are not there are forgotten at the next start
    await client.close()
    yield started


def store_of(broker: Broker) -> GroupStore:
    (store,) = broker.services.groups.stores.values()
    return store


def offset(value: int, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(value, 3, metadata, 1_700_000_000_000 + value, topic_id=TOPIC_ID)


def generation(number: int) -> GroupMetadata:
    return GroupMetadata("consumer", number, None, None, 1_600_000_000_000 + number, ())


async def write(store: GroupStore, group_id: str, *records: Record) -> ErrorCode:
    done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    store.append(group_id, records, done.set_result)
    return await done


async def fill(client: Client, topic: str = "gone", count: int = 12) -> None:
    """A little more than one file."""
    for _ in range(count):
        assert (await client.produce(topic, batch(b"x" * 100_000))).error_code == 0


def partitions_of(store: GroupStore) -> list[PartitionLog]:
    return [p for p in store.group.partitions.values() if p.topic_id == CONSUMER_OFFSETS_TOPIC_ID]


async def as_read(store: GroupStore) -> GroupsState:
    """What somebody makes of `__consumer_offsets` who reads it from the beginning."""
    found = GroupsState()
    for partition in partitions_of(store):
        at = partition.log_start_offset
        while at < partition.high_watermark:
            read = await store.group.read_cold(partition, at, 1 << 20)
            for buffer in read.buffers:
                data = bytes(buffer)
                for place, header in iter_headers(data):
                    assert header.base_offset >= at, "no gap, nothing twice"
                    at = header.base_offset + header.record_count
                    found.replay(ENTRY, data[place : place + header.total_bytes], 0)
    return found


def ends(store: GroupStore) -> list[tuple[int, int]]:
    return [(partition.log_start_offset, partition.next_offset) for partition in partitions_of(store)]


async def checkpointed(group: LogGroup) -> None:
    """The checkpoint that is being written in a thread, if one is, is through: files below it may go."""
    if group._checkpointing is not None:
        await group._checkpointing


def copy_of(state: GroupsState) -> GroupsState:
    copy = GroupsState()
    copy.restore(state.snapshot(0))
    assert copy == state
    return copy


async def test_files_are_freed_round_after_round(broker: Broker, start_broker: StartBroker) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    await write(
        store, "quiet", group_record("quiet", generation(7)), offset_record("quiet", "t", 0, offset(5))
    )
    counts: list[int] = []
    for number in range(20):
        for each in range(10):
            group_id = f"g{each}"
            place = number % 4 if each else 0
            record = offset_record(group_id, "t", place, offset(number, "m" * each))
            await write(store, group_id, group_record(group_id, generation(number)), record)
        if number == 10:
            await write(store, "g3", group_record("g3", None), offset_record("g3", "t", 0, None))
        before = copy_of(store.state)
        await fill(client)
        await checkpointed(store.group)
        await broker.enforce_retention()
        counts.append(len(store.group.log.segments()))
        assert store.state == before
        assert await as_read(store) == before
        assert store.noted is None
    assert max(counts) <= 4, counts
    oldest = store.group.log.segments()[0].sequence
    assert oldest > 10
    await client.close()
    last = copy_of(store.state)
    assert last.offsets("quiet") == {("t", 0): offset(5)} and last.group("quiet") == generation(7)
    await broker.stop()
    again = store_of(await start_broker())
    assert again.state == last
    assert await as_read(again) == last


async def test_values_and_times_stay(broker: Broker) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    old = CommittedOffset(9, -1, "old", 1_500_000_000_000, 1_900_000_000_000)
    records = [
        group_record("g", generation(1)),
        offset_record("g", "t", 0, offset(5)),
        offset_record("g", "t", 1, old),
        offset_record("g", "t", 2, offset(6)),
    ]
    await write(store, "g", *records, offset_record("g", "t", 2, None))
    await fill(client)
    await broker.enforce_retention()
    await client.close()
    partition = store.partition("g")
    assert partition is not None and partition.log_start_offset == 5
    (buffer,) = store.group.read(partition, 5, 1 << 20).buffers
    found = list(iter_records(buffer))
    assert [(each.key, each.value) for each in found] == records[:3]
    times = [generation(1).state_time_ms, offset(5).commit_time_ms, old.commit_time_ms]
    assert [each.timestamp for each in found] == times
    # A second time there is nothing to do.
    assert await Rewriting([store]).enforce() == 0
    assert partition.next_offset == 8


async def test_files_with_other_live_records_are_left_alone(broker: Broker) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    await client.create("kept", retention_ms="-1")
    await write(store, "g", offset_record("g", "t", 0, offset(5)))
    await client.produce("kept", batch(b"for ever"))
    before = ends(store)
    await fill(client)
    await broker.enforce_retention()
    assert store.group.log.segments() and ends(store) == before
    await client.close()


async def test_only_where_it_pays(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    metadata = "m" * 4000
    for index in range(150):  # 600 KB of what holds
        await write(store, "g", offset_record("g", "t", index, offset(index, metadata)))
    await fill(client, count=6)
    before = ends(store)
    await broker.enforce_retention()
    assert len(store.group.log.segments()) == 1 and ends(store) == before
    await fill(client, count=8)
    await broker.enforce_retention()
    partition = store.partition("g")
    assert partition is not None
    # The second file alone had nothing of the group: what it holds is too much for the first.
    assert ends(store) == before
    monkeypatch.setattr(rewriting, "GAIN", 1)
    await broker.enforce_retention()
    assert (partition.log_start_offset, partition.next_offset) == (150, 300)
    assert await as_read(store) == store.state
    await client.close()


async def test_no_step_is_long(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    for group_id in ("a", "b"):
        records = [offset_record(group_id, "t", index, offset(index)) for index in range(1_300)]
        await write(store, group_id, *records)
    await fill(client)
    counts: list[int] = []
    appended = 0
    append, committed = LogGroup.append, LogGroup.committed

    def counted(self: LogGroup, partition: PartitionLog, data: bytearray, header: Any, **how: Any) -> int:
        nonlocal appended
        appended += header.record_count
        return append(self, partition, data, header, **how)

    async def others(self: LogGroup) -> None:
        nonlocal appended
        counts.append(appended)
        appended = 0
        await committed(self)

    monkeypatch.setattr(LogGroup, "append", counted)
    monkeypatch.setattr(LogGroup, "committed", others)
    assert await Rewriting([store]).enforce() == 0  # what is gone is not known yet to be gone
    await broker.enforce_retention()
    assert sum(counts) >= 2_600 and max(counts) <= rewriting.RECORDS_PER_STEP
    assert await as_read(store) == store.state
    await client.close()


async def test_large_records_have_batches_of_their_own(broker: Broker) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    await fill(client, count=9)
    large = [offset_record("g", "t", index, offset(index, "m" * 30_000)) for index in range(12)]
    await write(store, "g", *large)
    await fill(client)
    await broker.enforce_retention()
    partition = store.partition("g")
    assert partition is not None and partition.log_start_offset == 12
    assert await as_read(store) == store.state
    await client.close()


class Rival:
    """Commits, deletes and restores at every step of a rewriting, and knows what was said last."""

    def __init__(self, store: GroupStore, seed: int) -> None:
        self.store = store
        self.said = GroupsState()
        self.random = random.Random(seed)
        self.value = 0
        self.errors: list[ErrorCode] = []

    def act(self, count: int) -> None:
        for _ in range(count):
            self.value += 1
            group_id = f"g{self.random.randrange(6)}"
            records: list[Record] = []
            for _ in range(self.random.randrange(1, 4)):
                index = self.random.randrange(40)
                is_end = self.random.random() < 0.3
                records.append(offset_record(group_id, "t", index, None if is_end else offset(self.value)))
            if self.random.random() < 0.4:
                is_end = self.random.random() < 0.5
                records.append(group_record(group_id, None if is_end else generation(self.value)))
            self.store.append(group_id, records, self.errors.append)
            for key, value in records:
                self.said._apply(key, value)

    async def act_for_ever(self) -> None:
        """Again and again while something is being written again."""
        while True:
            if self.store.noted is not None and self.random.random() < 0.2:
                self.act(1)
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(8))
async def test_commits_and_ends_meanwhile(
    broker: Broker, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    monkeypatch.setattr(rewriting, "RECORDS_PER_STEP", 3)
    rival = Rival(store, seed)
    rival.act(200)
    committed = LogGroup.committed

    async def raced(self: LogGroup) -> None:
        rival.act(rival.random.randrange(3))
        if rival.random.random() < 0.5:
            await asyncio.sleep(0)
        await committed(self)
        rival.act(rival.random.randrange(3))

    for _ in range(3):
        await fill(client)
        rival.act(3)  # under way when it begins
        with monkeypatch.context() as racing:
            racing.setattr(LogGroup, "committed", raced)
            acting = asyncio.ensure_future(rival.act_for_ever())
            assert await broker.enforce_retention() == 1
            acting.cancel()
        await store.group.committed()
        assert set(rival.errors) == {ErrorCode.NONE}
        assert store.state == rival.said
        assert await as_read(store) == rival.said
    assert any(start for start, _ in ends(store))
    await client.close()
    await broker.stop()
    again = store_of(await start_broker())
    assert again.state == rival.said
    assert await as_read(again) == rival.said


async def test_what_is_under_way_when_it_begins(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    await write(store, "g", offset_record("g", "t", 0, offset(1)), offset_record("g", "t", 1, offset(1)))
    await fill(client)
    marked: list[int] = []

    async def commit_first(work: Any, group: LogGroup, own: set[int]) -> Any:
        found = work(group, own)
        records = [offset_record("g", "t", 0, offset(2)), offset_record("g", "t", 1, None)]
        store.append("g", records, marked.append)
        return found

    monkeypatch.setattr(broker._retention, "_before_freeing", None)
    await broker.enforce_retention()
    monkeypatch.setattr(asyncio, "to_thread", commit_first)
    assert await Rewriting([store]).enforce() == 1
    partition = store.partition("g")
    assert marked == [ErrorCode.NONE] and partition is not None
    assert (partition.log_start_offset, partition.next_offset) == (4, 5)
    assert (await as_read(store)).offsets("g") == {("t", 0): offset(2)} == store.state.offsets("g")
    await client.close()


async def test_a_refused_commit_meanwhile_is_no_newer_record(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    await write(store, "g", offset_record("g", "t", 0, offset(1)))
    await fill(client)
    append, committed = LogGroup.append, LogGroup.committed
    answers: list[ErrorCode] = []

    def refused(*_: Any, **__: Any) -> int:
        raise StorageFull("for a moment")

    async def raced(self: LogGroup) -> None:
        await committed(self)
        if store.noted is not None and not answers:
            monkeypatch.setattr(LogGroup, "append", refused)
            assert await write(store, "g", offset_record("g", "t", 0, offset(2))) is not ErrorCode.NONE
            answers.append(ErrorCode.NONE)
            monkeypatch.setattr(LogGroup, "append", append)

    monkeypatch.setattr(LogGroup, "committed", raced)
    await broker.enforce_retention()
    partition = store.partition("g")
    assert answers and partition is not None and partition.log_start_offset == 1
    assert (await as_read(store)).offsets("g") == {("t", 0): offset(1)}
    await client.close()


@pytest.mark.parametrize("is_through", [False, True])
async def test_a_crash(
    broker: Broker,
    start_broker: StartBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_through: bool,
) -> None:
    """Between what is written again and the log start, and right after the log start."""
    store = store_of(broker)
    client = await Client.connect(broker.port)
    rival = Rival(store, 1)
    rival.act(60)
    await fill(client)
    advance = LogGroup.advance_log_starts
    left = tmp_path / "left"

    async def crash(self: LogGroup, offsets: dict[int, int]) -> None:
        if store.noted is None:
            await advance(self, offsets)
            return
        if is_through:
            await advance(self, offsets)
        for group in broker.groups.values():  # nothing is to change while it is copied
            await checkpointed(group)
            group.log.prepare_now()
        shutil.copytree(broker.settings.directory, left)
        raise StorageError("a crash")

    monkeypatch.setattr(LogGroup, "advance_log_starts", crash)
    await broker.enforce_retention()
    monkeypatch.undo()
    assert store.noted is None and store.state == rival.said
    await client.close()
    again = await start_broker(left)
    found = store_of(again)
    assert any(start for start, _ in ends(found)) is is_through
    assert found.state == rival.said
    assert await as_read(found) == rival.said
    # The next round does what this one could not.
    await again.enforce_retention()
    assert any(start for start, _ in ends(found))
    assert await as_read(found) == rival.said == found.state


async def test_a_full_disk(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    for index in range(30):
        await write(store, "g", offset_record("g", "t", index, offset(index)))
    await fill(client)
    partition = store.partition("g")
    assert partition is not None
    monkeypatch.setattr(rewriting, "RECORDS_PER_STEP", 10)
    with monkeypatch.context() as full:
        full.setattr(DataLog, "disk_full", property(lambda self: True))
        # There is room for each step, not for all of them: none is taken.
        full.setattr(DataLog, "room_for", lambda self, size, *_, reserved=False: reserved or size < 1_500)
        await broker.enforce_retention()
        assert (partition.log_start_offset, partition.next_offset) == (0, 30)
    # It becomes full meanwhile: some records are there twice.
    append = LogGroup.append
    with monkeypatch.context() as full:

        def refuse(self: LogGroup, to: PartitionLog, data: bytearray, header: Any, **how: Any) -> int:
            if to is partition and partition.next_offset >= 49:
                raise StorageFull("no room")
            return append(self, to, data, header, **how)

        full.setattr(LogGroup, "append", refuse)
        await broker.enforce_retention()
    assert (partition.log_start_offset, partition.next_offset) == (0, 49)
    assert store.noted is None
    assert await as_read(store) == store.state
    # There is room in the open file, if not for another one.
    with monkeypatch.context() as full:
        full.setattr(DataLog, "disk_full", property(lambda self: True))
        await broker.enforce_retention()
    assert (partition.log_start_offset, partition.next_offset) == (49, 79)
    assert await as_read(store) == store.state
    await client.close()


async def test_two_at_once(broker: Broker) -> None:
    store = store_of(broker)
    client = await Client.connect(broker.port)
    await write(store, "g", offset_record("g", "t", 0, offset(1)))
    await fill(client)
    await asyncio.gather(*(broker.enforce_retention() for _ in range(3)))
    assert (1, 2) in ends(store)
    await client.close()
