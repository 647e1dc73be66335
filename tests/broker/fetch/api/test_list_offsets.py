"""ListOffsets and OffsetForLeaderEpoch: ends, times, epochs."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockstep.broker.fetch.api.list_offsets import ListOffsets, first_record_at
from lockstep.broker.requests import sliced_response, time_slices
from lockstep.broker.requests.request_context import ClientContext, await_response
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lockstep.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lockstep.protocol.records.batch import set_log_append_time
from lockstep.protocol.records.batch_filter import filter_batch, open_batch
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.storage.aborted_transactions import PartitionTransactions
from lockstep.storage.log.file_system import RealFileSystem
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import OffsetOutOfRange, ReadResult
from tests.broker.conftest import StartBroker
from tests.broker.fake_partitions import FakeCluster, header_of
from tests.broker.waiting import until
from tests.broker.wire import Client, batch
from tests.storage.log.memory_log import NoDamage
from tests.support.cases import each_case


async def ask(
    client: Client, timestamp: int, version: int = 11, topic: str = "t", partition: int = 0, **more: Any
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **more)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    response = await client.call(request, version)
    answer: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return answer


@pytest.mark.parametrize("version", range(1, 12))
async def test_ends_in_every_version(client: Client, version: int) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a", b"b", timestamp_ms=50))
    latest = await ask(client, -1, version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 2, -1)
    earliest = await ask(client, -2, version)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 0, -1)
    by_time = await ask(client, 51, version)
    assert (by_time.error_code, by_time.offset, by_time.timestamp) == (0, 1, 51)
    assert latest.leader_epoch == earliest.leader_epoch == by_time.leader_epoch == (1 if version >= 4 else -1)


async def test_costs_no_write_and_no_flush(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark asks twice for every 500 records that it reads."""
    calls: Counter[str] = Counter()
    for name in ("pwritev", "fdatasync"):

        def counted(*words: Any, name: str = name) -> Any:
            calls[name] += 1
            return getattr(os, name)(*words)

        monkeypatch.setattr(RealFileSystem, name, staticmethod(counted))
    broker = await start_broker(log_flush="always")
    client = await Client.connect(broker.port)
    try:
        await client.create("t")
        await client.produce("t", batch(b"a", b"b", timestamp_ms=50))
        assert min(calls["pwritev"], calls["fdatasync"]) > 0, "a produce is seen"
        pools = [group.log._pool for group in broker.groups.values()]
        await until(lambda: not any(pool.wants_more() for pool in pools), 60)  # what a start prepares
        await asyncio.sleep(0.2)
        calls.clear()
        for timestamp, expected in [(-1, 2), (-2, 0), (51, 1), (-3, 1)] * 250:
            assert (await ask(client, timestamp)).offset == expected
        assert calls == {}
        await client.produce("t", batch(b"c"))
        assert calls["fdatasync"] > 0
    finally:
        await client.close()


async def test_special_times(client: Client) -> None:
    await client.create("t")
    empty = await ask(client, -3)
    assert (empty.offset, empty.timestamp, empty.leader_epoch) == (-1, -1, -1)
    await client.produce("t", batch(b"a", b"b", timestamp_ms=90))
    await client.produce("t", batch(b"c", timestamp_ms=10))
    newest = await ask(client, -3)
    assert (newest.offset, newest.timestamp) == (1, 91)
    assert (await ask(client, -4)).offset == 0
    for nothing in (-5, -6):
        found = await ask(client, nothing)
        assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (0, -1, -1, -1)


async def test_by_time(client: Client) -> None:
    await client.create("t")
    for start in (1_000, 5_000, 3_000, 9_000):
        await client.produce("t", batch(b"a", b"b", b"c", timestamp_ms=start, codec=Codec.ZSTD))
    found = {time: await ask(client, time) for time in (0, 1_001, 1_003, 5_002, 5_003, 9_002, 9_003)}
    assert {time: (each.offset, each.timestamp) for time, each in found.items()} == {
        0: (0, 1_000),
        1_001: (1, 1_001),
        1_003: (3, 5_000),
        5_002: (5, 5_002),
        5_003: (9, 9_000),
        9_002: (11, 9_002),
        9_003: (-1, -1),
    }


async def test_by_time_after_the_log_start(broker: Broker, client: Client) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a", b"b", b"c", timestamp_ms=100))
    partition = broker.assembly.cluster.partition("t", 0)
    assert partition is not None
    await broker.groups[1].advance_log_starts({partition.log.local_id: 2})
    assert (await ask(client, 0)).offset == 2
    assert (await ask(client, -2)).offset == 2


async def test_what_lies_before_the_log_start_is_no_answer_for_what_follows(
    client: Client, broker: Broker
) -> None:
    await client.create("t")
    builder = BatchBuilder()
    for timestamp in (100, 900, 300):
        builder.append(b"v", timestamp_ms=timestamp)
    await client.produce("t", builder.build())
    partition = broker.assembly.cluster.partition("t", 0)
    assert partition is not None
    await broker.groups[1].advance_log_starts({partition.log.local_id: 2})
    assert (await ask(client, 500)).offset == -1
    await client.produce("t", batch(b"later", timestamp_ms=600))
    found = await ask(client, 500)
    assert (found.offset, found.timestamp) == (3, 600)
    assert (await ask(client, 200)).offset == 2
    newest = await ask(client, -3)
    assert newest.offset >= 2


