"""The coordinator on a clock and a store driven by hand: every way a member can join, sync, live and go."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups.classic import MEMBER_BYTES
from broker.groups.records import CommittedOffset, offset_record
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest
from tests.broker.groups.fakes import DELAY_MS, REBALANCE_MS, SESSION_MS, World

E = ErrorCode


@pytest.fixture
def world() -> World:
    return World()


def error_of(answer: Any) -> ErrorCode:
    """What a Deferred was answered with."""
    assert answer.done, "not answered"
    return ErrorCode(answer.response.error_code)


def rejoin(world: World, *members: Any, **more: Any) -> list[Any]:
    """Members join again; those the rebalance waits for are answered when all have."""
    return [world.ask_join(member=each.member_id, **more) for each in members]


# --- joining ----------------------------------------------------------------------------------------------


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


def test_who_joins_again_last_is_left_out_of_a_group_that_became_too_large() -> None:
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


def test_whoever_does_not_join_again_is_left_behind(world: World) -> None:
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
    world = World(lockstep_groups_max_bytes=str(3 * MEMBER_BYTES))
    members = world.stable(3)
    refused = world.ask_join(group="other")
    assert error_of(refused) is E.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(members[0]) is E.NONE
    world.leave(*(each.member_id for each in members))
    assert error_of(world.ask_join(group="other")) is E.MEMBER_ID_REQUIRED


# --- syncing ----------------------------------------------------------------------------------------------


def completing(world: World, count: int = 2, **more: Any) -> list[Any]:
    """A group that has joined and waits for its assignment; the leader first."""
    waiting = [world.join(client=f"c{n}", **more) for n in range(count)]
    world.loop.advance(2 * DELAY_MS)
    return [each.response for each in waiting]


def test_everybody_is_told_when_it_is_committed(world: World) -> None:
    leader, follower = completing(world)
    world.store.at_once = False
    followed = world.sync(follower)
    assert not followed.done
    led = world.sync(leader, {leader.member_id: b"1", follower.member_id: b"2", "ghost": b"3"})
    assert not led.done
    assert world.state() == "CompletingRebalance"
    world.store.commit()
    world.loop.turn()
    assert (led.response.assignment, followed.response.assignment) == (b"1", b"2")
    assert (led.response.protocol_type, led.response.protocol_name) == ("consumer", "range")
    assert world.state() == "Stable"
    committed = world.store.state.group("g")
    assert committed is not None
    assert (committed.generation, committed.leader, committed.protocol) == (1, leader.member_id, "range")
    assert [(each.member_id, each.assignment) for each in committed.members] == [
        (leader.member_id, b"1"),
        (follower.member_id, b"2"),
    ]
    assert world.sync(follower).response.assignment == b"2"


def test_a_member_the_leader_forgot_has_nothing(world: World) -> None:
    leader, follower = completing(world)
    followed = world.sync(follower)
    world.sync(leader, {leader.member_id: b"1"})
    assert (error_of(followed), followed.response.assignment) == (E.NONE, b"")


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"group": ""}, E.INVALID_GROUP_ID),
        ({"group": "other"}, E.UNKNOWN_MEMBER_ID),
        ({"member": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"instance": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, E.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "roundrobin"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": None, "protocol_type": None}, E.NONE),
    ],
)
def test_sync_refused(world: World, wanted: dict[str, Any], error: ErrorCode) -> None:
    leader, _ = completing(world)
    answer = world.sync(leader, {}, **wanted)
    assert error_of(answer) is error


def test_sync_while_others_join(world: World) -> None:
    leader, follower = world.stable(2)
    rejoin(world, leader)
    assert error_of(world.sync(follower)) is E.REBALANCE_IN_PROGRESS


def test_a_sync_sent_twice_has_two_answers(world: World) -> None:
    leader, follower = completing(world)
    first = world.sync(follower)
    second = world.sync(follower)
    assert error_of(first) is E.REBALANCE_IN_PROGRESS
    world.store.at_once = False
    led = world.sync(leader, {follower.member_id: b"1"})
    again = world.sync(leader, {follower.member_id: b"2"})
    assert error_of(led) is E.REBALANCE_IN_PROGRESS
    assert len(world.store.waiting) == 1
    world.store.commit()
    world.loop.turn()
    assert (second.response.assignment, error_of(again)) == (b"1", E.NONE)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (E.NOT_COORDINATOR, E.NOT_COORDINATOR),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_commit_that_fails(world: World, failure: ErrorCode, told: ErrorCode) -> None:
    leader, follower = completing(world)
    world.store.at_once = False
    answers = [world.sync(follower), world.sync(leader, {follower.member_id: b"1"})]
    world.store.commit(failure)
    world.loop.turn()
    assert [error_of(each) for each in answers] == [told, told]
    assert world.state() == "PreparingRebalance"
    world.store.at_once = True
    joined = [each.response for each in rejoin(world, leader, follower)]
    assert [each.generation_id for each in joined] == [2, 2]
    assert error_of(world.sync(joined[0], {})) is E.NONE


def test_a_generation_that_is_too_large_for_a_batch() -> None:
    world = World(message_max_bytes="1000")
    leader, _ = completing(world)
    answer = world.sync(leader, {leader.member_id: b"x" * 1_000})
    assert error_of(answer) is E.UNKNOWN_SERVER_ERROR
    assert (world.store.written, world.state()) == ([], "PreparingRebalance")


def test_a_join_during_the_commit_ends_that_generation(world: World) -> None:
    leader, follower = completing(world)
    world.store.at_once = False
    answers = [world.sync(follower), world.sync(leader, {follower.member_id: b"1"})]
    newcomer = world.join(client="new")
    assert [error_of(each) for each in answers] == [E.REBALANCE_IN_PROGRESS] * 2
    world.store.commit()
    world.loop.turn()
    assert world.state() == "PreparingRebalance"
    rejoin(world, leader, follower)
    assert newcomer.response.generation_id == 2
    described = world.coordinator.describe("g")
    assert described is not None
    assert {each.member_assignment for each in described.members} == {b""}


def test_a_leave_during_the_commit_ends_that_generation(world: World) -> None:
    leader, follower = completing(world)
    world.store.at_once = False
    led = world.sync(leader, {leader.member_id: b"1", follower.member_id: b"2"})
    followed = world.sync(follower)
    assert world.leave(follower.member_id).error_code == 0
    assert error_of(followed) is E.UNKNOWN_MEMBER_ID
    assert error_of(led) is E.REBALANCE_IN_PROGRESS
    world.store.commit()
    assert world.state() == "PreparingRebalance"
    assert error_of(rejoin(world, leader)[0]) is E.NONE


def test_a_late_commit_of_an_older_generation_changes_nothing(world: World) -> None:
    leader, follower = completing(world)
    world.store.at_once = False
    world.sync(leader, {leader.member_id: b"old"})
    rejoin(world, *(leader, follower), protocols={"range": b"new"})
    assert world.state() == "CompletingRebalance"
    world.store.commit()
    assert world.state() == "CompletingRebalance"
    second = world.sync(leader, {leader.member_id: b"new"}, generation=2)
    world.store.commit()
    world.loop.turn()
    assert second.response.assignment == b"new"


def test_members_that_never_sync_are_left_behind(world: World) -> None:
    leader, follower = completing(world, rebalance_ms=20_000)
    assert error_of(world.sync(leader, {})) is E.NONE
    for _ in range(4):
        assert world.heartbeat(leader) is E.NONE
        assert world.heartbeat(follower) is E.NONE
        assert world.state() == "Stable"
        world.loop.advance(5_000)
    assert world.heartbeat(follower) is E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(leader) is E.REBALANCE_IN_PROGRESS


def test_a_leader_that_dies_before_it_syncs(world: World) -> None:
    leader, follower = completing(world)
    followed = world.sync(follower)
    world.loop.advance(SESSION_MS)
    assert error_of(followed) is E.REBALANCE_IN_PROGRESS
    assert world.heartbeat(leader) is E.UNKNOWN_MEMBER_ID
    (answer,) = rejoin(world, follower)
    assert (answer.response.leader, answer.response.generation_id) == (follower.member_id, 2)


# --- heartbeats and sessions ------------------------------------------------------------------------------


def test_heartbeats(world: World) -> None:
    leader, follower = world.stable(2)
    assert world.heartbeat(leader) is E.NONE
    assert world.heartbeat(leader, group="") is E.INVALID_GROUP_ID
    assert world.heartbeat(leader, group="other") is E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(leader, member="other") is E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(leader, generation=2) is E.ILLEGAL_GENERATION
    assert world.heartbeat(leader, generation=0) is E.ILLEGAL_GENERATION
    assert world.heartbeat(leader, instance="other") is E.UNKNOWN_MEMBER_ID
    pending = world.ask_join().response
    assert world.heartbeat(pending, generation=1) is E.UNKNOWN_MEMBER_ID
    rejoin(world, leader)
    assert world.heartbeat(follower) is E.REBALANCE_IN_PROGRESS


def test_heartbeats_before_the_assignment(world: World) -> None:
    leader, _ = completing(world)
    assert world.heartbeat(leader) is E.NONE


def test_a_member_without_heartbeats_is_missed(world: World) -> None:
    leader, follower = world.stable(2)
    world.loop.advance(SESSION_MS - 1)
    assert world.heartbeat(leader) is E.NONE
    world.loop.advance(1)
    assert world.heartbeat(follower) is E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(leader) is E.REBALANCE_IN_PROGRESS
    (answer,) = rejoin(world, leader)
    assert error_of(answer) is E.NONE


def test_heartbeats_cost_no_timers(world: World) -> None:
    leader, follower = world.stable(2)
    armed = world.loop.armed
    for _ in range(100):
        world.heartbeat(leader)
        world.heartbeat(follower)
        world.loop.advance(1_000)
    assert world.loop.armed == armed == 2


def test_a_session_that_becomes_shorter_counts_at_once(world: World) -> None:
    (leader,) = world.stable(1, session_ms=60_000)
    world.ask_join(member=leader.member_id, session_ms=6_000)
    world.loop.advance(6_000)
    assert world.state() == "Empty"


def test_waiting_counts_as_alive(world: World) -> None:
    leader, follower = world.stable(2)
    (answer,) = rejoin(world, leader)
    for _ in range(5):
        world.loop.advance(SESSION_MS - 1)
        world.heartbeat(follower)
    assert not answer.done
    assert world.state() == "PreparingRebalance"
    rejoin(world, follower)
    assert error_of(answer) is E.NONE
    world.loop.advance(SESSION_MS - 1)
    assert world.heartbeat(leader, generation=2) is E.NONE


def test_waiting_for_the_assignment_counts_as_alive(world: World) -> None:
    leader, follower = completing(world)
    followed = world.sync(follower)
    for _ in range(4):
        world.heartbeat(leader)
        world.loop.advance(SESSION_MS - 1)
    assert not followed.done
    world.sync(leader, {})
    assert error_of(followed) is E.NONE
    world.loop.advance(SESSION_MS)
    assert world.state() == "Empty"


def test_new_members_wait_five_minutes_at_most(world: World) -> None:
    (leader,) = world.stable(1, rebalance_ms=1_000_000)
    newcomer = world.join(client="new")
    for _ in range(60):
        assert not newcomer.done
        world.heartbeat(leader)
        world.loop.advance(5_000)
    assert error_of(newcomer) is E.UNKNOWN_MEMBER_ID
    assert newcomer.response.member_id == ""


def test_a_handed_out_id_that_never_comes_holds_a_rebalance_up_for_its_session(world: World) -> None:
    (leader,) = world.stable(1)
    world.ask_join()
    (answer,) = rejoin(world, leader)
    assert not answer.done
    world.loop.advance(SESSION_MS)
    assert error_of(answer) is E.NONE


def test_a_handed_out_id_that_expires_does_not_disturb_a_stable_group(world: World) -> None:
    world.stable(1)
    world.ask_join(session_ms=6_000)
    world.loop.advance(6_000)
    assert world.state() == "Stable"


# --- static members ---------------------------------------------------------------------------------------


def static_pair(world: World, **more: Any) -> tuple[Any, Any]:
    """A Stable group of a static leader "i0" and a static follower "i1"."""
    waiting = [world.ask_join(instance=f"i{n}", **more) for n in range(2)]
    world.loop.advance(2 * DELAY_MS)
    leader, follower = (each.response for each in waiting)
    world.sync(leader, {leader.member_id: b"0", follower.member_id: b"1"}, instance="i0")
    world.sync(follower, instance="i1")
    assert world.state() == "Stable"
    return leader, follower


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


# --- leaving ----------------------------------------------------------------------------------------------


def test_leaving(world: World) -> None:
    leader, follower = world.stable(2)
    answer = world.leave(follower.member_id, "unknown")
    assert answer.error_code == 0
    assert [each.error_code for each in answer.members] == [0, E.UNKNOWN_MEMBER_ID]
    assert world.heartbeat(leader) is E.REBALANCE_IN_PROGRESS
    assert error_of(rejoin(world, leader)[0]) is E.NONE


def test_the_last_member_leaves_when_it_is_committed(world: World) -> None:
    (leader,) = world.stable(1)
    world.store.at_once = False
    answer = world.leave(leader.member_id)
    assert not answer.done
    assert world.state() == "Empty"
    world.store.commit()
    assert (answer.response.error_code, answer.response.members[0].error_code) == (0, 0)
    committed = world.store.state.group("g")
    assert committed is not None
    assert (committed.members, committed.generation, committed.protocol_type) == ((), 2, "consumer")
    assert (committed.protocol, committed.leader) == (None, None)
    assert world.loop.armed == 0


def test_the_last_member_leaves_and_it_cannot_be_written(world: World) -> None:
    (leader,) = world.stable(1)
    world.store.at_once = False
    answer = world.leave(leader.member_id)
    world.store.commit(E.KAFKA_STORAGE_ERROR)
    assert (answer.response.error_code, answer.response.members) == (E.NOT_COORDINATOR, [])
    assert world.state() == "Empty"
    assert error_of(world.ask_join(member=leader.member_id)) is E.UNKNOWN_MEMBER_ID


def test_emptied_twice_before_a_commit(world: World) -> None:
    world = World(group_initial_rebalance_delay_ms="0")
    (leader,) = world.stable(1)
    world.store.at_once = False
    first = world.leave(leader.member_id)
    newcomer = world.join()
    world.loop.advance(0)
    second = world.leave(newcomer.response.member_id)
    world.store.commit()
    assert (first.done, second.done) == (True, False)
    world.store.commit()
    assert second.done
    committed = world.store.state.group("g")
    assert committed is not None
    assert committed.generation == newcomer.response.generation_id + 1


def test_leaving_by_instance_id(world: World) -> None:
    leader, follower = static_pair(world)
    answer = world.coordinator.leave(
        LeaveGroupRequest(group_id="g", members=[]),
        5,
    )
    assert answer.members == []  # type: ignore[union-attr]
    answer = world.leave(instances=["i1", "unknown"])
    assert [each.error_code for each in answer.members] == [0, E.UNKNOWN_MEMBER_ID]
    assert [each.group_instance_id for each in answer.members] == ["i1", "unknown"]
    assert world.heartbeat(follower) is E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(leader, instance="i0") is E.REBALANCE_IN_PROGRESS


def test_leaving_in_old_versions(world: World) -> None:
    leader, _ = world.stable(2)
    assert world.leave("unknown", version=2).error_code == E.UNKNOWN_MEMBER_ID
    assert world.leave("unknown", group="other", version=0).error_code == E.UNKNOWN_MEMBER_ID
    assert world.leave(leader.member_id, version=1).error_code == 0
    assert world.state() == "PreparingRebalance"
    assert world.leave("x", group="").error_code == E.INVALID_GROUP_ID


def test_leaving_a_group_that_there_is_not(world: World) -> None:
    answer = world.leave("x", group="other")
    assert (answer.error_code, answer.members[0].error_code) == (0, E.UNKNOWN_MEMBER_ID)


def test_leaving_while_it_waits_to_join(world: World) -> None:
    leader, follower = world.stable(2)
    newcomer = world.join(client="new")
    member_id = next(
        each.member_id
        for each in world.coordinator.describe("g").members  # type: ignore[union-attr]
        if each.member_id.startswith("new-")
    )
    (first,) = rejoin(world, leader)
    (second,) = rejoin(world, follower) if newcomer.done else (None,)
    world.leave(member_id)
    assert error_of(newcomer) is E.UNKNOWN_MEMBER_ID
    assert second is None
    assert not first.done
    rejoin(world, follower)
    assert error_of(first) is E.NONE
    assert len(first.response.members) == 2


def test_a_handed_out_id_is_given_back(world: World) -> None:
    leader, _ = world.stable(2)
    pending = world.ask_join().response.member_id
    assert world.leave(pending).members[0].error_code == 0
    assert world.heartbeat(leader) is E.NONE, "nobody need join again for that"
    assert error_of(world.ask_join(member=pending)) is E.UNKNOWN_MEMBER_ID


def test_all_leave_during_the_first_rebalance(world: World) -> None:
    member_id = world.ask_join().response.member_id
    answer = world.ask_join(member=member_id)
    world.leave(member_id)
    assert error_of(answer) is E.UNKNOWN_MEMBER_ID
    world.loop.advance(DELAY_MS)
    assert world.state() == "Empty"
    assert world.loop.armed == 0


# --- restart and resignation ------------------------------------------------------------------------------


def test_members_are_taken_over_after_a_restart(world: World) -> None:
    leader, follower = world.stable(2)
    world.coordinator.resign()
    assert world.loop.armed == 0
    world.loop.advance(100_000)
    world.start()
    assert world.state() == "Stable"
    assert world.heartbeat(leader) is E.NONE
    assert world.sync(follower).response.assignment == b"part of " + follower.member_id.encode()
    world.loop.advance(SESSION_MS - 1)
    world.heartbeat(leader)
    world.loop.advance(1)
    assert world.heartbeat(follower) is E.UNKNOWN_MEMBER_ID
    (answer,) = rejoin(world, leader)
    assert (answer.response.generation_id, len(answer.response.members)) == (2, 1)


def test_static_members_are_taken_over(world: World) -> None:
    _, follower = static_pair(world)
    world.coordinator.resign()
    world.start()
    assert error_of(world.ask_join(instance="i1")) is E.NONE
    assert world.heartbeat(follower, instance="i1") is E.FENCED_INSTANCE_ID


def test_generations_go_on_after_a_group_was_empty(world: World) -> None:
    (leader,) = world.stable(1)
    world.leave(leader.member_id)
    world.coordinator.resign()
    world.start()
    (again,) = world.stable(1)
    assert again.generation_id == 3


def test_whoever_waits_is_told_to_go_elsewhere(world: World) -> None:
    leader, _ = world.stable(2)
    (last,) = world.stable(1, group="third")
    joining = world.ask_join(member=leader.member_id)
    syncing = completing_in(world, "other")
    world.store.at_once = False
    leaving = world.leave(last.member_id, group="third")
    world.coordinator.resign()
    world.loop.turn()
    assert error_of(joining) is E.NOT_COORDINATOR
    assert error_of(syncing) is E.NOT_COORDINATOR
    while world.store.waiting:
        world.store.commit()
    assert error_of(leaving) is E.NOT_COORDINATOR
    assert world.loop.armed == 0
    assert error_of(world.ask_join()) is E.NOT_COORDINATOR
    assert world.heartbeat(leader) is E.NOT_COORDINATOR
    assert error_of(world.sync(leader)) is E.NOT_COORDINATOR
    assert world.leave(leader.member_id).error_code == E.NOT_COORDINATOR
    assert world.coordinator.check_commit("g", "", None, -1) is E.NOT_COORDINATOR


def completing_in(world: World, group: str) -> Any:
    """A SyncGroup that waits for its commit."""
    answer = world.join(group)
    world.loop.advance(DELAY_MS)
    world.store.at_once = False
    waiting = world.sync(answer.response, {}, group)
    world.store.at_once = True
    assert not waiting.done
    return waiting


def test_before_it_is_loaded(world: World) -> None:
    leader, _ = world.stable(2)
    coordinator = type(world.coordinator)(world.store, world.settings, world.loop)  # type: ignore[arg-type]
    world.coordinator = coordinator
    assert error_of(world.ask_join()) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.heartbeat(leader) is E.NONE, "its group is being loaded: it need not know"
    coordinator.load()
    assert world.heartbeat(leader) is E.NONE


# --- offsets ----------------------------------------------------------------------------------------------


def test_who_may_commit(world: World) -> None:
    check = world.coordinator.check_commit
    assert check("new", "", None, -1) is E.NONE
    assert check("new", "m", None, 1) is E.ILLEGAL_GENERATION
    leader, follower = world.stable(2)
    assert check("g", leader.member_id, None, 1) is E.NONE
    assert check("g", leader.member_id, None, 2) is E.ILLEGAL_GENERATION
    assert check("g", leader.member_id, None, -1) is E.ILLEGAL_GENERATION
    assert check("g", leader.member_id, "i", 1) is E.UNKNOWN_MEMBER_ID
    assert check("g", "unknown", None, 1) is E.UNKNOWN_MEMBER_ID
    assert check("g", "", None, -1) is E.UNKNOWN_MEMBER_ID
    (again,) = rejoin(world, leader)
    assert check("g", follower.member_id, None, 1) is E.NONE
    rejoin(world, follower)
    assert again.done
    assert check("g", follower.member_id, None, 2) is E.REBALANCE_IN_PROGRESS
    world.leave(leader.member_id, follower.member_id)
    assert check("g", leader.member_id, None, 2) is E.UNKNOWN_MEMBER_ID
    assert check("g", "", None, -1) is E.NONE


def test_a_commit_is_a_sign_of_life(world: World) -> None:
    (leader,) = world.stable(1)
    for _ in range(3):
        world.loop.advance(SESSION_MS - 1)
        assert world.coordinator.check_commit("g", leader.member_id, None, 1) is E.NONE
    assert world.heartbeat(leader) is E.NONE


def subscription(*topics: str, version: int = 1) -> bytes:
    """A consumer's metadata: version, topics, and what newer versions added."""
    data = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for topic in topics:
        data += len(topic).to_bytes(2, "big") + topic.encode()
    return data + b"\xff\xff\xff\xff and more"


