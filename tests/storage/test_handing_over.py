"""A leadership that is handed over, or is not after all: what was taken before goes along, or nothing more is
taken until it is known what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from lockstep.storage import control_commands, served_leadership
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.raft.messages import Append, AppendResponse, Message
from lockstep.storage.types import Frame, NotLeader, StorageError, StorageFull, WriteFailed
from tests.storage.cluster import Cluster, append
from tests.storage.loop_time import loop_time

TOPIC = bytes(range(16))
OTHER_TOPIC = bytes(range(1, 17))


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """Three members; whoever waits for a commit does so for as long as it takes."""
    monkeypatch.setattr(served_leadership, "UNKNOWN_OUTCOME_SECONDS", 3600.0)
    async with loop_time() as clock:
        made = Cluster(tmp_path, monotonic=clock)
        await made.start()
        yield made
        await made.stop()
    assert not made.fatal


def entries_alone(sender: int, to: int, message: Message) -> bool:
    """What is lost where heartbeats still come through."""
    return isinstance(message, Append | AppendResponse)


def heir_of(leader: LogGroup) -> int:
    return next(each for each in leader.raft.configuration.voters if each != leader.raft.member_id)


async def until_it_has_failed(cluster: Cluster, leader: LogGroup) -> None:
    """Hand over to one that cannot be brought up to date, until the core takes proposals again: the leader,
    which has an entry that is not committed, begins to serve once it is."""
    await cluster.until(lambda: leader.raft.last_index > leader.raft.commit_index)
    term = leader.term
    leader.transfer(heir_of(leader))
    assert not leader.is_leader
    await cluster.until(lambda: leader.raft.accepts_proposals)
    served = leader.is_leader
    cluster.lost = lambda sender, to, message: False
    await cluster.until(lambda: leader.is_leader)
    assert (served, leader.term) == (False, term)


async def opening_through_a_failure(cluster: Cluster) -> tuple[LogGroup, asyncio.Future[list[PartitionLog]]]:
    """A leader whose hand-over has come to nothing, and the three partitions it was opening meanwhile."""
    leader = await cluster.leader()
    cluster.lost = entries_alone
    opening = asyncio.ensure_future(leader.open_partitions([(TOPIC, index) for index in range(3)]))
    await until_it_has_failed(cluster, leader)
    return leader, opening


async def test_numbers_of_an_open_that_is_under_way_are_not_given_again(cluster: Cluster) -> None:
    leader, opening = await opening_through_a_failure(cluster)
    opened = [*await leader.open_partitions([(OTHER_TOPIC, 0)]), *await opening]
    assert len({partition.local_id for partition in opened}) == 4
    assert [leader.partitions[each.local_id] for each in opened] == opened
    for partition in opened:
        append(leader, partition, b"one of each")
    await leader.committed()
    await cluster.agreed()


async def test_commands_go_no_further_in_another_leadership(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers were given to all of them as they were begun; another leader may have given them since."""
    monkeypatch.setattr(control_commands, "COMMANDS_PER_BATCH", 1)
    leader, opening = await opening_through_a_failure(cluster)
    (other,) = await leader.open_partitions([(OTHER_TOPIC, 0)])
    with pytest.raises(NotLeader, match="all the time"):
        await opening
    assert leader.partitions[other.local_id] is other
    opened = [each for each in leader.partitions.values() if each.local_id]
    assert [(each.topic_id, each.index) for each in opened] == [(TOPIC, 0), (OTHER_TOPIC, 0)]
    append(leader, other, b"x")
    await leader.committed()
    await cluster.agreed()


@pytest.mark.parametrize("error", [StorageFull("no room"), WriteFailed("Input/output error")])
async def test_what_waits_for_room_is_not_handed_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: StorageError
) -> None:
    """It is in no log: the heir could not be brought up to date, and meanwhile nobody would serve reads."""
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])

    def full(frames: Sequence[Frame]) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(leader.log, "append", full)
        append(leader, partition, b"waits")
        with pytest.raises(ConfigurationRejected, match="waits for disk space"):
            leader.transfer(heir_of(leader))
        assert leader.is_leader
        assert append(leader, partition, b"more") == 1
    await leader.committed()
    await cluster.agreed()
    assert {g.partitions[partition.local_id].high_watermark for g in cluster.groups.values()} == {2}


async def test_what_was_taken_goes_along_although_more_was_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy group gathers batches over some turns of the loop; a hand-over waits for no more of them."""
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    for _ in range(2):
        append(leader, partition, b"together")
    await leader.committed()
    await cluster.agreed()
    assert leader._busy and not leader._replica.busy
    rebuilt: list[bool] = []
    monkeypatch.setattr(leader._replica, "rebuild_tail", lambda: rebuilt.append(True))
    outcome: list[BaseException | None] = []
    append(leader, partition, b"the last one")
    leader.when_committed(outcome.append)
    heir = heir_of(leader)
    leader.transfer(heir)
    await cluster.until(lambda: cluster.groups[heir].is_leader and bool(outcome))
    assert (outcome, rebuilt) == ([None], [])
    await cluster.agreed()
    assert {g.partitions[partition.local_id].high_watermark for g in cluster.groups.values()} == {3}