def test_a_header_that_promises_too_much_is_answered_with_its_batch() -> None:
    lying = bytearray(batch(b"a", b"b", timestamp_ms=10))
    lying[35:43] = (10**9).to_bytes(8, "big")  # max timestamp; the search does not check the CRC again
    assert first_record_at(lying, 500, 0, 1 << 20) == (0, 10**9)


def test_log_append_time_has_one_time_for_all() -> None:
    stamped = bytearray(batch(b"a", b"b", timestamp_ms=10))
    set_log_append_time(stamped, 777)
    assert first_record_at(stamped, 500, 1, 1 << 20) == (1, 777)
    builder = BatchBuilder()
    for at in range(4):
        builder.append(b"v", b"k%d" % at, timestamp_ms=10)
    stamped = bytearray(builder.build())
    set_log_append_time(stamped, 777)
    was = open_batch(stamped)
    left = filter_batch(was, was.spans[1::2]).batch
    found = [first_record_at(left, 777, start, 1 << 20) for start in range(4)]
    assert found == [(1, 777), (1, 777), (3, 777), (3, 777)]


def test_a_bomb_is_not_expanded() -> None:
    bomb = batch(b"\0" * 10_000_000, timestamp_ms=10, codec=Codec.ZSTD)
    assert len(bomb) < 10_000
    assert first_record_at(bomb, 0, 0, 1 << 20) == (0, 10)


def test_records_that_cannot_be_read() -> None:
    broken = bytearray(batch(b"abc", timestamp_ms=10))
    broken[61] = 0x7F
    assert first_record_at(broken, 5, 0, 1 << 20) == (0, 10)


@each_case("delta_at", [63, 64])  # the record's timestamp delta, its offset delta
def test_records_outside_their_batch_are_not_believed(delta_at: int) -> None:
    """What a client is told must be in the log, and fit the answer's fields."""
    lying = bytearray(batch(b"a", timestamp_ms=10))
    far = b"\x80" * 8 + b"\x01"  # 2**55
    lying[delta_at : delta_at + 1] = far
    lying[61] += 2 * (len(far) - 1)  # the record's length, zigzag
    lying[8:12] = (len(lying) - 12).to_bytes(4, "big")
    assert next(iter_records(lying)).value == b"a"
    assert first_record_at(lying, 5, 0, 1 << 20) == (0, 10)


@pytest.mark.parametrize("version", range(2, 5))
async def test_offset_for_leader_epoch(start_broker: StartBroker, version: int) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")
    await client.produce("t", batch(b"a", b"b"))
    first = broker.groups[1].term
    await broker.stop()
    broker = await start_broker()
    client = await Client.connect(broker.port)
    second = broker.groups[1].term

    async def end(leader_epoch: int, current: int = -1, topic: str = "t") -> tuple[int, int, int]:
        wanted = OffsetForLeaderPartition(
            partition=0, leader_epoch=leader_epoch, current_leader_epoch=current
        )
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
        answer = (await client.call(request, version)).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert await end(second) == (0, second, 2)  # the leader's own epoch, before its first record
    await client.produce("t", batch(b"c"))
    assert await end(first) == (0, first, 2)
    assert await end(second) == (0, second, 3)
    assert await end(second + 1) == (0, -1, -1)
    assert await end(0) == (0, 0, 0)
    assert await end(-1) == (0, -1, -1)
    assert (await end(first, current=first))[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert (await end(first, current=second + 1))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await end(first, topic="no"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_search_goes_on_above_what_is_deleted_meanwhile(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a", timestamp_ms=50))
    await client.produce("t", batch(b"b", timestamp_ms=60))
    group = broker.groups[1]
    real = group.read

    def read(log: PartitionLog, offset: int, max_bytes: int) -> ReadResult:
        if log.log_start_offset == 0:
            log.log_start_offset = 1
            raise OffsetOutOfRange("has just been freed")
        return real(log, offset, max_bytes)

    monkeypatch.setattr(group, "read", read)
    assert (await ask(client, 40)).offset == 1


# --- without a broker -------------------------------------------------------------------------------------


Answer = tuple[int, int, int]
"""Error, offset, leader epoch."""


class Unsearched(FakeCluster):
    """Two batches in partition 0 of topic `t`; no search by time finds anything."""

    def __init__(self) -> None:
        super().__init__()
        self.searches: list[str] = []
        self.add("t", 2)
        log = self.write("t", batch(b"a", b"b"), batch(b"c")).log
        log.log_start_offset, log.leader_epochs = 1, [(2, 0), (3, 2)]
        self.group.log = SimpleNamespace(
            timestamp_lookup=lambda *_: self.searches.append("time"),
            max_timestamp_batch=lambda *_: self.searches.append("largest"),
            damage=NoDamage(),
        )


async def answers(
    cluster: FakeCluster,
    version: int,
    *asked: tuple[str, int, int],
    committed: bool = False,
    current: int = -1,
) -> list[Answer]:
    """The answer for each (topic, partition, timestamp)."""
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=current)
            ],
        )
        for name, index, timestamp in asked
    ]
    handler = ListOffsets(cluster(), TimeSlicer(asyncio.get_running_loop().call_soon))
    request = ListOffsetsRequest(topics=topics, isolation_level=int(committed))
    response = await await_response(
        handler.handle(cast(ClientContext, None), header_of(handler.api_key, version), request)
    )
    assert isinstance(response, ListOffsetsResponse)
    return [
        (each.error_code, each.offset, each.leader_epoch)
        for topic in response.topics
        for each in topic.partitions
    ]