def test_subscribed_topics(world: World) -> None:
    coordinator = world.coordinator
    assert coordinator.subscribed_topics("g") == set()
    world.join(protocols={"range": subscription("a", "b")})
    world.join(protocols={"range": subscription("b", "c", version=3)})
    assert coordinator.subscribed_topics("g") == {"a", "b", "c"}
    world.loop.advance(2 * DELAY_MS)
    assert coordinator.subscribed_topics("g") == {"a", "b", "c"}
    world.join("connect", protocol_type="connect")
    assert coordinator.subscribed_topics("connect") is None
    for number, broken in enumerate([b"", b"\0", subscription("a")[:8], b"\0\1\xff\xff\xff\xff"]):
        world.join(f"broken {number}", protocols={"range": broken})
        assert coordinator.subscribed_topics(f"broken {number}") is None


def test_since_when_a_group_is_empty(world: World) -> None:
    coordinator = world.coordinator
    assert coordinator.is_empty("g")
    assert coordinator.empty_since_ms("g") is None
    (leader,) = world.stable(1)
    assert not coordinator.is_empty("g")
    assert coordinator.empty_since_ms("g") is None
    world.leave(leader.member_id)
    since = world.store.time_ms()
    assert coordinator.is_empty("g")
    world.loop.advance(5_000)
    assert coordinator.empty_since_ms("g") == since
    world.coordinator.resign()
    assert world.start().empty_since_ms("g") == since
    world.store.apply([offset_record("simple", "t", 0, CommittedOffset(1))])
    assert coordinator.empty_since_ms("simple") is None


