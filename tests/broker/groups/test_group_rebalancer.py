"""A group on a clock and a store driven by hand: syncs, commits, sessions, members that leave."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.leave_group import LeaveGroupRequest
from tests.broker.groups.fakes import DELAY_MS, SESSION_MS, World, completing, error_of, rejoin, static_pair

E = ErrorCode


@pytest.fixture
def world() -> World:
    return World()


# --- syncing ---------------------------------------------------------------------------------------------


def test_all_members_get_their_response_at_the_commit(world: World) -> None:
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


def test_a_generation_that_is_too_large_for_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    """Clients hear UNKNOWN_SERVER_ERROR, as from Kafka: only the log can say what is to be raised."""
    world = World(message_max_bytes="1000")
    leader, _ = completing(world)
    answer = world.sync(leader, {leader.member_id: b"x" * 1_000})
    assert error_of(answer) is E.UNKNOWN_SERVER_ERROR
    assert (world.store.written, world.state()) == ([], "PreparingRebalance")
    said = (
        "a generation of 2 members takes 1... bytes, more than max.message.bytes=1000 of __consumer_offsets"
    )
    assert re.search(said, caplog.text)


def test_the_largest_record_is_that_of_the_moment(world: World) -> None:
    leader, _ = completing(world)
    world.settings = World(message_max_bytes="1000").settings
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


# --- heartbeats and sessions -----------------------------------------------------------------------------


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


# --- leaving ---------------------------------------------------------------------------------------------


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


def test_silent_static_members_without_time_do_not_keep_the_loop_busy(world: World) -> None:
    waiting = [world.ask_join(instance=f"i{n}", rebalance_ms=60_000 * (1 - n)) for n in range(2)]
    world.loop.advance(2 * DELAY_MS)
    leader, follower = (each.response for each in waiting)
    world.sync(leader, {leader.member_id: b"0", follower.member_id: b"1"}, instance="i0")
    world.sync(follower, instance="i1")
    world.leave(instances=["i0"])
    live: Any = world.coordinator._rebalancers["g"]
    live._stop_join_timer()
    live._on_join_timeout()  # nobody came: i1 is waited for
    assert live._join_timer.at > world.loop.now
    world.loop.advance(SESSION_MS / 2)
    assert world.state() == "PreparingRebalance"
    world.loop.advance(SESSION_MS)
    assert world.state() == "Empty"


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