async def test_ends_need_no_search() -> None:
    cluster = Unsearched()
    for version, epoch, first_epoch in ((3, -1, -1), (8, 3, 2)):
        assert await answers(cluster, version, ("t", 0, -1)) == [(0, 3, epoch)]
        assert await answers(cluster, version, ("t", 0, -2)) == [(0, 1, first_epoch)]
    partition = cluster.partition("t", 0)
    assert partition is not None
    partition.log.transactions = cast(PartitionTransactions, SimpleNamespace(first_open_offset=2))
    assert await answers(cluster, 8, ("t", 0, -1), committed=True) == [(0, 2, 3)]
    assert await answers(cluster, 8, ("t", 0, -1)) == [(0, 3, 3)]
    assert cluster.searches == []


@each_case(("special", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)])
async def test_special_times_by_version(special: int, since: int) -> None:
    for version in range(1, 12):
        expected = ErrorCode.NONE if version >= since else ErrorCode.UNSUPPORTED_VERSION
        [(error, _, _)] = await answers(Unsearched(), version, ("t", 0, special))
        assert error == expected, version


async def test_a_search_that_finds_nothing() -> None:
    cluster = Unsearched()
    assert await answers(cluster, 11, ("t", 0, 5), ("t", 1, -3)) == [(0, -1, -1)] * 2
    assert cluster.searches == ["time", "largest"]


async def test_a_search_that_fails_is_an_error_of_its_partition(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Unsearched()
    partition = cluster.partition("t", 0)
    assert partition is not None
    partition.topic.topic_id = b"a failing search"  # its failures are logged once a minute

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    cluster.group.log.timestamp_lookup = failing
    found = await answers(cluster, 11, ("t", 0, 5), ("t", 0, 6), ("t", 1, -1))
    assert found[0] == (ErrorCode.CORRUPT_MESSAGE, -1, -1)
    assert "t-0: no search by time" in caplog.text


async def test_errors() -> None:
    cluster = Unsearched()
    found = await answers(cluster, 7, ("no", 0, -1), ("t", 2, -1), ("t", 0, -1), ("t", 0, -1))
    assert found == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
        (0, 3, 3),
        (ErrorCode.INVALID_REQUEST, -1, -1),
    ]
    assert await answers(cluster, 7, ("t", 0, -1), current=0) == [(ErrorCode.FENCED_LEADER_EPOCH, -1, -1)]
    assert await answers(cluster, 7, ("t", 0, 5), current=9) == [(ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)]


async def test_without_its_lease_a_leader_returns_no_offset() -> None:
    cluster = Unsearched()
    cluster.group.has_lease = False
    for version, error in (
        (4, ErrorCode.LEADER_NOT_AVAILABLE),
        (5, ErrorCode.OFFSET_NOT_AVAILABLE),
        (11, ErrorCode.OFFSET_NOT_AVAILABLE),
    ):
        for when in (-1, -2, 7):
            assert await answers(cluster, version, ("t", 0, when)) == [(error, -1, -1)]
    cluster.group.is_leader = False
    assert await answers(cluster, 11, ("t", 0, -1)) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)]


async def test_many_partitions_are_answered_in_slices_and_encoded_in_a_thread(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(3)]
    for name in names:
        await client.create(name, 4)
    await client.produce("t1", batch(b"a", b"b", timestamp_ms=50), 2)

    async def ends(timestamp: int) -> list[tuple[str, int, int, int]]:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index in (*range(4), 2)
                ],
            )
            for name in (*names, "no")
        ]
        response = await client.call(ListOffsetsRequest(replica_id=-1, topics=topics), 10)
        return [
            (topic.name, each.partition_index, each.error_code, each.offset)
            for topic in response.topics
            for each in topic.partitions
        ]

    at_once = [await ends(timestamp) for timestamp in (-1, -2, 51)]
    monkeypatch.setattr(sliced_response, "MAX_ITEMS_ENCODED_HERE", 1)
    monkeypatch.setattr(time_slices, "TIME_SLICE_SECONDS", -1.0)
    assert [await ends(timestamp) for timestamp in (-1, -2, 51)] == at_once
    assert ("t1", 2, 0, 2) in at_once[0] and ("t1", 2, 0, 1) in at_once[2]
    assert at_once[0].count(("t1", 2, ErrorCode.INVALID_REQUEST, -1)) == 1