# --- looking at groups, deleting them ---------------------------------------------------------------------


def test_describe(world: World) -> None:
    describe = world.coordinator.describe
    assert describe("g") is None
    leader, _ = world.stable(2)
    described = describe("g")
    assert described is not None
    assert (described.group_state, described.protocol_type) == ("Stable", "consumer")
    assert described.protocol_data == "range"
    first = described.members[0]
    assert (first.member_id, first.client_id, first.client_host) == (leader.member_id, "c0", "/127.0.0.1")
    assert first.member_assignment == b"part of " + leader.member_id.encode()
    assert first.member_metadata == b"meta"
    rejoin(world, leader)
    described = describe("g")
    assert described is not None
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {each.member_metadata for each in described.members} == {b""}


def test_list(world: World) -> None:
    world.stable(1)
    world.store.apply([offset_record("simple", "t", 0, CommittedOffset(1))])
    world.ask_join("new")
    found = {
        (each.group_id, each.protocol_type, each.group_state, each.group_type)
        for each in world.coordinator.listed()
    }
    assert found == {
        ("g", "consumer", "Stable", "classic"),
        ("simple", "", "Empty", "classic"),
        ("new", "", "Empty", "classic"),
    }


def delete(world: World, group: str = "g") -> list[ErrorCode]:
    """What DeleteGroups is told, as it comes."""
    told: list[ErrorCode] = []
    world.coordinator.delete(group, told.append)
    world.loop.turn()
    return told


