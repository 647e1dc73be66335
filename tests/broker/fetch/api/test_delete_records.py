"""DeleteRecords: log starts move at once and for good, and only where they may."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from lockstep.broker.fetch.api.delete_records import DeleteRecords
from lockstep.broker.requests.request_context import ClientContext
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lockstep.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.types import Backlogged, NotLeader, StorageError, StorageFull
from tests.broker.conftest import StartBroker
from tests.broker.fake_partitions import FakeCluster, FakeGroup, header_of
from tests.broker.left_behind import copy_as_killed
from tests.broker.wire import Client, batch, records_of

Results = list[tuple[str, int, int, int]]
"""Topic, partition, low watermark, error."""


async def delete(client: Client, *wanted: tuple[str, dict[int, int]], version: int = 2) -> Results:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in wanted
        ],
        timeout_ms=5000,
    )
    response = await client.call(request, version)
    return [
        (topic.name, each.partition_index, each.low_watermark, each.error_code)
        for topic in response.topics
        for each in topic.partitions
    ]


async def earliest(client: Client, topic: str, index: int = 0) -> int:
    asked = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-2)]
    )
    response = await client.call(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7)
    offset: int = response.topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("version", range(3))
async def test_in_every_version(client: Client, version: int) -> None:
    await client.create("t", 2)
    for _ in range(5):
        await client.produce("t", batch(b"a", b"b"))
    assert await delete(client, ("t", {0: 4, 1: 0}), version=version) == [("t", 0, 4, 0), ("t", 1, 0, 0)]
    assert await earliest(client, "t") == 4
    assert (await client.fetch("t", 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = await client.fetch("t", 4)
    assert (found.log_start_offset, [record.offset for record in records_of(found)]) == (
        4,
        [4, 5, 6, 7, 8, 9],
    )
    assert await delete(client, ("t", {0: 2}), version=version) == [("t", 0, 4, 0)], "it never goes back"
    assert await delete(client, ("t", {0: -1}), version=version) == [("t", 0, 10, 0)]
    assert (await client.fetch("t", 10)).error_code == 0
    assert (await client.produce("t", batch(b"c"))).base_offset == 10


async def test_refused(client: Client) -> None:
    await client.create("t", 2)
    await client.produce("t", batch(b"a", b"b"))
    unknown, outside = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE
    assert await delete(client, ("no", {0: 0}), ("", {0: -1}), ("t", {2: 0, -1: 0, 0: 1})) == [
        ("no", 0, -1, unknown),
        ("", 0, -1, unknown),
        ("t", 2, -1, unknown),
        ("t", -1, -1, unknown),
        ("t", 0, 1, 0),
    ]
    for offset in (3, -2, 2**63 - 1, -(2**63)):
        assert await delete(client, ("t", {0: offset})) == [("t", 0, -1, outside)]
    assert await delete(client) == []
    assert await delete(client, ("t", {})) == []
    assert await delete(client, ("t", {0: 2}), ("t", {0: 1, 1: 0})) == [("t", 0, 1, 0), ("t", 1, 0, 0)]


@pytest.mark.parametrize(
    ("policy", "error"),
    [("", 0), ("delete", 0), ("compact,delete", 0), ("compact", ErrorCode.POLICY_VIOLATION)],
)
async def test_only_a_topic_that_is_compacted_alone_refuses(
    broker: Broker, client: Client, policy: str, error: int
) -> None:
    """Without a policy nothing but DeleteRecords deletes (KAFKA-19112)."""
    await client.create("t", cleanup_policy=policy, retention_ms="1", retention_bytes="1")
    building = BatchBuilder()
    for key in (b"a", b"b"):
        building.append(b"value", key, timestamp_ms=1_000)
    assert (await client.produce("t", building.build())).error_code == 0
    if not policy:
        assert await broker.enforce_retention() == 0
        assert await earliest(client, "t") == 0
    assert await delete(client, ("t", {0: 1})) == [("t", 0, -1 if error else 1, error)]


async def test_one_commit_for_a_groups_partitions(broker: Broker, client: Client) -> None:
    await client.create("t", 20)
    for index in range(20):
        await client.produce("t", batch(b"x"), index)
    frames = broker.groups[1].log.last_index
    results = await delete(client, ("t", dict.fromkeys(range(20), -1)))
    assert [each[2:] for each in results] == [(1, 0)] * 20
    assert broker.groups[1].log.last_index == frames + 1
    assert [each[2:] for each in await delete(client, ("t", dict.fromkeys(range(20), -1)))] == [(1, 0)] * 20
    assert broker.groups[1].log.last_index == frames + 1, "what is deleted already needs no commit"


async def test_it_survives_a_crash(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")
    await client.produce("t", batch(b"a", b"b", b"c"))
    assert await delete(client, ("t", {0: 2})) == [("t", 0, 2, 0)]
    copy_as_killed(broker, tmp_path / "crashed")
    again = await start_broker(tmp_path / "crashed")
    client = await Client.connect(again.port)
    assert await earliest(client, "t") == 2
    assert (await client.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.value for record in records_of(await client.fetch("t", 2))][-1] == b"c"


async def test_files_are_freed(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")
    for _ in range(40):
        await client.produce("t", batch(b"x" * 150_000))
    sealed = len(broker.groups[1].log.segments())
    assert sealed >= 4
    await broker.groups[1]._replica.write_last_checkpoint()  # files are freed below the one before it
    assert await delete(client, ("t", {0: -1})) == [("t", 0, 40, 0)]
    assert len(broker.groups[1].log.segments()) < sealed


# --- without a broker -------------------------------------------------------------------------------------


class Group(FakeGroup):
    """Advances log starts, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: StorageError | None = None
        self.commits: list[dict[int, int]] = []
        self.freed = 0

    async def advance_log_starts(self, starts: dict[int, int]) -> None:
        if self.failure is not None:
            raise self.failure
        self.commits.append(starts)
        for number, start in starts.items():
            self.partitions[number].log_start_offset = start

    def free_deleted_segments(self) -> None:
        self.freed += 1


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def cluster(group: Group) -> FakeCluster:
    cluster = FakeCluster()
    cluster.group = group
    cluster.add("t", 2)
    cluster.write("t", batch(b"a", b"b"))
    cluster.write("t", batch(b"c"), index=1)
    return cluster


