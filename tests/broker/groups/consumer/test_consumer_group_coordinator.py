"""Consumer groups by their requests, on virtual time: joining, reconciling, leaving, expiring.

Where a test's name has "row N" it holds a fact that was observed on Apache Kafka, and that one who writes
this from memory gets wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker.groups.consumer.fakes import ConsumerWorld, FakeTopics, outcome

E = ErrorCode
ALL = {"t": [0, 1, 2, 3]}


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld()


# --- joining ------------------------------------------------------------------------------------------------


def test_row_a1_the_first_member_gets_everything_at_epoch_2(world: ConsumerWorld) -> None:
    response = world.join("a")
    assert outcome(response) == (E.NONE, 2)
    assert world.assigned(response) == ALL
    assert world.state() == ("Stable", 2, 2)
    assert (response.member_id, response.heartbeat_interval_ms) == ("a", 5_000)


@pytest.mark.parametrize(("names", "regex"), [([], None), (None, "nothing.*"), ([], "")])
def test_row_a1_a_group_that_subscribes_to_nothing_yet_has_epoch_1(
    world: ConsumerWorld, names: list[str] | None, regex: str | None
) -> None:
    response = world.join("a", names, regex=regex)
    assert outcome(response) == (E.NONE, 1)
    assert world.assigned(response) == {}


def test_row_1_a_join_within_the_interval_computes_nothing_until_a_heartbeat_after_it(
    world: ConsumerWorld,
) -> None:
    world.join("a")
    world.advance(500)
    response = world.join("b")
    assert outcome(response) == (E.NONE, 2)  # of the current assignment, not of the group
    assert world.assigned(response) == {}  # empty, not null
    assert world.state() == ("Assigning", 3, 2)
    world.advance(30_000)  # there is no timer
    assert world.state() == ("Assigning", 3, 2)
    response = world.beat("a", 2)
    assert outcome(response) == (E.NONE, 2)
    assert world.assigned(response) == {"t": [0, 1]}
    assert world.state() == ("Reconciling", 3, 3)


def test_the_last_member_that_leaves_and_comes_back_at_once_gets_all(world: ConsumerWorld) -> None:
    """As Kafka 4.4.0, which writes an assignment of the time 0; 4.3.1 gave it nothing."""
    world.join("a")
    assert outcome(world.beat("a", -1)) == (E.NONE, -1)
    assert world.state() == ("Empty", 3, 3)
    response = world.join("a")
    assert (outcome(response), world.assigned(response)) == ((E.NONE, 4), ALL)


def test_another_preferred_assignor_raises_the_epoch(world: ConsumerWorld) -> None:
    assert outcome(world.join("a", [], server_assignor="uniform")) == (E.NONE, 1)
    assert outcome(world.join("b", [], group="h", server_assignor="range")) == (E.NONE, 2)
    world.advance(1_000)
    assert outcome(world.beat("a", 1, server_assignor="range")) == (E.NONE, 2)
    assert outcome(world.beat("a", 2, server_assignor="range")) == (E.NONE, 2)


def test_a_member_is_described_with_what_it_has_to_give_up(world: ConsumerWorld) -> None:
    world.join("a")
    world.advance(1_000)
    world.join("b")
    world.beat("a", 2)
    (topic,) = world.describe().members[0].assignment.topic_partitions
    assert topic.partitions == [0, 1, 2, 3]


def test_a_regex_is_evaluated_at_once_where_none_is_resolved() -> None:
    world = ConsumerWorld(FakeTopics(t=1, u=1))
    world.join("a", None, regex="t")
    world.beat("a", -1)
    world.advance(1_000)
    world.join("a", None, regex="u")
    assert set(world.group().regexes) == {"u"}


@pytest.mark.parametrize("own", [False, True])
def test_row_1_an_interval_of_0_assigns_at_once(own: bool) -> None:
    if own:
        world = ConsumerWorld()
        world.configs["g"] = {"consumer.assignment.interval.ms": "0"}
    else:
        world = ConsumerWorld(group_consumer_assignment_interval_ms="0")
    world.join("a")
    response = world.join("b")
    assert world.state()[1:] == (3, 3)
    assert outcome(response) == (E.NONE, 3)


def test_two_members_share_after_the_first_has_given_up(world: ConsumerWorld) -> None:
    world.join("a")
    world.advance(1_000)
    response = world.join("b")
    assert (outcome(response), world.assigned(response)) == ((E.NONE, 3), {})
    response = world.beat("a", 2)
    assert (outcome(response), world.assigned(response)) == ((E.NONE, 2), {"t": [0, 1]})
    assert world.state()[0] == "Reconciling"
    response = world.beat("b", 3)
    assert (outcome(response), world.assigned(response)) == ((E.NONE, 3), None)
    response = world.beat("a", 2, {"t": [0, 1]})
    assert outcome(response) == (E.NONE, 3)
    assert world.assigned(response) is None  # row 3: the set is the same
    response = world.beat("b", 3)
    assert world.assigned(response) == {"t": [2, 3]}
    assert world.state() == ("Stable", 3, 3)


def test_row_3_null_owned_partitions_never_count_as_revoked(world: ConsumerWorld) -> None:
    world.join("a")
    world.advance(1_000)
    world.join("b")
    world.beat("a", 2)
    for _ in range(3):
        assert outcome(world.beat("a", 2)) == (E.NONE, 2)
    assert outcome(world.beat("a", 2, {"t": [0, 1, 2]})) == (E.NONE, 2)
    assert outcome(world.beat("a", 2, {"t": [0]})) == (E.NONE, 3)


def test_row_3_a_full_heartbeat_is_told_its_partitions(world: ConsumerWorld) -> None:
    world.join("a")
    full: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ["t"]}
    assert world.assigned(world.beat("a", 2, ALL, **full)) == ALL
    assert world.assigned(world.beat("a", 2, ALL, subscribed_topic_names=["t"])) is None


def test_a_heartbeat_without_news_writes_nothing(world: ConsumerWorld) -> None:
    world.join("a")
    before = world.writes()
    for _ in range(3):
        world.advance(5_000)
        assert outcome(world.beat("a", 2)) == (E.NONE, 2)
    assert world.writes() == before


def test_operations_of_a_group_wait_for_its_write(world: ConsumerWorld) -> None:
    world.store.at_once = False
    first = world.send(_join_request("a"))
    second = world.send(_join_request("b"))
    other = world.send(_join_request("x", "other"))
    assert len(world.store.waiting) == 2  # one of each group
    world.store.commit()
    world.loop.turn()
    assert (first.done, second.done, other.done) == (True, False, False)
    world.store.commit()
    world.store.commit()
    assert (second.done, other.done) == (True, True)
    assert second.response.error_code == E.NONE


def test_a_write_that_fails_fails_its_request_alone(world: ConsumerWorld) -> None:
    world.store.at_once = False
    first, second = world.send(_join_request("a")), world.send(_join_request("b"))
    world.store.commit(E.COORDINATOR_NOT_AVAILABLE)
    assert (first.response.error_code, second.done) == (E.COORDINATOR_NOT_AVAILABLE, False)
    world.store.commit()  # of what may be in the log all the same
    world.store.commit()
    assert second.response.error_code == E.NONE
    assert list(world.group().members) == ["b"]


def test_what_waits_is_rejected_when_the_leadership_is_lost(world: ConsumerWorld) -> None:
    world.store.at_once = False
    first, second = world.send(_join_request("a")), world.send(_join_request("b"))
    world.coordinator.resign()
    assert (first.done, second.response.error_code) == (False, E.NOT_COORDINATOR)
    assert second.response.error_message is None
    world.store.commit(E.NOT_COORDINATOR)
    assert first.response.error_code == E.NOT_COORDINATOR
    assert world.loop.armed == 0


def _join_request(member: str, group: str = "g") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def test_row_9_the_broker_makes_an_id_where_the_client_has_none(world: ConsumerWorld) -> None:
    response = world.join("")
    assert len(response.member_id or "") == 22
    assert list(world.group().members) == [response.member_id]


def test_a_group_has_no_more_members_than_allowed() -> None:
    world = ConsumerWorld(group_consumer_max_size="1")
    world.join("a")
    response = world.join("b")
    assert outcome(response)[0] == E.GROUP_MAX_SIZE_REACHED
    assert response.error_message == "The consumer group has reached its maximum capacity of 1 members."
    assert outcome(world.join("a"))[0] == E.NONE


def test_members_have_the_memory_of_all_groups() -> None:
    world = ConsumerWorld(lockstep_groups_max_bytes="20000")
    errors = [outcome(world.join(f"m{number}"))[0] for number in range(10)]
    assert errors[0] == E.NONE
    assert errors[-1] == E.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.memory_bytes <= 24_000


# --- epochs -------------------------------------------------------------------------------------------------


def test_row_5_the_previous_epoch_is_accepted_with_a_subset_of_the_partitions(world: ConsumerWorld) -> None:
    world.join("a")
    world.advance(1_000)
    world.join("b")
    world.beat("a", 2)
    world.beat("a", 2, {"t": [0, 1]})
    assert outcome(world.beat("a", 2, {"t": [0]})) == (E.NONE, 3)
    for owned in (None, {"t": [0, 2]}):
        response = world.beat("a", 2, owned)
        assert outcome(response)[0] == E.FENCED_MEMBER_EPOCH
    assert response.error_message == (
        "The consumer group member has a smaller member epoch (2) than the one known by the group "
        "coordinator (3). The member must abandon all its partitions and rejoin."
    )
    assert outcome(world.beat("a", 4))[0] == E.FENCED_MEMBER_EPOCH


def test_row_5_after_a_change_without_an_epoch_the_former_one_is_fenced(world: ConsumerWorld) -> None:
    world.join("a")
    world.advance(1_000)
    world.join("b")
    world.settle("a", "b")
    assert world.group().current_of("a").previous_member_epoch == 2
    world.advance(1_000)
    world.join("c")
    world.beat("a", 3)  # has to give up, at the same epoch
    owned = world.has("a")
    assert outcome(world.beat("a", 2, owned))[0] == E.FENCED_MEMBER_EPOCH


# --- subscriptions ------------------------------------------------------------------------------------------


def test_row_10_topics_that_come_grow_and_go_are_seen_at_the_next_heartbeat() -> None:
    world = ConsumerWorld(FakeTopics(t=1))
    world.join("a", ["t", "u"])
    world.advance(1_000)
    world.topics.create("u", 1)
    assert world.state()[1] == 2
    response = world.beat("a", 2)
    assert (outcome(response), world.assigned(response)) == ((E.NONE, 3), {"t": [0], "u": [0]})
    world.advance(1_000)
    world.topics.grow("t", 2)
    response = world.beat("a", 3)
    assert (outcome(response), world.assigned(response)) == ((E.NONE, 4), {"t": [0, 1], "u": [0]})


def test_row_10_a_deleted_topic_goes_at_once() -> None:
    world = ConsumerWorld(FakeTopics(t=1, u=1))
    world.join("a", ["t", "u"])
    world.advance(100)
    world.topics.delete("u")
    response = world.beat("a", 2)
    assert world.assigned(response) == {"t": [0]}
    assert world.state() == ("Assigning", 3, 2)


def test_row_4_dropping_a_topic_takes_it_away_in_the_same_answer() -> None:
    world = ConsumerWorld(FakeTopics(t=1, u=1))
    world.join("a", ["t", "u"])
    world.advance(100)  # before there may be another assignment
    response = world.beat("a", 2, subscribed_topic_names=["t"])
    assert (outcome(response), world.assigned(response)) == ((E.NONE, 2), {"t": [0]})
    assert world.state() == ("Assigning", 3, 2)


def test_row_2_a_regex_takes_internal_topics_and_whole_names() -> None:
    world = ConsumerWorld(FakeTopics(t4=1, x=1, __consumer_offsets=2))
    world.join("a", None, regex=".*")
    world.advance(1_000)
    response = world.beat("a", 1)
    assert world.assigned(response) == {"t4": [0], "x": [0], "__consumer_offsets": [0, 1]}
    world.join("b", None, regex="4", group="h")
    world.advance(1_000)
    assert world.assigned(world.beat("b", 1, group="h")) is None


def test_row_2_a_wrong_regex_is_rejected_at_the_join(world: ConsumerWorld) -> None:
    response = world.join("a", None, regex="(")
    assert outcome(response)[0] == E.INVALID_REGULAR_EXPRESSION
    assert (response.error_message or "").startswith("SubscribedTopicRegex `(` is not a valid regular")
    assert world.coordinator.consumer.group("g") is None


def test_row_2_a_resolved_regex_is_used_at_once_and_names_are_added() -> None:
    world = ConsumerWorld(FakeTopics(t1=1, t2=1, x=1), group_consumer_assignment_interval_ms="0")
    world.join("a", None, regex="t.*")
    world.beat("a", 1)
    response = world.join("b", ["x"], regex="t.*")
    assert world.group().group_epoch == 3
    assert outcome(response) == (E.NONE, 3)
    assert "x" in (world.assigned(response) or {})


def test_row_2_a_new_topic_is_found_by_the_first_heartbeat_10_s_after_the_last_evaluation() -> None:
    world = ConsumerWorld(FakeTopics(t1=1))
    world.join("a", None, regex="t.*")
    world.advance(1_000)
    assert outcome(world.beat("a", 1)) == (E.NONE, 2)
    world.topics.create("t2", 1)
    world.advance(8_000)
    world.beat("a", 2)
    assert world.group().group_epoch == 2
    world.advance(2_000)
    world.beat("a", 2)
    assert world.group().group_epoch == 3
    assert world.assigned(world.beat("a", 2)) == {"t1": [0], "t2": [0]}


def test_row_4_dropping_the_regex_takes_its_topics_away() -> None:
    world = ConsumerWorld(FakeTopics(t=1, x=1))
    world.join("a", ["x"], regex="t")
    world.advance(1_000)
    assert world.assigned(world.beat("a", 2)) == {"t": [0], "x": [0]}
    response = world.beat("a", 3, subscribed_topic_regex="")
    assert (outcome(response), world.assigned(response)) == ((E.NONE, 3), {"x": [0]})
    assert world.group().regexes == {}


def test_topics_that_a_client_may_not_describe_match_no_regex() -> None:
    world = ConsumerWorld(FakeTopics(t1=1, t2=1))
    world.denied = {"t2"}
    world.join("a", None, regex="t.*")
    world.advance(1_000)
    assert world.assigned(world.beat("a", 1)) == {"t1": [0]}


# --- static members -----------------------------------------------------------------------------------------


def test_row_8_a_static_member_leaves_and_another_takes_its_place(world: ConsumerWorld) -> None:
    world.join("a", instance_id="i")
    for _ in range(2):  # twice is fine
        assert outcome(world.beat("a", -2, instance_id="i")) == (E.NONE, -2)
    described = world.describe()
    assert described.group_state == "Reconciling"
    assert [each.member_epoch for each in described.members] == [-2]
    response = world.join("b", instance_id="i")
    assert (outcome(response), world.assigned(response)) == ((E.NONE, 2), ALL)
    assert list(world.group().members) == ["b"]
    assert world.state() == ("Stable", 2, 2)
    for epoch in (2, -1):
        assert outcome(world.beat("a", epoch, instance_id="i"))[0] == E.FENCED_INSTANCE_ID


def test_row_8_a_successor_with_another_subscription_gets_the_old_epoch_and_nothing() -> None:
    world = ConsumerWorld(FakeTopics(t=1, u=1))
    world.join("a", instance_id="i")
    world.beat("a", -2, instance_id="i")
    response = world.join("b", ["u"], instance_id="i")
    assert (outcome(response), world.assigned(response)) == ((E.NONE, 2), {})
    assert world.state() == ("Assigning", 3, 2)


def test_an_instance_id_in_use_is_not_taken_over(world: ConsumerWorld) -> None:
    world.join("a", instance_id="i")
    response = world.join("b", instance_id="i")
    assert outcome(response)[0] == E.UNRELEASED_INSTANCE_ID
    assert response.error_message == (
        "Static member b with instance id i cannot join the group because the instance id is owned by a "
        "member."
    )


def test_row_8_what_a_leave_is_rejected_for(world: ConsumerWorld) -> None:
    assert outcome(world.beat("a", -1))[0] == E.GROUP_ID_NOT_FOUND
    world.join("a")
    assert outcome(world.beat("b", -1))[0] == E.UNKNOWN_MEMBER_ID
    assert outcome(world.beat("a", -2, instance_id="i"))[0] == E.UNKNOWN_MEMBER_ID
    assert outcome(world.beat("b", 1))[0] == E.UNKNOWN_MEMBER_ID
    assert outcome(world.beat("b", 1, group="x"))[0] == E.GROUP_ID_NOT_FOUND


# --- timers -------------------------------------------------------------------------------------------------


def test_a_silent_member_is_removed(world: ConsumerWorld) -> None:
    world.join("a")
    world.advance(20_000)
    world.join("b")
    world.advance(25_001)
    assert list(world.group().members) == ["b"]
    assert world.group().group_epoch == 4
    assert outcome(world.beat("a", 2))[0] == E.UNKNOWN_MEMBER_ID


def test_a_session_timeout_of_the_group_itself() -> None:
    world = ConsumerWorld()
    world.configs["g"] = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
    assert world.join("a").heartbeat_interval_ms == 6_000
    world.advance(49_000)
    assert len(world.group().members) == 1
    world.advance(1_001)
    assert len(world.group().members) == 0


def test_row_6_a_member_that_does_not_revoke_in_time_is_removed(world: ConsumerWorld) -> None:
    world.join("a", rebalance_ms=10_000)
    world.advance(1_000)
    world.join("b")
    world.beat("a", 2)
    world.advance(9_000)
    world.beat("a", 2)
    world.beat("b", 3)
    assert len(world.group().members) == 2
    world.advance(1_001)
    assert list(world.group().members) == ["b"]
    assert world.group().group_epoch == 4
    assert outcome(world.beat("a", 2))[0] == E.UNKNOWN_MEMBER_ID


def test_a_member_that_revokes_in_time_stays(world: ConsumerWorld) -> None:
    world.join("a", rebalance_ms=10_000)
    world.advance(1_000)
    world.join("b")
    world.beat("a", 2)
    world.beat("a", 2, {"t": [0, 1]})
    world.advance(20_000)
    assert len(world.group().members) == 2


def test_sessions_and_revocations_go_on_after_a_failover(world: ConsumerWorld) -> None:
    world.join("a", rebalance_ms=10_000)
    world.advance(1_000)
    world.join("b")
    world.beat("a", 2)
    world.coordinator.resign()
    world.start()
    world.advance(10_001)
    assert list(world.group().members) == ["b"]
    world.advance(45_001)
    assert list(world.group().members) == []
    assert world.loop.armed == 0


def test_a_member_whose_removal_was_not_written_is_removed_later(world: ConsumerWorld) -> None:
    world.join("a")
    world.store.at_once = False
    world.loop.advance(45_001)
    world.store.commit(E.COORDINATOR_NOT_AVAILABLE)
    world.store.commit()
    world.store.at_once = True
    assert list(world.group().members) == ["a"]
    world.advance(1_001)
    assert list(world.group().members) == []


# --- beside the classic protocol ----------------------------------------------------------------------------


def test_row_12_a_classic_group_with_only_offsets_becomes_a_consumer_group(world: ConsumerWorld) -> None:
    answer = _classic_join(world)
    world.coordinator.leave(
        LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=answer.response.member_id)]), 5
    )
    world.loop.turn()
    world.loop.advance(5_000)
    assert world.store.state.group("g") is not None
    assert outcome(world.join("a")) == (E.NONE, 2)
    assert world.store.state.group("g") is None
    (listed,) = world.coordinator.listed()
    assert (listed.group_type, listed.protocol_type, listed.group_state) == ("consumer", "consumer", "Stable")


def test_a_classic_group_with_members_is_not_upgraded(world: ConsumerWorld) -> None:
    _classic_join(world)
    response = world.join("a")
    assert outcome(response)[0] == E.GROUP_ID_NOT_FOUND
    assert response.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )


def test_row_12_an_empty_consumer_group_becomes_classic_one_with_members_does_not(
    world: ConsumerWorld,
) -> None:
    world.join("a")
    assert _classic_join(world).response.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    world.beat("a", -1)
    assert _classic_join(world).response.error_code == E.NONE
    assert world.coordinator.consumer.group("g") is None
    assert [each.group_type for each in world.coordinator.listed()] == ["classic"]


def _classic_join(world: ConsumerWorld) -> Any:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\xff\xff\xff\xff")],
    )
    answer = world.coordinator.join(request, 3, "client", "/127.0.0.1")
    world.loop.turn()
    if not answer.done:
        world.loop.advance(3_001)
    world.check_replay()
    assert answer.done
    return answer


def test_row_12_leave_group_removes_a_member_of_the_consumer_protocol(world: ConsumerWorld) -> None:
    world.join("a")
    world.join("s", instance_id="i")
    leaving = [
        MemberIdentity(member_id="a"),
        MemberIdentity(member_id="x"),
        MemberIdentity(member_id="", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="j"),
    ]
    pending: Any = world.coordinator.leave(LeaveGroupRequest(group_id="g", members=leaving), 5)
    world.loop.turn()
    found = [each.error_code for each in pending.response.members]
    assert found == [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE, E.UNKNOWN_MEMBER_ID]
    assert world.state() == ("Empty", 4, 4)


def test_row_13_a_consumer_group_is_no_classic_one(world: ConsumerWorld) -> None:
    world.join("a")
    assert world.coordinator.describe("g") is None
    assert world.coordinator.protocol_type("g") == "consumer"
    assert world.coordinator.subscribed_topics("g") == {"t"}
    assert not world.coordinator.is_empty("g")


def test_a_group_is_deleted_without_members_only(world: ConsumerWorld) -> None:
    world.join("a")
    errors: list[ErrorCode] = []
    world.coordinator.delete("g", errors.append)
    world.beat("a", -1)
    world.coordinator.delete("g", errors.append)
    world.loop.turn()
    world.check_replay()
    assert errors == [E.NON_EMPTY_GROUP, E.NONE]
    assert not world.coordinator.exists("g")
    assert outcome(world.join("a")) == (E.NONE, 2)  # from the beginning again


def test_the_described_members(world: ConsumerWorld) -> None:
    world.join("a", rack_id="r", instance_id="i", server_assignor="range")
    found = world.describe()
    assert (found.assignor_name, found.error_code) == ("range", E.NONE)
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("a", "i", "r")
    assert (member.client_id, member.client_host, member.member_type) == ("client", "/127.0.0.1", 1)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "")
    for assignment in (member.assignment, member.target_assignment):
        assert [(each.topic_name, each.partitions) for each in assignment.topic_partitions] == [
            ("t", [0, 1, 2, 3])
        ]
