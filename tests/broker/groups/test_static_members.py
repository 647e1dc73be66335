"""JoinGroup of static members that come back (decision 40)."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.protocol.errors import ErrorCode
from tests.broker.groups.fakes import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    World,
    error_of,
    rejoin,
    static_pair,
)

E = ErrorCode


@pytest.fixture
def world() -> World:
    return World()


def test_static_members_get_their_id_at_once(world: World) -> None:
    leader, _ = static_pair(world)
    assert leader.member_id.startswith("i0-")
    assert leader.members[1].group_instance_id == "i1"


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_follower_comes_back_without_a_rebalance(world: World, version: int) -> None:
    leader, follower = static_pair(world)
    world.store.at_once = False
    answer = world.ask_join(instance="i1", version=version)
    assert not answer.done
    world.store.commit()
    world.loop.turn()
    joined = answer.response
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, leader.member_id)
    assert joined.member_id not in ("", follower.member_id)
    assert (joined.members, joined.skip_assignment) == ([], False)
    assert world.sync(joined, instance="i1", protocol_type="consumer").response.assignment == b"1"
    assert world.heartbeat(leader, instance="i0") is E.NONE
    assert world.heartbeat(follower, instance="i1") is E.FENCED_INSTANCE_ID
    assert world.heartbeat(follower) is E.UNKNOWN_MEMBER_ID
    assert error_of(world.sync(follower, instance="i1")) is E.FENCED_INSTANCE_ID
    fenced = world.ask_join(member=follower.member_id, instance="i1")
    assert (error_of(fenced), fenced.response.member_id) == (E.FENCED_INSTANCE_ID, follower.member_id)
    committed = world.store.state.group("g")
    assert committed is not None
    assert joined.member_id in {each.member_id for each in committed.members}


def test_a_static_leader_comes_back(world: World) -> None:
    leader, _ = static_pair(world)
    joined = world.ask_join(instance="i0", version=9).response
    assert (joined.leader, joined.skip_assignment) == (joined.member_id, True)
    assert len(joined.members) == 2
    older = world.ask_join(instance="i0", version=8).response
    assert (older.leader, older.members) == (joined.member_id, [])
    assert world.state() == "Stable"
    assert leader.member_id != joined.member_id != older.member_id


def test_a_static_member_comes_back_twice_during_the_commit(world: World) -> None:
    static_pair(world)
    world.store.at_once = False
    first = world.ask_join(instance="i1")
    second = world.ask_join(instance="i1")
    assert error_of(first) is E.FENCED_INSTANCE_ID
    world.store.commit()
    world.loop.turn()
    assert not second.done
    world.store.commit()
    world.loop.turn()
    assert error_of(second) is E.NONE
    assert world.heartbeat(second.response, instance="i1") is E.NONE


def test_a_static_member_that_could_not_be_written_is_its_old_self(world: World) -> None:
    _, follower = static_pair(world)
    world.store.at_once = False
    answer = world.ask_join(instance="i1", session_ms=20_000)
    world.store.commit(E.NOT_LEADER_OR_FOLLOWER)
    world.loop.turn()
    assert (error_of(answer), answer.response.member_id) == (E.NOT_COORDINATOR, "")
    assert world.heartbeat(follower, instance="i1") is E.NONE
    assert world.state() == "Stable"


def test_a_rebalance_during_a_static_members_commit_answers_it(world: World) -> None:
    leader, _ = static_pair(world)
    world.store.at_once = False
    back = world.ask_join(instance="i1")
    again = world.ask_join(member=leader.member_id, instance="i0")
    assert error_of(back) is E.NONE
    assert error_of(again) is E.NONE
    assert back.response.generation_id == again.response.generation_id == 2
    world.store.commit(E.NOT_COORDINATOR)
    assert world.state() == "CompletingRebalance"
    assert world.heartbeat(back.response, instance="i1") is E.NONE


def test_a_static_member_with_another_protocol_rebalances(world: World) -> None:
    both = {"range": b"r", "sticky": b"s"}
    leader, _ = static_pair(world, protocols=both)
    answer = world.ask_join(instance="i1", protocols={"sticky": b"s"})
    assert not answer.done
    assert world.heartbeat(leader, instance="i0") is E.REBALANCE_IN_PROGRESS
    world.ask_join(member=leader.member_id, instance="i0", protocols=both)
    assert answer.response.protocol_name == "sticky"


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """A consumer's metadata, with what it owns behind its topics."""
    names = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + names + owned


