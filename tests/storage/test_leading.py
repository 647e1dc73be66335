"""Who follows the leadership of a log group hears of each change, once, when the core's turn is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import NotLeader
from tests.storage.cluster import Cluster, append


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    await made.start()
    await (await made.leader()).open_partitions([(bytes(15) + b"\x09", 0)])
    await made.agreed()
    yield made
    await made.stop()


def follow(group: LogGroup) -> list[bool]:
    """What a listener is told; it is told nothing that is not so, and never within the core's turn."""
    heard: list[bool] = []

    def listener(leading: bool) -> None:
        assert not group._replica._pumping
        assert group.is_leader is leading
        heard.append(leading)

    group.on_leading.append(listener)
    return heard


async def test_the_leadership_comes_and_goes(cluster: Cluster) -> None:
    heard = {node: follow(group) for node, group in cluster.groups.items()}
    first = await cluster.leader()
    (old,) = [node for node, group in cluster.groups.items() if group is first]
    new = old % 3 + 1
    for node in (new, old):
        (await cluster.leader()).transfer(node)
        assert (await cluster.leader(node)).applied_index == cluster.groups[node].commit_index
        await cluster.agreed()
    assert heard == {old: [False, True], new: [True, False], 6 - old - new: []}


async def test_waiters_of_a_lost_leadership_are_called_first(cluster: Cluster) -> None:
    leader = await cluster.leader()
    (partition,) = [each for number, each in leader.partitions.items() if number]
    told: list[object] = []
    leader.on_leading.append(told.append)
    append(leader, partition, b"x")
    leader.when_committed(told.append)
    leader.abandon()
    assert len(told) == 1 and isinstance(told[0], NotLeader)
    await cluster.until(lambda: len(told) == 2)
    assert told[1] is False


async def test_a_listener_that_fails_and_one_that_has_gone(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    leader = await cluster.leader()
    heard: list[bool] = []
    gone: list[bool] = []

    def fails(leading: bool) -> None:
        leader.on_leading.remove(gone.append)
        raise RuntimeError("a mistake of a listener")

    leader.on_leading += [fails, gone.append, heard.append]
    await leader.close()
    await cluster.until(lambda: bool(heard))
    assert (heard, gone, leader.failed) == ([False], [], None)
    assert "a mistake of a listener" in caplog.text
