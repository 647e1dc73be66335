"""JoinGroup on a clock and a store driven by hand: new members and old ones."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.groups.classic_group import MEMBER_BYTES, group_bytes
from lockstep.protocol.errors import ErrorCode
from tests.broker.groups.fakes import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    World,
    completing,
    error_of,
    rejoin,
    static_pair,
)
from tests.support.cases import each_case

E = ErrorCode


@pytest.fixture
def world() -> World:
    return World()


# --- joining ---------------------------------------------------------------------------------------------


def test_a_new_member_is_given_an_id_first(world: World) -> None:
    refused = world.ask_join(client="app")
    assert error_of(refused) is E.MEMBER_ID_REQUIRED
    member_id = refused.response.member_id
    assert member_id.startswith("app-")
    assert len(member_id) == len("app-") + 36
    assert (refused.response.generation_id, refused.response.protocol_name) == (-1, None)
    assert world.state() == "Empty"
    answer = world.ask_join(member=member_id)
    assert not answer.done
    world.loop.advance(DELAY_MS)
    joined = answer.response
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, member_id)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [(each.member_id, each.metadata) for each in joined.members] == [(member_id, b"meta")]
    assert world.state() == "CompletingRebalance"


@pytest.mark.parametrize("version", range(4))
def test_older_versions_need_no_id(world: World, version: int) -> None:
    answer = world.ask_join(version=version)
    world.loop.advance(DELAY_MS)
    assert error_of(answer) is E.NONE
    assert answer.response.member_id.startswith("client-")


def test_version_0_has_one_timeout(world: World) -> None:
    (first,) = world.stable(1, version=0, rebalance_ms=-1)
    world.ask_join(version=0, rebalance_ms=-1)
    world.heartbeat(first)
    world.loop.advance(SESSION_MS - 1)
    assert world.state() == "PreparingRebalance"
    world.loop.advance(1)
    assert world.state() == "CompletingRebalance"


def test_a_handed_out_id_is_forgotten_after_its_session(world: World) -> None:
    member_id = world.ask_join().response.member_id
    world.loop.advance(SESSION_MS)
    assert world.state() == "Dead"
    assert world.loop.armed == 0
    assert error_of(world.ask_join(member=member_id)) is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"group": ""}, E.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, E.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ({"session_ms": -1}, E.INVALID_SESSION_TIMEOUT),
        ({"member": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"protocols": {}}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_refused(world: World, wanted: dict[str, Any], error: ErrorCode) -> None:
    answer = world.ask_join(**wanted)
    assert error_of(answer) is error
    assert answer.response.member_id == wanted.get("member", "")
    assert world.loop.armed == 0
    assert world.coordinator.listed() == []


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_no_protocol_is_empty_then_null(world: World, version: int, name: str | None) -> None:
    assert world.ask_join(version=version, protocols={}).response.protocol_name == name


def test_protocols_that_do_not_fit_the_group(world: World) -> None:
    world.stable(1)
    assert error_of(world.ask_join(protocols={"other": b""})) is E.INCONSISTENT_GROUP_PROTOCOL
    assert error_of(world.ask_join(protocol_type="connect")) is E.INCONSISTENT_GROUP_PROTOCOL


def test_the_first_rebalance_waits_for_more(world: World) -> None:
    first = world.join()
    world.loop.advance(DELAY_MS - 1)
    second = world.join()
    world.loop.advance(1)
    assert not first.done
    world.loop.advance(DELAY_MS)
    assert first.done
    assert second.done
    assert len(first.response.members) == 2
    assert second.response.members == []


def test_but_no_longer_than_the_rebalance_timeout(world: World) -> None:
    first = world.join(rebalance_ms=7_000)
    waiting = [first]
    for _ in range(7):
        assert not first.done
        world.loop.advance(1_000)
        waiting.append(world.join(rebalance_ms=7_000))
    assert first.done
    assert sum(each.done for each in waiting) == 7


def test_no_delay(world: World) -> None:
    world = World(group_initial_rebalance_delay_ms="0")
    answer = world.join()
    world.loop.advance(0)
    assert error_of(answer) is E.NONE


def test_full_group() -> None:
    world = World(group_max_size="2")
    world.stable(2)
    assert error_of(world.ask_join()) is E.GROUP_MAX_SIZE_REACHED
    assert world.ask_join().response.member_id == ""
    assert world.state() == "Stable"


def test_an_id_that_finds_no_room_any_more_is_not_waited_for() -> None:
    world = World(group_max_size="3")
    leader, follower = world.stable(2)
    late = world.ask_join(client="late").response.member_id
    newcomer = world.join(client="new")
    answers = [newcomer, *rejoin(world, leader, follower)]
    assert not any(each.done for each in answers), "the handed out id may come yet"
    assert error_of(world.ask_join(member=late, client="late")) is E.GROUP_MAX_SIZE_REACHED
    assert [error_of(each) for each in answers] == [E.NONE] * 3
    assert world.state() == "CompletingRebalance"


def test_the_last_to_join_again_is_removed_from_a_group_that_became_too_large() -> None:
    world = World()
    members = world.stable(3)
    world.settings = World(group_max_size="2").settings
    world.coordinator.resign()
    world.loop.turn()
    world.start()
    assert world.state() == "PreparingRebalance"
    first, second, third = rejoin(world, *members)
    assert error_of(third) is E.GROUP_MAX_SIZE_REACHED
    assert (error_of(first), error_of(second)) == (E.NONE, E.NONE)
    assert len(world.coordinator.describe("g").members) == 2  # type: ignore[union-attr]


def test_the_lead_counts_once_all_are_there(world: World) -> None:
    leader, follower = world.stable(2)
    newcomer = world.join(client="new")
    assert not newcomer.done
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(leader) is E.REBALANCE_IN_PROGRESS
    answers = rejoin(world, leader, follower)
    assert [error_of(each) for each in (*answers, newcomer)] == [E.NONE] * 3
    assert {each.response.leader for each in (*answers, newcomer)} == {leader.member_id}
    assert [len(each.response.members) for each in (*answers, newcomer)] == [3, 0, 0]
    assert {each.response.generation_id for each in answers} == {2}


def test_a_member_that_does_not_join_again_is_removed(world: World) -> None:
    leader, follower = world.stable(2)
    (answer,) = rejoin(world, leader)
    for _ in range(6):
        world.heartbeat(follower)
        world.loop.advance(REBALANCE_MS / 6 - 1)
        assert not answer.done
    world.loop.advance(6)
    assert error_of(answer) is E.NONE
    assert [each.member_id for each in answer.response.members] == [leader.member_id]
    assert world.heartbeat(follower) is E.UNKNOWN_MEMBER_ID


def test_leader_that_is_late_loses_the_lead(world: World) -> None:
    leader, follower = world.stable(2)
    answer = world.ask_join(member=follower.member_id, protocols={"range": b"changed"})
    for _ in range(7):
        world.heartbeat(leader)
        world.loop.advance(REBALANCE_MS / 6)
    assert error_of(answer) is E.NONE
    assert answer.response.leader == follower.member_id


def test_the_rebalance_timeout_is_the_longest_of_all(world: World) -> None:
    leader, follower = world.stable(2, session_ms=200_000)
    world.ask_join(member=leader.member_id, rebalance_ms=90_000, session_ms=200_000)
    world.loop.advance(89_000)
    assert world.state() == "PreparingRebalance"
    world.loop.advance(1_000)
    assert world.state() == "CompletingRebalance"
    assert world.heartbeat(follower) is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("changed", [False, True])
def test_a_follower_joins_a_stable_group_again(world: World, changed: bool) -> None:
    leader, follower = world.stable(2)
    metadata = b"changed" if changed else b"meta"
    answer = world.ask_join(member=follower.member_id, protocols={"range": metadata})
    if changed:
        assert not answer.done
        assert world.heartbeat(leader) is E.REBALANCE_IN_PROGRESS
    else:
        assert (answer.response.error_code, answer.response.generation_id) == (0, 1)
        assert (answer.response.members, answer.response.skip_assignment) == ([], False)
        assert world.state() == "Stable"


def test_a_leader_joins_a_stable_group_again(world: World) -> None:
    leader, _ = world.stable(2)
    answer = world.ask_join(member=leader.member_id)
    assert not answer.done
    assert world.state() == "PreparingRebalance"


@pytest.mark.parametrize("changed", [False, True])
def test_joining_again_before_the_assignment(world: World, changed: bool) -> None:
    waiting = [world.join(), world.join()]
    world.loop.advance(2 * DELAY_MS)
    leader, follower = (each.response for each in waiting)
    synced = world.sync(follower)
    metadata = b"changed" if changed else b"meta"
    answer = world.ask_join(member=leader.member_id, protocols={"range": metadata})
    if changed:
        assert error_of(synced) is E.REBALANCE_IN_PROGRESS
        assert not answer.done
    else:
        assert len(answer.response.members) == 2
        assert (answer.response.generation_id, synced.done) == (1, False)


def test_a_join_sent_twice_has_two_answers(world: World) -> None:
    leader, _ = world.stable(2)
    first = world.ask_join(member=leader.member_id)
    second = world.ask_join(member=leader.member_id)
    assert error_of(first) is E.REBALANCE_IN_PROGRESS
    assert not second.done


def test_a_group_holds_so_much_metadata() -> None:
    world = World(message_max_bytes="1000")
    (member,) = world.stable(1, protocols={"range": b"m", "sticky": b"m" * 15_000})
    assert error_of(world.ask_join(protocols={"range": b"m" * 2_000})) is E.GROUP_MAX_SIZE_REACHED
    assert error_of(world.ask_join(protocols={"range": b"m"})) is E.MEMBER_ID_REQUIRED
    world.ask_join(member=member.member_id, protocols={"range": b"m"})
    assert error_of(world.ask_join(protocols={"range": b"m" * 2_000})) is E.MEMBER_ID_REQUIRED


def test_all_groups_hold_so_much() -> None:
    world = World(lockstep_groups_max_bytes=str(3 * MEMBER_BYTES + group_bytes("g")))
    members = world.stable(3)
    refused = world.ask_join(group="other")
    assert error_of(refused) is E.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(members[0]) is E.NONE
    world.leave(*(each.member_id for each in members))
    assert error_of(world.ask_join(group="other")) is E.MEMBER_ID_REQUIRED


def test_a_static_member_comes_back_where_there_is_memory_for_nobody_else() -> None:
    """It takes none that its old self did not."""
    world = World(lockstep_groups_max_bytes=str(2 * MEMBER_BYTES + group_bytes("g") + 200))
    static_pair(world)
    assert error_of(world.ask_join(instance="i2")) is E.COORDINATOR_NOT_AVAILABLE
    assert error_of(world.ask_join(instance="i1")) is E.NONE


def test_ids_handed_out_and_members_take_no_more_than_there_is() -> None:
    world = World(lockstep_groups_max_bytes="160000")
    ids = [world.ask_join(group=f"g{n}").response.member_id for n in range(50)]
    for n, member_id in enumerate(ids):
        world.ask_join(group=f"g{n}", member=member_id, protocols={"range": b"m" * 20_000})
    assert world.coordinator._context.memory_bytes <= 160_000
    world.loop.advance(2 * DELAY_MS)
    world.ask_join(group="g0", member=ids[0], protocols={"range": b"m" * 500_000})
    assert world.coordinator._context.memory_bytes <= 200_000
    # What it had before it may have again.
    again = world.ask_join(group="g0", member=ids[0], protocols={"range": b"m" * 20_000})
    assert not again.done or error_of(again) is E.NONE


def test_assignments_count() -> None:
    world = World(lockstep_groups_max_bytes="100000")
    (leader,) = completing(world, 1)
    assert error_of(world.sync(leader, {leader.member_id: b"p" * 50_000})) is E.COORDINATOR_NOT_AVAILABLE
    assert error_of(world.sync(leader, {leader.member_id: b"p" * 20_000})) is E.NONE
    assert world.coordinator._context.memory_bytes > 3 * 20_000
    world.leave(leader.member_id)
    assert world.coordinator._context.memory_bytes == 0


@each_case("instance", [None, "i" * 30_000])
def test_long_names_count(instance: str | None) -> None:
    world = World()
    world.join(client="c" * 30_000, instance=instance, version=5)
    assert world.coordinator._context.memory_bytes > 3 * 30_000


def test_long_ids_of_groups_count() -> None:
    world = World(lockstep_groups_max_bytes="100000")
    answers = [world.ask_join(group=str(number) * 30_000) for number in range(5)]
    assert [error_of(each) for each in answers] == [
        *[E.MEMBER_ID_REQUIRED] * 3,
        *[E.COORDINATOR_NOT_AVAILABLE] * 2,
    ]
    assert 3 * 30_000 < world.coordinator._context.memory_bytes <= 100_000
    world.loop.advance(SESSION_MS)
    assert world.coordinator._context.memory_bytes == 0


def test_protocols_without_metadata_count() -> None:
    world = World()
    answer = world.ask_join(version=0, protocols={str(n): b"" for n in range(150_000)})
    assert error_of(answer) is E.GROUP_MAX_SIZE_REACHED