async def ask_handler(cluster: FakeCluster, *wanted: tuple[str, int, int]) -> list[tuple[int, int]]:
    """(low watermark, error) for each (topic, partition, offset)."""
    topics = [
        DeleteRecordsTopic(
            name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
        )
        for name, index, offset in wanted
    ]
    handler = DeleteRecords(cluster())
    response = await handler.handle(
        cast(ClientContext, None), header_of(handler.api_key, 2), DeleteRecordsRequest(topics=topics)
    )
    return [(each.low_watermark, each.error_code) for topic in response.topics for each in topic.partitions]


async def test_partitions_of_a_group_share_a_commit(cluster: FakeCluster, group: Group) -> None:
    assert await ask_handler(cluster, ("t", 0, 1), ("t", 1, -1)) == [(1, 0), (1, 0)]
    assert group.commits == [{1: 1, 2: 1}]
    assert group.freed == 1
    assert await ask_handler(cluster, ("t", 0, 0)) == [(1, 0)], "the log start does not go back"
    assert len(group.commits) == 1


async def test_errors_commit_nothing(cluster: FakeCluster, group: Group) -> None:
    cluster.add("__consumer_offsets")
    cluster.add("c", cleanup_policy="compact")
    wanted = [("no", 0, 1), ("t", 2, 1), ("t", 0, 3), ("t", 0, -2), ("__consumer_offsets", 0, 0), ("c", 0, 0)]
    for each, error in zip(
        wanted,
        [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.POLICY_VIOLATION,
        ],
        strict=True,
    ):
        assert await ask_handler(cluster, each) == [(-1, error)]
    group.is_leader = False
    assert await ask_handler(cluster, ("t", 0, 1)) == [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert group.commits == []


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NotLeader("lost"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (Backlogged("busy"), ErrorCode.REQUEST_TIMED_OUT),
        (StorageFull("full"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_a_failed_commit_is_an_error_of_its_partitions(
    cluster: FakeCluster, group: Group, failure: StorageError, error: ErrorCode
) -> None:
    group.failure = failure
    assert await ask_handler(cluster, ("t", 0, 1), ("t", 1, 0)) == [(-1, error), (0, 0)]
    assert group.freed == 0


async def test_a_topic_that_is_deleted_meanwhile_is_unknown(cluster: FakeCluster, group: Group) -> None:
    del group.partitions[1]
    assert await ask_handler(cluster, ("t", 0, 1)) == [(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
