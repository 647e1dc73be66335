"""What was cleaned is not clean any more once other members' bytes came: nothing deleted comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lockstep.protocol.records.batch import iter_headers, read_header
from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.storage.aborted_transactions import AbortedTransactions
from lockstep.storage.compaction_pass import Cleaned, CompactionTarget
from lockstep.storage.compaction_progress import CompactionProgress
from lockstep.storage.log_group import LogGroup
from tests.storage.cluster import Cluster
from tests.storage.test_compaction_pass import TINY, TOPIC
from tests.storage.test_replication import flip

RETENTION_MS = 1000


def test_ends_are_those_of_partitions_that_are_there_until_all_is_forgotten() -> None:
    ends = CompactionProgress()
    ends.note({1: 10, 2: 20}, {1, 2, 3})
    ends.note({1: 15, 3: 30}, {1, 3})
    assert [ends.of(number) for number in (1, 2, 3)] == [15, 0, 30] and ends.resets == 0
    ends.forget()
    assert ends.of(1) == 0 and ends.resets == 1


def write(group: LogGroup, number: int, key: bytes, value: bytes | None) -> None:
    builder = BatchBuilder()
    builder.append(value, key, timestamp_ms=5)
    data = bytearray(builder.build())
    group.append(group.partitions[number], data, read_header(data))


async def fill(group: LogGroup, number: int, count: int) -> None:
    """Records of one key, so much that what came before can be cleaned."""
    for at in range(count):
        write(group, number, b"filler", b"%d " % at * 200)
        if at % 20 == 0:
            await group.committed()
    await group.committed()


async def clean(group: LogGroup, number: int, now_ms: int) -> Cleaned | None:
    """A pass over a partition from where it is dirty, as far as it can go."""
    partition = group.partitions[number]
    ends = [
        share.last_offset + 1
        for segment in group.log.cleanable_segments()
        for share in segment.partitions()
        if share.local_id == number
    ]
    newest = partition.high_watermark - 1
    wanted = CompactionTarget(
        number, 1 << 40, min(max(ends), newest), RETENTION_MS, AbortedTransactions(), newest
    )
    return await group.clean([wanted], now_ms, 1 << 20, lambda count: None)


def values_of(group: LogGroup, number: int, key: bytes) -> list[bytes | None]:
    partition = group.partitions[number]
    found: list[bytes | None] = []
    offset = group.log.first_offset(number) or 0
    while offset < partition.high_watermark:
        for buffer in group.log.read_cold(number, offset, 1 << 20, partition.high_watermark).buffers:
            for at, header in iter_headers(buffer):
                offset = header.next_offset
                found += [record.value for record in iter_records(buffer, at) if record.key == key]
    return found


class Deleted:
    """Three members. A key was written and deleted; one follower has cleaned, the others have not."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = Cluster(directory, log=TINY)

    async def open(self) -> Deleted:
        cluster = self.cluster
        await cluster.start()
        self.leader = await cluster.leader()
        self.node = next(node for node, group in cluster.groups.items() if group is not self.leader)
        self.follower = cluster.groups[self.node]
        opened = await self.leader.open_partitions([(TOPIC, 0), (TOPIC, 1)])
        self.number, self.other = (each.local_id for each in opened)
        write(self.leader, self.number, b"key", b"deleted long ago")
        await fill(self.leader, self.number, 100)
        write(self.leader, self.number, b"key", None)
        await fill(self.leader, self.number, 400)
        await cluster.agreed()
        await cluster.until(lambda: self.cleanable() > 102)
        assert values_of(self.follower, self.number, b"key") == [b"deleted long ago", None]
        assert await clean(self.follower, self.number, 10_000) is not None
        assert values_of(self.follower, self.number, b"key") == [None]
        assert self.follower.compaction_progress.of(self.number) > 102
        return self

    def cleanable(self) -> int:
        shares = [
            share.last_offset
            for segment in self.follower.log.cleanable_segments()
            for share in segment.partitions()
            if share.local_id == self.number
        ]
        return max(shares, default=0)

    async def nothing_comes_back(self, *at_first: bytes | None) -> None:
        """Two passes, and the time that tombstones stay between them."""
        assert values_of(self.follower, self.number, b"key") == [*at_first, None]
        assert self.follower.compaction_progress.of(self.number) == 0
        await fill(self.leader, self.number, 600)  # two checkpoints more, if it was installed
        await self.cluster.agreed()
        await self.cluster.until(lambda: self.cleanable() > 102)
        for now_ms in (20_000, 30_000, 40_000):
            assert await clean(self.follower, self.number, now_ms) is not None
            assert values_of(self.follower, self.number, b"key") in ([None], [])
        assert values_of(self.follower, self.number, b"key") == []
        await self.cluster.stop()
        assert not self.cluster.fatal


async def test_a_repair_brings_nothing_back_that_a_tombstone_deleted(tmp_path: Path) -> None:
    world = await Deleted(tmp_path).open()
    follower = world.follower
    segment = follower.log.cleanable_segments()[0]
    flip(tmp_path / str(world.node) / f"{segment.sequence:016d}.segment", 4096 + 300)
    assert await follower.scrub(segment.sequence, lambda count: None) is not None
    await world.cluster.until(lambda: follower._replica.repairing.repaired == 1)
    await world.nothing_comes_back()


async def test_an_installation_brings_back_what_a_tombstone_deleted_for_a_moment_only(tmp_path: Path) -> None:
    world = await Deleted(tmp_path).open()
    leader, cluster, other = world.leader, world.cluster, world.other
    me = world.follower.raft.member_id
    cluster.lost = lambda sender, to, message: me in (sender, to) or world.node in (sender, to)
    await fill(leader, other, 600)
    assert (await clean(leader, other, 10_000)) is not None
    assert len(values_of(leader, other, b"filler")) < 400, "entries that cannot be sent as such any more"
    forgotten = world.follower.compaction_progress.resets
    cluster.lost = lambda sender, to, message: False
    await cluster.until(lambda: world.follower.applied_index == leader.applied_index)
    assert world.follower.compaction_progress.resets == forgotten + 1
    await world.nothing_comes_back(b"deleted long ago")


@pytest.mark.parametrize("when", ["in the midst", "at the end"])
async def test_a_pass_that_began_before_is_not_believed(tmp_path: Path, when: str) -> None:
    world = await Deleted(tmp_path).open()
    follower, number = world.follower, world.number
    ends, loop = follower.compaction_progress, asyncio.get_running_loop()
    partition = follower.partitions[number]
    wanted = CompactionTarget(
        number, 0, ends.of(number), RETENTION_MS, AbortedTransactions(), partition.high_watermark - 1
    )
    calls = 0

    def throttle(count: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3 and when == "in the midst":
            ends.forget()

    cleaning = loop.create_task(follower.clean([wanted], 20_000, 1 << 20, throttle))
    if when == "at the end":
        loop.call_soon(ends.forget)  # the pass is in its thread already, where it may have ended
    assert await cleaning is None and ends.of(number) == 0
    assert calls == 3 or when == "at the end"
    await world.cluster.stop()