@pytest.mark.parametrize("instance", ["i0", "i1"])
@pytest.mark.parametrize("topics", [("old", "new"), ("new",), ()])
def test_a_static_member_that_subscribes_to_other_topics_rebalances(
    world: World, instance: str, topics: tuple[str, ...]
) -> None:
    """Nobody would read the new topic until the member has been away for a session (KAFKA-12759)."""
    members = dict(
        zip(("i0", "i1"), static_pair(world, protocols={"range": subscription("old")}), strict=True)
    )
    answer = world.ask_join(instance=instance, protocols={"range": subscription(*topics)})
    assert not answer.done
    (other,) = (each for each in members if each != instance)
    assert world.heartbeat(members[other], instance=other) is E.REBALANCE_IN_PROGRESS
    again = world.ask_join(
        member=members[other].member_id, instance=other, protocols={"range": subscription("old")}
    )
    assert error_of(answer) is error_of(again) is E.NONE
    assert answer.response.generation_id == again.response.generation_id == 2
    (leading,) = (each.response for each in (answer, again) if each.response.members)
    assert not leading.skip_assignment
    assert {each.group_instance_id: bytes(each.metadata) for each in leading.members} == {
        instance: subscription(*topics),
        other: subscription("old"),
    }


def test_a_static_member_comes_back_with_the_same_topics(world: World) -> None:
    """Their order and what it owned say nothing, nor does metadata that is no consumer's."""
    static_pair(world, protocols={"range": subscription("a", "b", owned=b"a-0")})
    same = world.ask_join(instance="i1", protocols={"range": subscription("b", "a")})
    assert error_of(same) is E.NONE and same.response.generation_id == 1
    unread = world.ask_join(group="other", instance="i1", protocols={"range": b"x"})
    world.loop.advance(2 * DELAY_MS)
    world.sync(unread.response, {unread.response.member_id: b"1"}, instance="i1", group="other")
    again = world.ask_join(group="other", instance="i1", protocols={"range": b"y"})
    assert error_of(again) is E.NONE and again.response.generation_id == 1


def test_a_static_member_of_another_type_of_group_comes_back(world: World) -> None:
    """Its metadata is opaque: it may differ after each restart."""
    static_pair(world, protocol_type="connect", protocols={"v0": subscription("old")})
    answer = world.ask_join(instance="i1", protocol_type="connect", protocols={"v0": subscription("new")})
    assert error_of(answer) is E.NONE and answer.response.generation_id == 1


def test_a_static_member_that_subscribes_to_other_topics_during_its_commit(world: World) -> None:
    leader, _ = static_pair(world, protocols={"range": subscription("old")})
    world.store.at_once = False
    first = world.ask_join(instance="i1", protocols={"range": subscription("old")})
    second = world.ask_join(instance="i1", protocols={"range": subscription("new")})
    assert error_of(first) is E.FENCED_INSTANCE_ID
    world.store.commit()
    world.loop.turn()
    assert not second.done and world.state() == "PreparingRebalance"
    world.ask_join(member=leader.member_id, instance="i0", protocols={"range": subscription("old")})
    assert error_of(second) is E.NONE and second.response.generation_id == 2


def test_a_static_member_comes_back_with_another_assignor(world: World) -> None:
    """What its old self knew does not count: it is replaced."""
    first = world.ask_join(instance="i0", protocols={"range": b"r"})
    world.loop.advance(2 * DELAY_MS)
    world.sync(first.response, {first.response.member_id: b"0"}, instance="i0")
    back = world.ask_join(instance="i0", protocols={"sticky": b"s"})
    assert (error_of(back), back.response.protocol_name, back.response.generation_id) == (E.NONE, "sticky", 2)
    refused = world.ask_join(instance="i1", protocols={"range": b"r"})
    assert error_of(refused) is E.INCONSISTENT_GROUP_PROTOCOL
    connecting = world.ask_join(instance="i0", protocol_type="connect", protocols={"sticky": b"s"})
    assert error_of(connecting) is E.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_comes_back_with_what_the_others_do_not_know(world: World) -> None:
    leader, follower = static_pair(world, protocols={"range": b"r"})
    back = world.ask_join(instance="i1", protocols={"sticky": b"s"})
    assert error_of(back) is E.INCONSISTENT_GROUP_PROTOCOL
    for number, each in enumerate((leader, follower)):
        assert world.heartbeat(each, instance=f"i{number}") is E.NONE


def test_a_static_member_comes_back_before_the_assignment(world: World) -> None:
    waiting = [world.ask_join(instance=f"i{n}") for n in range(2)]
    world.loop.advance(2 * DELAY_MS)
    leader, follower = (each.response for each in waiting)
    followed = world.sync(follower, instance="i1")
    back = world.ask_join(instance="i1")
    assert error_of(followed) is E.FENCED_INSTANCE_ID
    assert world.state() == "PreparingRebalance"
    world.ask_join(member=leader.member_id, instance="i0")
    assert error_of(back) is E.NONE


def test_a_static_member_comes_back_while_it_waits_to_join(world: World) -> None:
    first = world.ask_join(instance="i0")
    second = world.ask_join(instance="i0")
    assert error_of(first) is E.FENCED_INSTANCE_ID
    world.loop.advance(2 * DELAY_MS)
    assert error_of(second) is E.NONE
    assert len(second.response.members) == 1


