"""When a coordinator loads and resigns: the leadership of its log group as a test tells it."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_shard import GroupShard
from lockstep.broker.groups.group_store import GroupStore
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.types import NotLeader
from tests.broker.coordination.fakes import FakeGroup
from tests.broker.groups.fakes import World, error_of
from tests.support.cases import each_case

E = ErrorCode


class CoordinatorShard:
    """A coordinator with a committed group of two, on a fake log group."""

    def __init__(self, leads: bool = False) -> None:
        self.world = World()
        self.leader, self.follower = self.world.stable(2)
        self.world.coordinator.resign()
        self.group = FakeGroup()
        self.group.is_leader = self.group.has_lease = leads
        fake: Any = self.group
        self.store = GroupStore(fake, self.world.store.state, lambda group_id: None, lambda: 0)
        loop: Any = self.world.loop
        self.coordinator = GroupCoordinator(self.world.store, self.world.settings, loop, lambda: 1 << 20)
        self.world.coordinator = self.coordinator
        self.shard = GroupShard(self.store, self.coordinator)

    def not_serving_error(self) -> ErrorCode:
        return self.coordinator.not_serving_error


async def test_it_loads_when_all_before_is_committed() -> None:
    it = CoordinatorShard()
    assert not it.shard.serves and not it.group.waiters
    it.group.lead(True)
    assert it.not_serving_error() is E.COORDINATOR_LOAD_IN_PROGRESS and not it.shard.serves
    with pytest.raises(RequestError) as refused:
        it.shard.require()
    assert refused.value.error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert error_of(it.world.ask_join()) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert it.world.loop.armed == 0
    it.group.commit()
    assert it.shard.require() is it.coordinator
    assert it.shard.serves and it.world.heartbeat(it.leader) is E.NONE


async def test_it_loads_where_it_is_led_already() -> None:
    it = CoordinatorShard(leads=True)
    it.group.commit()
    assert it.shard.serves and it.world.state() == "Stable"


async def test_a_leadership_lost_before_it_is_loaded() -> None:
    it = CoordinatorShard()
    it.group.lead(True)
    it.group.commit(NotLeader("lost"))
    assert it.not_serving_error() is E.COORDINATOR_LOAD_IN_PROGRESS
    it.group.lead(False)
    assert it.not_serving_error() is E.NOT_COORDINATOR and it.world.loop.armed == 0


async def test_again_and_again_on_the_same_coordinator() -> None:
    it = CoordinatorShard()
    for _ in range(3):
        it.group.lead(True)
        it.group.commit()
        assert it.world.heartbeat(it.leader) is E.NONE and it.world.loop.armed == 2
        joining = it.world.ask_join(member=it.leader.member_id)
        it.group.lead(False)
        assert error_of(joining) is E.NOT_COORDINATOR
        assert it.world.loop.armed == 0 and it.coordinator._context.memory_bytes == 0


async def test_a_delete_under_way_leaves_nothing_behind() -> None:
    it = CoordinatorShard()
    it.group.lead(True)
    it.group.commit()
    it.world.leave(it.leader.member_id, it.follower.member_id)
    it.world.store.at_once = False
    told: list[ErrorCode] = []
    it.coordinator.delete("g", told.append)
    it.group.lead(False)
    assert "g" not in it.coordinator._deletions
    it.world.store.commit(E.NOT_COORDINATOR)
    assert told == [E.NOT_COORDINATOR] and "g" in it.world.store.state


@each_case("leaves", [False, True])
async def test_it_follows_no_more(leaves: bool) -> None:
    it = CoordinatorShard()
    it.group.lead(True)
    for _ in range(2):
        if leaves:
            it.shard.leave()
        else:
            it.shard.stop()
    assert it.group.on_leading == []
    it.group.commit()
    assert it.not_serving_error() is E.NOT_COORDINATOR
