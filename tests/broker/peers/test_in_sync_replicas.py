"""Who is behind in a group that is led here, with a real core and a clock of our own."""

from __future__ import annotations

import pytest

from lockstep.broker.membership.group_view import MAX_LAG_ENTRIES
from lockstep.broker.peers.in_sync_replicas import LAG_SECONDS, InSyncReplicas
from lockstep.storage.group_options import member_of
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.raft import Raft
from tests.storage.raft.cores import THREE, drained, holds, leader

GROUP = 7


class World:
    """Node 1 leads; 2 and 3 follow, and hold all there is."""

    def __init__(self) -> None:
        self.raft = leader()
        self.lagging = InSyncReplicas()
        self.alive = {1, 2, 3}
        self.placed: tuple[int, ...] = (1, 2, 3)
        self.now = 100.0

    def behind(self, *before: int) -> tuple[int, ...]:
        alive = self.alive.__contains__
        return self.lagging.update(GROUP, self.raft, self.placed, alive, before, self.now)

    def grow(self, *holders: int) -> None:
        """The log gets more than a follower may lack; these have it, too."""
        for _ in range(MAX_LAG_ENTRIES + 1):
            self.raft.propose(1)
        drained(self.raft)
        for node in holders:
            self.catch_up(node)

    def catch_up(self, node: int) -> None:
        self.raft.step(holds(self.raft, node, self.raft.last_index), self.raft.now_ms)


@pytest.fixture
def world() -> World:
    return World()


def next_leader(configuration: Configuration = THREE, is_serving: bool = True) -> Raft:
    """A leader of a later term; to one that does not serve yet nobody has answered."""
    found = leader(configuration, [5], is_serving)
    assert found.term > leader().term
    return found


def test_a_replica_with_all_records_is_in_sync(world: World) -> None:
    assert world.behind() == ()


def test_a_dead_node_is_out_of_sync_until_it_is_alive_and_up_to_date(world: World) -> None:
    world.alive.remove(3)
    assert world.behind() == (3,)
    world.grow(2)
    world.alive.add(3)
    for _ in range(3):
        assert world.behind() == (3,)
        world.now += 10 * LAG_SECONDS
    world.catch_up(3)
    assert world.behind() == ()


def test_a_replica_with_a_constant_lag_is_in_sync(world: World) -> None:
    for _ in range(7):
        reached = world.raft.last_index
        world.grow(2)
        assert world.behind() == ()
        world.now += LAG_SECONDS / 2
        world.raft.step(holds(world.raft, 3, reached), world.raft.now_ms)
    assert world.behind() == ()
    world.now += LAG_SECONDS
    assert world.behind() == (3,), "it did not go on"


def test_a_live_replica_may_lag_for_a_while(world: World) -> None:
    world.grow(2)
    assert world.behind() == ()
    world.now += LAG_SECONDS - 1
    assert world.behind() == ()
    world.now += 1
    assert world.behind() == (3,)
    world.catch_up(3)
    assert world.behind() == ()


def test_a_moment_without_a_lag_begins_it_again(world: World) -> None:
    world.grow(2)
    assert world.behind() == ()
    world.now += LAG_SECONDS - 1
    world.catch_up(3)
    assert world.behind() == ()
    world.grow(2)
    for _ in range(2):
        assert world.behind() == ()
        world.now += LAG_SECONDS - 1
    world.now += 1
    assert world.behind() == (3,)


def test_a_new_leader_takes_the_word_of_the_last_one(world: World) -> None:
    assert world.behind() == ()
    world.raft = next_leader(is_serving=False)
    world.alive.remove(2)
    assert world.behind(3) == (2, 3)
    world.alive.add(2)
    world.now += 10 * LAG_SECONDS
    assert world.behind() == (2, 3)


def test_a_new_leader_doubts_nobody_else_for_a_while(world: World) -> None:
    assert world.behind() == ()
    world.raft = next_leader(is_serving=False)
    assert world.behind(3) == (3,)
    world.now += LAG_SECONDS
    assert world.behind() == (2, 3)


def test_whom_a_new_leader_finds_up_to_date_is_in_sync(world: World) -> None:
    world.raft = next_leader()
    assert world.behind(2, 3) == ()
    assert world.behind(2, 3) == (), "the last one's word counts once"


def test_the_leader_is_never_behind(world: World) -> None:
    world.alive.remove(1)
    assert world.behind(1) == ()


def test_a_node_that_does_not_vote_is_out_of_sync(world: World) -> None:
    world.raft = leader(Configuration((1, 2, 3), (), (4,)))  # which holds all
    world.alive |= {4, 5}
    world.placed = (4, 5, 2, 1)
    assert world.behind() == (4, 5)
    world.alive.remove(3)
    assert world.behind() == (3, 4, 5), "who votes counts wherever the group is placed"
    world.raft = next_leader(Configuration((1, 2, 4)))
    assert world.behind(3, 4, 5) == (5,)


def test_a_node_that_votes_as_another_member_is_the_same_node(world: World) -> None:
    world.raft = leader(Configuration((1, 2, member_of(3, 9))))
    assert world.behind(3) == ()
