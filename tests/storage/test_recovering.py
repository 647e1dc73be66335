"""Which member a directory is when it is opened again: who it was, or another where promises may be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.group_options import member_of
from tests.storage.cluster import Cluster

FOUNDERS = (3, 4, 5)
ORIGIN = "origin"


async def test_founders_stopped_before_their_first_vote_are_the_members_they_were(tmp_path: Path) -> None:
    """Each is started and stopped alone, as a machine that is set up is; none has a log or a vote by then."""
    cluster = Cluster(tmp_path, voters=FOUNDERS)
    for node in FOUNDERS[:2]:
        await cluster.start(node)
        await cluster.stop(node)
    for node in FOUNDERS[:2]:
        await cluster.start(node, voters=(), incarnation=77)
        raft = cluster.groups[node].raft
        assert (raft.member_id, raft.configuration.voters) == (node, FOUNDERS)
    await cluster.leader()
    await cluster.agreed()
    await cluster.stop()
    assert not cluster.fatal


@pytest.mark.parametrize("left", [(), (ORIGIN,)])
async def test_a_founder_that_lost_its_state_is_another_member(tmp_path: Path, left: tuple[str, ...]) -> None:
    """It may have voted. An origin that was left behind proves nothing without the state beside it."""
    cluster = Cluster(tmp_path, voters=FOUNDERS)
    await cluster.start(3)
    await cluster.stop(3)
    names = {path.name for path in (tmp_path / "3").iterdir()}
    assert ORIGIN in names
    for name in names.difference(left):
        (tmp_path / "3" / name).unlink()
    for incarnation in (77, 78):  # nobody has let it in by then: it stays who it is
        await cluster.start(3, voters=(), incarnation=incarnation)
        raft = cluster.groups[3].raft
        assert (raft.member_id, raft.configuration.voters) == (member_of(3, 77), ())
        await cluster.stop(3)
    assert not cluster.fatal
