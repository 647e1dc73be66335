"""Heartbeats on a group without a coordinator: the member, the epochs, the target, what the response has.

Where a test's name has "row N" it holds a fact that was observed on Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.broker.groups.consumer.consumer_group_records import (
    ConsumerGroupMember,
    CurrentAssignment,
    GroupEpoch,
    MemberState,
    ResolvedRegex,
    TargetMetadata,
    current_record,
    group_epoch_record,
    member_record,
    regex_record,
    regex_tombstone,
    target_metadata_record,
    target_record,
)
from lockstep.broker.groups.consumer.heartbeat import HeartbeatResult, assignment_of, must_revoke
from lockstep.broker.groups.consumer.membership import leave
from lockstep.broker.groups.consumer.subscribed_topics import metadata_hash
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_heartbeat import TopicPartitions
from tests.broker.groups.consumer.fakes import FakeTopics
from tests.broker.groups.consumer.replayed_group import HeartbeatWorld, id_of, kinds_of, replay, told
from tests.support.cases import each_case

T, U = id_of(1), id_of(2)
GROUP, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 5, 6, 7, 8, 16
"""Kinds of records."""
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)
E = ErrorCode


@pytest.fixture
def world() -> HeartbeatWorld:
    return HeartbeatWorld(FakeTopics(t=4, u=2))


def epochs(world: HeartbeatWorld) -> tuple[int, int]:
    return world.group.group_epoch, world.group.assignment_epoch


def assigned(*partitions: int, epoch: int) -> Mapping[bytes, Mapping[int, int]]:
    return {T: dict.fromkeys(partitions, epoch)}


# --- joining ----------------------------------------------------------------------------------------------


def test_row_a1_the_first_member_gets_everything_at_epoch_2(world: HeartbeatWorld) -> None:
    result = world.join("a", instance_id="i", rack_id="r", server_assignor="range")
    member = ConsumerGroupMember("a", "i", "r", "client", "/host", ("t",), "", 60_000, "range")
    current = CurrentAssignment(2, 0, STABLE, assigned(0, 1, 2, 3, epoch=2))
    assert result.records == [
        member_record("g", member),
        group_epoch_record("g", GroupEpoch(2, metadata_hash(["t"], world.topics))),
        target_record("g", "a", {T: (0, 1, 2, 3)}),
        target_metadata_record("g", TargetMetadata(2, world.now_ms)),
        current_record("g", "a", current),
    ]
    assert (result.member, result.current, result.is_moved) == (member, current, True)
    assert (result.replaced_id, result.has_new_regex) == (None, False)
    response = result.response
    assert (response.member_id, response.member_epoch) == ("a", 2)
    assert (response.error_code, response.heartbeat_interval_ms) == (E.NONE, 5_000)
    assert told(result) == {T: [0, 1, 2, 3]}


@each_case("names, regex", [([], None), (None, "nothing.*"), ([], "")])
def test_row_a1_a_group_that_subscribes_to_nothing_yet_has_epoch_1(
    names: list[str] | None, regex: str | None
) -> None:
    world = HeartbeatWorld(FakeTopics(t=4))
    result = world.join("a", names, subscribed_topic_regex=regex)
    assert (result.response.member_epoch, told(result), epochs(world)) == (1, {}, (1, 1))
    assert group_epoch_record("g", GroupEpoch(1, 0)) in result.records


def test_row_1_a_join_within_the_interval_gets_nothing_until_a_heartbeat_after_it(
    world: HeartbeatWorld,
) -> None:
    world.join("a")
    world.now_ms += 999
    result = world.join("b")
    assert kinds_of(result.records) == [(MEMBER, "b", True), (GROUP, "", True), (CURRENT, "b", True)]
    assert (result.response.member_epoch, told(result)) == (2, {})  # empty, not null
    assert epochs(world) == (3, 2)
    world.now_ms += 1
    result = world.beat("b", 2)
    assert (result.response.member_epoch, told(result), epochs(world)) == (3, None, (3, 3))
    assert result.current.state is UNRELEASED
    assert kinds_of(result.records) == [
        (TARGET, "a", True),
        (TARGET, "b", True),
        (TARGET_EPOCH, "", True),
        (CURRENT, "b", True),
    ]


def test_a_clock_that_went_back_does_not_delay_the_assignment(world: HeartbeatWorld) -> None:
    world.join("a")
    world.now_ms -= 1
    world.join("b")
    assert epochs(world) == (3, 3)


def test_a_group_has_no_more_members_than_allowed() -> None:
    world = HeartbeatWorld(FakeTopics(t=4), max_size=1)
    world.join("a", instance_id="i")
    with pytest.raises(RequestError) as raised:
        world.join("b")
    assert raised.value.error is E.GROUP_MAX_SIZE_REACHED
    assert raised.value.message == "The consumer group has reached its maximum capacity of 1 members."
    assert world.beat("a", 2).response.member_epoch == 2
    replay(world.group, leave(world.group, "a", "i", -2, world.topics))
    assert world.join("b", instance_id="i").replaced_id == "a"  # there are not more of them


def test_a_member_joins_again_with_what_it_has(world: HeartbeatWorld) -> None:
    world.join("a")
    result = world.join("a")
    assert (result.records, result.is_moved) == ([], False)
    assert (result.response.member_epoch, told(result)) == (2, {T: [0, 1, 2, 3]})


# --- the member's record ----------------------------------------------------------------------------------


def test_a_heartbeat_without_news_has_no_records(world: HeartbeatWorld) -> None:
    world.join("a", ["u", "t"], rack_id="r", instance_id="i", server_assignor="range")
    world.now_ms += 5_000
    for names in (None, ["t", "u"], ["u", "t", "u"]):
        result = world.beat("a", 2, instance_id="i", subscribed_topic_names=names)
        assert (result.records, result.is_moved, told(result)) == ([], False, None)
    assert result.member == ConsumerGroupMember(
        "a", "i", "r", "client", "/host", ("t", "u"), "", 60_000, "range"
    )


@each_case(
    "more",
    [{"rack_id": "s"}, {"rebalance_timeout_ms": 9}, {"server_assignor": "uniform"}],
)
def test_a_change_besides_the_subscription_is_written_without_an_epoch(more: dict[str, Any]) -> None:
    world = HeartbeatWorld(FakeTopics(t=4))
    world.join("a")
    world.now_ms += 5_000
    result = world.beat("a", 2, **more)
    assert kinds_of(result.records) == [(MEMBER, "a", True)]
    assert epochs(world) == (2, 2)
    (name,) = more
    assert getattr(world.group.members["a"], name) == more[name]


def test_a_member_without_a_subscription_of_its_own_raises_no_epoch(world: HeartbeatWorld) -> None:
    world.join("a")
    result = world.join("b", [])
    assert kinds_of(result.records) == [(MEMBER, "b", True), (CURRENT, "b", True)]
    assert (result.response.member_epoch, told(result), epochs(world)) == (2, {}, (2, 2))


# --- the group's epoch ------------------------------------------------------------------------------------


def test_another_subscription_raises_the_epoch_even_if_the_groups_topics_stay(world: HeartbeatWorld) -> None:
    world.join("a", ["t", "u"])
    world.join("b", ["t"])
    digest = world.group.epoch.metadata_hash
    result = world.beat("b", 2, subscribed_topic_names=["u"])
    assert group_epoch_record("g", GroupEpoch(4, digest)) in result.records


def test_the_hash_is_of_the_topics_with_this_change(world: HeartbeatWorld) -> None:
    world.join("a", ["t"])
    world.join("b", ["u"])
    assert world.group.epoch.metadata_hash == metadata_hash(["t", "u"], world.topics)
    world.beat("a", 2, subscribed_topic_names=[])
    assert world.group.epoch == GroupEpoch(4, metadata_hash(["u"], world.topics))


def test_row_10_a_topic_that_grows_is_seen_at_the_next_heartbeat(world: HeartbeatWorld) -> None:
    world.join("a")
    world.now_ms += 1_000
    world.topics.grow("u", 3)  # not subscribed
    assert world.beat("a", 2).records == []
    world.topics.grow("t", 5)
    result = world.beat("a", 2)
    assert (result.response.member_epoch, told(result), epochs(world)) == (3, {T: [0, 1, 2, 3, 4]}, (3, 3))


def test_row_10_a_topic_that_is_made_is_seen_at_the_next_heartbeat() -> None:
    world = HeartbeatWorld(FakeTopics(t=1))
    world.join("a", ["t", "u"])
    world.now_ms += 1_000
    world.topics.create("u", 1)
    result = world.beat("a", 2)
    assert (result.response.member_epoch, told(result), epochs(world)) == (3, {T: [0], U: [0]}, (3, 3))


def test_row_10_a_deleted_topic_goes_at_once_and_the_epoch_follows(world: HeartbeatWorld) -> None:
    world.join("a", ["t", "u"])
    world.topics.delete("u")
    result = world.beat("a", 2)
    assert (result.response.member_epoch, told(result), epochs(world)) == (2, {T: [0, 1, 2, 3]}, (3, 2))
    world.now_ms += 1_000
    result = world.beat("a", 2, {T: [0, 1, 2, 3]})
    assert (result.response.member_epoch, told(result), epochs(world)) == (3, None, (3, 3))


def test_another_preferred_assignor_raises_the_epoch_and_makes_the_target() -> None:
    world = HeartbeatWorld(FakeTopics(t=2, u=2))
    world.join("a", ["t", "u"], server_assignor="uniform")
    world.now_ms += 1_000
    world.join("b", ["t", "u"], server_assignor="range")  # one each: the later name, uniform
    assert epochs(world) == (3, 3)
    world.now_ms += 1_000
    world.beat("a", 2, server_assignor="range")
    assert epochs(world) == (4, 4)
    assert world.group.target == {"a": {T: (0,), U: (0,)}, "b": {T: (1,), U: (1,)}}
    world.now_ms += 1_000
    world.beat("a", 2, server_assignor="uniform")
    assert epochs(world) == (5, 5)


def test_a_new_member_with_another_assignor_raises_the_epoch(world: HeartbeatWorld) -> None:
    world.join("a", [])
    world.join("b", [], server_assignor="uniform")  # the default
    assert epochs(world) == (1, 1)
    world.join("c", [], server_assignor="range")
    assert epochs(world) == (1, 1)  # of two that as many request, uniform
    world.join("d", [], server_assignor="range")
    assert epochs(world)[0] == 2


# --- regular expressions ----------------------------------------------------------------------------------


def test_row_2_a_wrong_regex_is_rejected_at_the_join(world: HeartbeatWorld) -> None:
    with pytest.raises(RequestError) as raised:
        world.join("a", None, subscribed_topic_regex="(")
    assert raised.value.error is E.INVALID_REGULAR_EXPRESSION
    assert world.group.members == {}


def resolve(world: HeartbeatWorld, regex: str, *names: str) -> None:
    replay(world.group, [regex_record("g", regex, ResolvedRegex(names, 1, 1))])


def test_row_2_a_resolved_regex_is_used_at_once_and_names_are_added(world: HeartbeatWorld) -> None:
    result = world.join("a", None, subscribed_topic_regex="t.*")
    assert (result.has_new_regex, result.response.member_epoch, told(result)) == (True, 1, {})
    result = world.join("b", None, subscribed_topic_regex="t.*")  # not resolved yet
    assert (result.has_new_regex, epochs(world)) == (False, (1, 1))
    resolve(world, "t.*", "t")
    world.now_ms += 1_000
    result = world.join("c", ["u"], subscribed_topic_regex="t.*")
    digest = metadata_hash(["t", "u"], world.topics)
    assert (result.has_new_regex, world.group.epoch) == (False, GroupEpoch(2, digest))
    assert [[*world.group.target[each]] for each in "abc"] == [[T], [T], [U]]
    assert (result.response.member_epoch, told(result)) == (2, {U: [0, 1]})


def test_row_4_dropping_the_last_regex_takes_its_topics_away_at_once(world: HeartbeatWorld) -> None:
    world.join("a", ["u"], subscribed_topic_regex="t")
    resolve(world, "t", "t")
    world.topics.changes += 1
    world.now_ms += 1_000
    assert told(world.beat("a", 2)) == {T: [0, 1, 2, 3], U: [0, 1]}
    result = world.beat("a", 3, subscribed_topic_regex="")
    assert regex_tombstone("g", "t") in result.records
    assert (result.response.member_epoch, told(result), epochs(world)) == (3, {U: [0, 1]}, (4, 3))
    assert world.group.epoch.metadata_hash == metadata_hash(["u"], world.topics)
    assert world.group.regexes == {}


def test_a_regex_that_another_member_has_stays(world: HeartbeatWorld) -> None:
    for member in "ab":
        world.join(member, None, subscribed_topic_regex="t")
    resolve(world, "t", "t")
    result = world.beat("a", 1, subscribed_topic_regex="")
    assert kinds_of(result.records) == [(MEMBER, "a", True), (GROUP, "", True)]
    assert world.group.epoch.metadata_hash == metadata_hash(["t"], world.topics)
    result = world.beat("b", 1, subscribed_topic_regex="u")  # the last one
    assert (REGEX, "t", False) in kinds_of(result.records)
    assert result.has_new_regex


def test_another_regex_takes_the_old_topics_away_before_it_is_resolved(world: HeartbeatWorld) -> None:
    world.join("a", None, subscribed_topic_regex="t")
    resolve(world, "t", "t")
    world.topics.changes += 1
    world.now_ms += 1_000
    assert told(world.beat("a", 1)) == {T: [0, 1, 2, 3]}
    result = world.beat("a", 2, subscribed_topic_regex="u")
    assert (result.has_new_regex, told(result)) == (True, {})
    assert epochs(world) == (2, 2)


# --- towards the target -----------------------------------------------------------------------------------


def share(world: HeartbeatWorld) -> HeartbeatResult:
    """Member b joins a second later; a has to give up two of four partitions."""
    world.join("a")
    world.now_ms += 1_000
    world.join("b")
    return world.beat("a", 2)


def test_row_3_a_member_gives_up_before_its_epoch_rises(world: HeartbeatWorld) -> None:
    result = share(world)
    assert (result.response.member_epoch, told(result)) == (2, {T: [0, 1]})
    assert result.current == CurrentAssignment(
        2, 2, UNREVOKED, assigned(0, 1, epoch=2), assigned(2, 3, epoch=2)
    )
    assert must_revoke(result.current)
    for owned in (None, {T: [0, 1, 2]}):  # null never counts as revoked
        result = world.beat("a", 2, owned)
        assert (result.response.member_epoch, result.records) == (2, [])
    result = world.beat("b", 3)
    assert (result.current.state, told(result)) == (UNRELEASED, None)
    result = world.beat("a", 2, {T: [0, 1]})
    assert (result.response.member_epoch, told(result)) == (3, None)  # row 3: the set is the same
    assert not must_revoke(result.current)
    result = world.beat("b", 3)
    assert told(result) == {T: [2, 3]}
    assert world.group.state.value == "Stable"


def test_a_topic_that_is_reported_twice_is_owned_with_all_its_partitions(world: HeartbeatWorld) -> None:
    share(world)
    both = [TopicPartitions(topic_id=T, partitions=[each]) for each in (3, 0)]
    result = world.send("a", 2, both)
    assert (result.response.member_epoch, result.records) == (2, [])


def test_row_3_a_full_heartbeat_is_told_its_partitions(world: HeartbeatWorld) -> None:
    world.join("a")
    full: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
    has = {T: [0, 1, 2, 3]}
    assert told(world.beat("a", 2, has, **full)) == has
    assert told(world.beat("a", 2, has, rebalance_timeout_ms=60_000, subscribed_topic_regex="")) == has
    assert told(world.beat("a", 2, None, **full)) is None
    for name in full:
        assert told(world.beat("a", 2, has, **{name: full[name]})) is None


def test_row_4_a_dropped_topic_goes_in_the_same_answer_before_a_new_epoch(world: HeartbeatWorld) -> None:
    world.join("a", ["t", "u"])
    result = world.beat("a", 2, subscribed_topic_names=["u"])
    assert (result.response.member_epoch, told(result), epochs(world)) == (2, {U: [0, 1]}, (3, 2))
    assert result.current.state is UNREVOKED


def test_row_5_the_previous_epoch_is_answered_with_the_new_one(world: HeartbeatWorld) -> None:
    share(world)
    world.beat("a", 2, {T: [0, 1]})
    assert world.beat("a", 2, {T: [1]}).response.member_epoch == 3
    with pytest.raises(RequestError) as raised:
        world.beat("a", 2)
    assert raised.value.error is E.FENCED_MEMBER_EPOCH


# --- static members ---------------------------------------------------------------------------------------


def test_row_8_a_successor_takes_the_place_and_the_target(world: HeartbeatWorld) -> None:
    world.join("a", instance_id="i")
    world.now_ms += 10
    replay(world.group, leave(world.group, "a", "i", -2, world.topics))
    result = world.join("b", instance_id="i")
    assert (result.replaced_id, result.is_moved) == ("a", True)
    assert (result.response.member_epoch, told(result), epochs(world)) == (2, {T: [0, 1, 2, 3]}, (2, 2))
    assert list(world.group.members) == ["b"]
    assert world.group.owners == {T: dict.fromkeys(range(4), "b")}


def test_row_8_a_successor_with_another_subscription_gets_the_old_epoch_and_nothing(
    world: HeartbeatWorld,
) -> None:
    world.join("a", instance_id="i", server_assignor="range")
    replay(world.group, leave(world.group, "a", "i", -2, world.topics))
    result = world.join("b", ["u"], instance_id="i", server_assignor="uniform")
    assert (result.response.member_epoch, told(result), epochs(world)) == (2, {}, (3, 2))
    assert world.group.epoch.metadata_hash == metadata_hash(["u"], world.topics)
    assert world.group.assignors == {"uniform": 1}
    world.now_ms += 1_000
    result = world.beat("b", 2)
    assert (result.response.member_epoch, told(result), epochs(world)) == (3, {U: [0, 1]}, (3, 3))


def test_a_successor_keeps_the_partitions_in_a_target_that_it_causes(world: HeartbeatWorld) -> None:
    world.join("a", instance_id="i")
    share_of_b = world.join("b")
    assert told(share_of_b) == {}
    replay(world.group, leave(world.group, "a", "i", -2, world.topics))
    world.now_ms += 1_000
    result = world.join("c", instance_id="i")
    assert world.group.target == {"c": {T: (0, 1)}, "b": {T: (2, 3)}}
    assert (told(result), epochs(world)) == ({T: [0, 1]}, (3, 3))


def test_a_member_without_a_target_is_replaced() -> None:
    """It joined within the interval, and left before there was an assignment."""
    world = HeartbeatWorld(FakeTopics(t=2))
    world.join("a")
    world.join("b", instance_id="i")
    replay(world.group, leave(world.group, "b", "i", -2, world.topics))
    world.now_ms += 1_000
    result = world.join("c", instance_id="i")
    assert (result.replaced_id, result.response.member_epoch, told(result)) == ("b", 3, {})
    assert world.group.target == {"a": {T: (0,)}, "c": {T: (1,)}}


def test_the_partitions_of_a_response_are_in_order() -> None:
    current = CurrentAssignment(2, 1, STABLE, {U: {1: 2}, T: {3: 1, 0: 2}}, {T: {2: 1}})
    assert assignment_of(current).topic_partitions == [
        TopicPartitions(topic_id=T, partitions=[0, 3]),
        TopicPartitions(topic_id=U, partitions=[1]),
    ]