def test_a_static_member_that_came_back_waits_as_long_as_the_others_take(world: World) -> None:
    members = static_pair(world, rebalance_ms=10 * SESSION_MS)
    world.ask_join(instance="i2", rebalance_ms=10 * SESSION_MS)
    again = world.ask_join(instance="i2", rebalance_ms=10 * SESSION_MS)
    for _ in range(6):
        world.loop.advance(SESSION_MS // 2)
        for number, each in enumerate(members):
            world.heartbeat(each, instance=f"i{number}")
    assert not again.done


def test_silent_static_members_stay_until_their_session_ends(world: World) -> None:
    leader, follower = static_pair(world, session_ms=100_000)
    (answer,) = rejoin(world, leader, instance="i0")
    world.loop.advance(REBALANCE_MS)
    assert error_of(answer) is E.NONE
    assert len(answer.response.members) == 2
    assert world.heartbeat(follower, instance="i1", generation=2) is E.NONE


def test_only_silent_static_members(world: World) -> None:
    _, follower = static_pair(world, session_ms=100_000)
    world.ask_join(instance="i2", session_ms=100_000)
    world.leave(instances=["i2"])
    world.loop.advance(REBALANCE_MS)
    assert world.state() == "PreparingRebalance"
    world.loop.advance(100_000)
    assert world.state() == "Empty"
    assert world.heartbeat(follower, instance="i1") is E.UNKNOWN_MEMBER_ID


def test_an_id_handed_out_is_not_a_static_members(world: World) -> None:
    pending = world.ask_join().response.member_id
    assert error_of(world.ask_join(member=pending, instance="i")) is E.UNKNOWN_MEMBER_ID


# --- static members of a full group ----------------------------------------------------------------------


@pytest.fixture
def small() -> World:
    """Groups have room for two members."""
    return World(group_max_size="2")


def full_pair(world: World) -> tuple[Any, Any]:
    """A Stable group of as many static members as it may have."""
    pair = static_pair(world)
    assert error_of(world.ask_join(instance="i2")) is E.GROUP_MAX_SIZE_REACHED
    return pair


@pytest.mark.parametrize("instance", ["i0", "i1"])
def test_a_static_member_of_a_full_group_comes_back(small: World, instance: str) -> None:
    """It is no further member (KAFKA-20601)."""
    full_pair(small)
    for _ in range(2):
        back = small.ask_join(instance=instance)
        assert (error_of(back), back.response.generation_id) == (E.NONE, 1)
    assert small.state() == "Stable"


def test_a_static_member_of_a_full_group_comes_back_in_every_state(small: World) -> None:
    leader, _ = full_pair(small)
    (waiting,) = rejoin(small, leader, instance="i0")
    assert small.state() == "PreparingRebalance"
    back = small.ask_join(instance="i1")
    assert error_of(waiting) is error_of(back) is E.NONE and small.state() == "CompletingRebalance"
    again = small.ask_join(instance="i1")
    assert small.state() == "PreparingRebalance" and not again.done
    third = small.ask_join(instance="i1")
    assert error_of(again) is E.FENCED_INSTANCE_ID
    (waiting,) = rejoin(small, leader, instance="i0")
    assert error_of(waiting) is error_of(third) is E.NONE
    assert len(waiting.response.members) == 2


def test_a_fenced_member_of_a_full_group_is_rejected(small: World) -> None:
    _, follower = full_pair(small)
    small.ask_join(instance="i1")
    assert error_of(small.ask_join(member=follower.member_id, instance="i1")) is E.FENCED_INSTANCE_ID
    assert error_of(small.ask_join(member="gone", instance="i7")) is E.UNKNOWN_MEMBER_ID
    assert error_of(small.ask_join(member="gone")) is E.GROUP_MAX_SIZE_REACHED


def test_a_static_member_that_left_a_full_group_has_given_its_place_up(small: World) -> None:
    leader, _ = full_pair(small)
    small.leave(instances=["i1"])
    (waiting,) = rejoin(small, leader, instance="i0")
    assert error_of(waiting) is E.NONE
    taken = small.ask_join(instance="i2")
    rejoin(small, leader, instance="i0")
    assert error_of(taken) is E.NONE
    assert error_of(small.ask_join(instance="i1")) is E.GROUP_MAX_SIZE_REACHED


def test_static_members_of_a_group_that_became_too_large(small: World) -> None:
    """Whoever joins last is left out, as of dynamic members; it is not waited for."""
    leader, _ = full_pair(small)
    small.settings = World(group_max_size="1").settings
    small.start()
    (waiting,) = rejoin(small, leader, instance="i0")
    assert not waiting.done
    assert error_of(small.ask_join(instance="i1")) is E.GROUP_MAX_SIZE_REACHED
    assert error_of(waiting) is E.NONE and len(waiting.response.members) == 1
