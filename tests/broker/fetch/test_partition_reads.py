"""How much one Fetch request reads, from memory and from the disk."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.broker.fetch.fetch_session import FetchContext, FetchItem
from lockstep.broker.fetch.partition_check import PartitionCheck
from lockstep.broker.fetch.partition_reads import MAX_UNKNOWN, PartitionReads, ReadLimits
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import FetchPartition
from lockstep.storage.types import ReadResult
from tests.broker.fake_partitions import SETTINGS, FakeCluster, FakeGroup
from tests.broker.wire import batch

DATA = batch(b"x" * 1000)
SIZE = len(DATA)


@pytest.fixture
def cluster() -> FakeCluster:
    """A topic of three partitions with three batches each, and an empty one."""
    cluster = FakeCluster()
    cluster.add("t", 4)
    for index in range(3):
        cluster.write("t", DATA, DATA, DATA, index=index)
    return cluster


class Reads:
    """A pass over partitions of topic `t`; keywords are limits."""

    def __init__(
        self,
        cluster: FakeCluster,
        *indexes: int,
        topic: str = "t",
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        unsent: UnsentBytes | None = None,
        incremental: bool = False,
    ) -> None:
        self.unsent = unsent or UnsentBytes()
        items = [
            FetchItem(topic, FetchPartition(partition=index, partition_max_bytes=partition_max_bytes))
            for index in indexes
        ]
        check = PartitionCheck(cluster(), 12, -1, False, None)
        limits = ReadLimits(max_bytes, False, SETTINGS, self.unsent)
        self.reads = PartitionReads(FetchContext(items, None, incremental), check, limits)

    def found(self) -> list[int]:
        """The number of batches of each partition of the response."""
        return [len(data.records or ()) for _, data in self.reads.found]

    def from_memory(self) -> list[int]:
        assert self.reads.read() is None
        return self.found()

    async def from_disk(self) -> list[int]:
        cold = self.reads.read()
        assert cold is not None
        await self.reads.read_all(cold, 0.0)
        assert self.reads._counted_bytes == 0
        return self.found()


LIMITS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [3, 3, 3]),
    ({"partition_max_bytes": 2 * SIZE + 10}, [2, 2, 2]),
    ({"max_bytes": 5 * SIZE}, [3, 2, 0]),
    ({"max_bytes": 10}, [1, 0, 0]),
    ({"max_bytes": 0, "partition_max_bytes": -1}, [1, 0, 0]),
]


@pytest.mark.parametrize(("limits", "expected"), LIMITS)
async def test_memory_and_disk_have_one_rule(
    cluster: FakeCluster, limits: dict[str, Any], expected: list[int]
) -> None:
    assert Reads(cluster, 0, 1, 2, **limits).from_memory() == expected
    cluster.group.cold = True
    assert await Reads(cluster, 0, 1, 2, **limits).from_disk() == expected


def test_a_partition_without_records_does_not_take_the_place_of_the_first_batch(cluster: FakeCluster) -> None:
    assert Reads(cluster, 3, 0, 1, max_bytes=10).from_memory() == [0, 1, 0]


def test_without_news_a_partition_of_a_session_is_left_out(cluster: FakeCluster) -> None:
    context = FetchContext([FetchItem("t", FetchPartition(partition=index)) for index in (0, 3)], None, True)
    check = PartitionCheck(cluster(), 12, -1, False, None)
    limits = ReadLimits(1 << 20, False, SETTINGS, UnsentBytes())
    found = []
    for _ in range(2):
        reads = PartitionReads(context, check, limits)
        assert reads.read() is None
        for item, data in reads.found:
            item.update_cached(data)
        found.append([item.index for item, _ in reads.found])
    assert found == [[0, 3], [0]], "the client knows that partition 3 is empty"


def test_unsent_bytes_of_others_leave_a_write_buffer(cluster: FakeCluster) -> None:
    unsent = UnsentBytes()
    unsent.total = 1 << 40
    limits = ReadLimits(1 << 30, False, SETTINGS, unsent)
    assert limits.allowed_bytes() == SETTINGS.lockstep_connection_write_buffer_bytes
    assert limits.allowed_bytes(own_bytes=unsent.total) == min(1 << 30, SETTINGS.lockstep_unsent_max_bytes)


async def test_a_read_from_the_disk_counts_as_unsent_until_its_end(cluster: FakeCluster) -> None:
    counted: list[int] = []

    class Slow(FakeGroup):
        cold = True

        async def read_cold(self, *asked: Any) -> ReadResult:
            counted.append(reads.unsent.total)
            return await super().read_cold(*asked)

    slow = Slow()
    slow.batches = cluster.group.batches
    for partition in cluster.topic("t").partitions:  # type: ignore[union-attr]
        partition.group = slow
    reads = Reads(cluster, 0, 1, max_bytes=4 * SIZE, partition_max_bytes=3 * SIZE)
    assert await reads.from_disk() == [3, 1]
    assert counted == [3 * SIZE, 3 * SIZE + SIZE]
    assert reads.unsent.total == 0


async def test_a_failed_read_leaves_nothing_counted(cluster: FakeCluster) -> None:
    async def cancelled(*_: object) -> ReadResult:
        raise asyncio.CancelledError

    cluster.group.cold = True
    cluster.group.read_cold = cancelled  # type: ignore[method-assign, assignment]
    reads = Reads(cluster, 0)
    cold = reads.reads.read()
    assert cold is not None
    with pytest.raises(asyncio.CancelledError):
        await reads.reads.read_all(cold, 0.0)
    assert reads.unsent.total == 0


def test_unknown_partitions_are_urgent_where_all_are_or_too_many(cluster: FakeCluster) -> None:
    def is_urgent(*indexes: int, topic: str = "t") -> bool:
        reads = Reads(cluster, *indexes, topic=topic)
        reads.from_memory()
        return reads.reads.is_urgent

    assert is_urgent(9)
    assert not is_urgent(9, 0)
    assert not is_urgent(0, *range(9, 9 + MAX_UNKNOWN))
    assert is_urgent(0, *range(9, 10 + MAX_UNKNOWN))
    assert is_urgent(0, topic="x" * 300)
    cluster.group.is_leader = False
    assert is_urgent(0)


def test_the_errors_of_partitions_are_their_content(cluster: FakeCluster) -> None:
    reads = Reads(cluster, 9, 0)
    assert reads.from_memory() == [0, 3]
    assert [data.error_code for _, data in reads.reads.found] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