def test_delete(world: World) -> None:
    assert delete(world) == [E.GROUP_ID_NOT_FOUND]
    (leader,) = world.stable(1)
    world.store.apply([offset_record("g", "t", index, CommittedOffset(index)) for index in range(3)])
    assert delete(world) == [E.NON_EMPTY_GROUP]
    world.leave(leader.member_id)
    assert delete(world) == [E.NONE]
    assert "g" not in world.store.state
    assert world.coordinator.listed() == []
    assert delete(world) == [E.GROUP_ID_NOT_FOUND]


def test_delete_of_a_group_with_offsets_alone(world: World) -> None:
    world.store.apply([offset_record("g", "t", 0, CommittedOffset(1))])
    assert delete(world) == [E.NONE]
    assert "g" not in world.store.state


def test_delete_that_fails_leaves_the_group(world: World) -> None:
    (leader,) = world.stable(1)
    world.leave(leader.member_id)
    world.store.at_once = False
    told = delete(world)
    world.store.commit(E.COORDINATOR_NOT_AVAILABLE)
    assert told == [E.COORDINATOR_NOT_AVAILABLE]
    assert world.state() == "Empty"


def test_delete_takes_commits_with_it_that_were_under_way(world: World) -> None:
    world.store.apply([offset_record("g", "t", 0, CommittedOffset(1))])
    world.store.at_once = False
    assert world.coordinator.check_commit("g", "", None, -1) is E.NONE
    world.store.append("g", [offset_record("g", "t", 1, CommittedOffset(1))], lambda _: None)
    told = delete(world)
    world.store.commit()
    world.store.commit()
    assert told == []
    world.store.commit()
    assert told == [E.NONE]
    assert "g" not in world.store.state


