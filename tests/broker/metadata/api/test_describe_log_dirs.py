"""DescribeLogDirs: one directory, and sizes that follow what is in it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lockstep.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from tests.broker.conftest import StartBroker
from tests.broker.metadata.api.conftest import MetadataCaller
from tests.broker.wire import Client, batch


async def sizes(
    client: Client, wanted: list[tuple[str, list[int]]] | None, version: int = 5
) -> dict[tuple[str, int], int]:
    topics = None
    if wanted is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in wanted]
    response: DescribeLogDirsResponse = await client.call(DescribeLogDirsRequest(topics=topics), version)
    (directory,) = response.results
    assert (response.error_code, directory.error_code) == (0, 0)
    assert directory.log_dir.startswith("/")
    assert directory.log_dir.endswith("/data")
    if version >= 4:
        assert 0 < directory.usable_bytes < directory.total_bytes
    found = [(topic.name, each) for topic in directory.topics for each in topic.partitions]
    assert all((each.offset_lag, each.is_future_key) == (0, False) for _, each in found)
    assert len({(name, each.partition_index) for name, each in found}) == len(found)
    return {(name, each.partition_index): each.partition_size for name, each in found}


@pytest.mark.parametrize("version", range(1, 6))
async def test_in_every_version(broker: Broker, client: Client, version: int) -> None:
    await client.create("t", 2)
    await client.create("u")
    data = batch(b"x" * 1000)
    for _ in range(3):
        await client.produce("t", data, 1)
    assert await sizes(client, None, version) == {("t", 0): 0, ("t", 1): 3 * len(data), ("u", 0): 0}
    assert await sizes(client, [("t", [1, 1, 7, -1]), ("no", [0]), ("", [0]), ("t", [0])], version) == {
        ("t", 0): 0,
        ("t", 1): 3 * len(data),
    }
    assert await sizes(client, [], version) == {}
    assert await sizes(client, [("t", [])], version) == {}


async def test_sizes_follow_the_log_over_sealed_files_and_deletions(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t", 2)
    data = batch(b"x" * 100_000)
    for number in range(40):
        await client.produce("t", data, number % 2)
    assert len(broker.groups[1].log.segments()) >= 2
    assert await sizes(client, None) == {("t", 0): 20 * len(data), ("t", 1): 20 * len(data)}
    partition = DeleteRecordsPartition(partition_index=0, offset=-1)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    await client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
    assert await sizes(client, None) == {("t", 0): 0, ("t", 1): 20 * len(data)}


async def test_partitions_that_are_not_here_are_left_out(tmp_path: Path) -> None:
    caller = MetadataCaller(log_dirs=str(tmp_path / "missing"))
    caller.create("t", 2)
    (here, _) = (caller.metadata.cluster.partition("t", index) for index in range(2))
    assert here is not None
    sized = SimpleNamespace(log=SimpleNamespace(partition_bytes=lambda number, start: 7))
    here.group, here.log = cast(LogGroup, sized), PartitionLog(3, here.topic.topic_id, 0)
    response: DescribeLogDirsResponse = await caller.call(DescribeLogDirsRequest(topics=None), 5)
    (directory,) = response.results
    assert directory.log_dir == str(tmp_path / "missing")
    assert (directory.total_bytes, directory.usable_bytes) == (-1, -1), "the volume cannot be measured"
    (topic,) = directory.topics
    assert [(each.partition_index, each.partition_size) for each in topic.partitions] == [(0, 7)]
