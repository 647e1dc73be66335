"""Changing who the members are."""

import pytest

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.raft.messages import Heartbeat, TimeoutNow
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import NotLeader
from tests.storage.raft.cores import ME, THREE, core, drained, holds, leader, said


def all_hold(raft: Raft, index: int, members: list[int]) -> None:
    raft.on_persisted(index, raft.term, raft.truncation_count)
    for member in members:
        raft.step(holds(raft, member, index), raft.now_ms)


def test_learners_change_in_one_step() -> None:
    raft = leader()
    raft.change_members([3, 2, 1], [5, 4])
    ready = raft.ready()
    assert ready.configuration == (2, Configuration((1, 2, 3), (), (4, 5)))
    assert raft.ready().configuration is None
    assert [message.to for message in ready.messages] == [2, 3, 4, 5]
    all_hold(raft, 2, [2])
    assert (raft.commit_index, raft.ready().configuration) == (2, None)
    raft.change_members([1, 2, 3], [4])
    assert drained(raft).configuration == (3, Configuration((1, 2, 3), (), (4,)))
    assert raft.progress(5) is None


def test_voters_change_by_way_of_both() -> None:
    raft = leader()
    raft.change_members([1, 2, 4], [3])
    joint = Configuration((1, 2, 4), (1, 2, 3), (3,))
    assert raft.ready().configuration == (2, joint)
    assert raft.configuration == joint
    all_hold(raft, 2, [3])
    assert raft.commit_index == 1  # a majority of the old, not of the new
    raft.step(holds(raft, 4, 2), raft.now_ms)
    assert raft.commit_index == 2
    with pytest.raises(ConfigurationRejected, match="under way"):
        raft.change_members([1])
    assert raft.propose() == 3  # proposals go on meanwhile
    assert drained(raft).configuration == (4, Configuration((1, 2, 4), (), (3,)))
    with pytest.raises(ConfigurationRejected, match="under way"):
        raft.change_members([1])
    all_hold(raft, 4, [4])
    raft.change_members([1])


def test_refusals() -> None:
    with pytest.raises(NotLeader):
        core().change_members([1])
    with pytest.raises(ConfigurationRejected, match="has not committed"):
        leader(is_serving=False).change_members([1])
    raft = leader()
    for voters, learners, why in (
        ([], [2], "needs a voter"),
        ([1, 1], [], "twice"),
        ([1, 2], [2], "twice"),
        ([3, 2, 1], [], "these are the members"),
    ):
        with pytest.raises(ConfigurationRejected, match=why):
            raft.change_members(voters, learners)
    raft.change_members([1, 2])
    with pytest.raises(ConfigurationRejected, match="under way"):  # wanted, not even appended
        raft.change_members([1])
    raft = leader()
    raft.transfer(2, raft.now_ms)
    with pytest.raises(ConfigurationRejected, match="transferring"):
        raft.change_members([1])


def test_a_removed_leader_leads_to_the_end_and_names_an_heir() -> None:
    raft = leader()
    raft.change_members([2, 3])
    drained(raft)
    all_hold(raft, 2, [2, 3])
    assert drained(raft).configuration == (3, Configuration((2, 3)))
    raft.on_persisted(3, 1, 0)
    raft.step(holds(raft, 3, 3), raft.now_ms)
    assert (raft.role, raft.commit_index) == (Role.LEADER, 2)  # its own disk does not count
    raft.step(holds(raft, 2, 3), raft.now_ms)
    assert (raft.role, raft.commit_index) == (Role.FOLLOWER, 3)
    assert said(raft) == [
        Heartbeat(ME, 2, 1, 3, raft.now_ms),
        Heartbeat(ME, 3, 1, 3, raft.now_ms),
        TimeoutNow(ME, 2, 1),
    ]


def test_a_new_leader_finishes_what_it_inherits() -> None:
    raft = leader(Configuration((1, 2), (1, 3)), is_serving=False)
    all_hold(raft, 1, [2, 3])
    assert drained(raft).configuration == (2, Configuration((1, 2)))


def test_a_commit_below_the_configuration_settles_nothing() -> None:
    raft = leader()
    raft.propose()
    raft.change_members([1, 2, 3], [4])
    assert drained(raft).configuration == (3, Configuration((1, 2, 3), (), (4,)))
    all_hold(raft, 2, [2])
    assert raft.commit_index == 2
    with pytest.raises(ConfigurationRejected, match="under way"):
        raft.change_members([1])
    all_hold(raft, 3, [2])
    raft.change_members([1])


def test_one_to_three_and_back() -> None:
    raft = leader(Configuration((1,)))
    raft.change_members([1, 2, 3])
    drained(raft)
    raft.on_persisted(2, 1, 0)
    assert raft.commit_index == 1
    raft.step(holds(raft, 2, 2), raft.now_ms)
    drained(raft)
    all_hold(raft, 3, [3])
    assert (raft.commit_index, raft.configuration) == (3, THREE)
    raft.change_members([1])
    drained(raft)
    all_hold(raft, 4, [2])
    drained(raft)
    raft.on_persisted(5, 1, 0)
    assert (raft.commit_index, raft.configuration, raft.progress(2)) == (5, Configuration((1,)), None)