def test_delete_leaves_what_is_committed_after_it(world: World) -> None:
    world.store.apply([offset_record("g", "t", 0, CommittedOffset(1))])
    world.store.at_once = False
    told = delete(world)
    assert world.coordinator.check_commit("g", "", None, -1) is E.NONE
    world.store.append("g", [offset_record("g", "t", 1, CommittedOffset(1))], lambda _: None)
    world.store.commit()
    world.store.commit()
    assert told == [E.NONE]
    assert list(world.store.state.offsets("g")) == [("t", 1)]


def test_delete_ends_handed_out_ids(world: World) -> None:
    pending = world.ask_join().response.member_id
    assert delete(world) == [E.NONE]
    assert world.loop.armed == 0
    assert error_of(world.ask_join(member=pending)) is E.UNKNOWN_MEMBER_ID


def test_a_join_during_the_delete_is_a_new_group(world: World) -> None:
    (leader,) = world.stable(1)
    world.leave(leader.member_id)
    world.store.at_once = False
    told = delete(world)
    answer = world.join()
    world.store.commit()
    world.loop.advance(DELAY_MS)
    assert (told, error_of(answer)) == ([E.NONE], E.NONE)
    world.sync(answer.response, {})
    world.store.commit()
    assert world.state() == "Stable"


def test_delete_of_a_group_whose_end_was_not_written(world: World) -> None:
    """Its committed members are gone all the same: they must not come back with the next who joins."""
    (leader,) = world.stable(1)
    world.store.at_once = False
    world.leave(leader.member_id)
    world.store.commit(E.NOT_COORDINATOR)
    told = delete(world)
    first = world.join()
    world.loop.advance(DELAY_MS)
    assert [each.member_id for each in first.response.members] == [first.response.member_id]
    world.store.commit(E.COORDINATOR_NOT_AVAILABLE)
    assert told == [E.COORDINATOR_NOT_AVAILABLE]
    world.leave(first.response.member_id)
    assert world.state() == "Empty"


def test_forget(world: World) -> None:
    (leader,) = world.stable(1)
    world.coordinator.forget("g")
    assert world.heartbeat(leader) is E.NONE
    world.store.at_once = False
    world.leave(leader.member_id)
    world.coordinator.forget("g")
    world.store.commit()
    assert world.loop.armed == 0
