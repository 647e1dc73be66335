"""A consumer group's description: states, epochs, what members have and are to have, names of topics."""

from __future__ import annotations

from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.broker.groups.consumer.consumer_group_description import describe, described_topics
from lockstep.broker.groups.consumer.consumer_group_records import (
    ConsumerGroupMember,
    CurrentAssignment,
    GroupEpoch,
    MemberState,
    TargetMetadata,
    current_record,
    group_epoch_record,
    member_record,
    target_metadata_record,
    target_record,
)
from lockstep.protocol.messages.consumer_group_describe import Assignment
from tests.broker.groups.consumer.fakes import FakeTopics
from tests.broker.groups.consumer.replayed_group import group_of, id_of

T, U = id_of(1), id_of(2)
REVOKING = CurrentAssignment(
    2, 1, MemberState.UNREVOKED_PARTITIONS, {U: {1: 2}, T: {3: 2, 0: 2}}, {T: {2: 2}}
)


def group() -> ConsumerGroup:
    """Member a has to give up t-2, for b, which has nothing yet."""
    return group_of(
        group_epoch_record("g", GroupEpoch(3, 5)),
        member_record("g", ConsumerGroupMember("a", "i", "r", "c", "/h", ("t", "u"), "x.*", 7, "range")),
        member_record("g", ConsumerGroupMember("b", topics=("t",))),
        target_record("g", "a", {U: (1,), T: (0, 3)}),
        target_record("g", "b", {T: (2,)}),
        target_metadata_record("g", TargetMetadata(3, 1)),
        current_record("g", "a", REVOKING),
    )


def partitions_of(assignment: Assignment) -> list[tuple[bytes, str, list[int]]]:
    return [(each.topic_id, each.topic_name, each.partitions) for each in assignment.topic_partitions]


def test_a_group_is_described_with_its_state_epochs_and_assignor() -> None:
    found = describe(group(), FakeTopics(t=4, u=2), "range")
    assert (found.group_id, found.group_state, found.assignor_name) == ("g", "Reconciling", "range")
    assert (found.group_epoch, found.assignment_epoch) == (3, 3)
    empty = describe(ConsumerGroup("e"), FakeTopics(), "uniform")
    assert (empty.group_id, empty.group_state, empty.members) == ("e", "Empty", [])


def test_a_member_is_described_with_its_subscription_and_the_type_of_the_consumer_protocol() -> None:
    first, second = describe(group(), FakeTopics(t=4, u=2), "range").members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", 2)
    assert (first.client_id, first.client_host) == ("c", "/h")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t", "u"], "x.*")
    assert (second.member_id, second.instance_id, second.rack_id, second.member_epoch) == ("b", None, None, 0)
    assert (second.subscribed_topic_names, second.subscribed_topic_regex) == (["t"], "")
    assert (first.member_type, second.member_type) == (1, 1)  # row 11: 0 is a classic member's


def test_partitions_that_a_member_has_to_give_up_are_still_its_own() -> None:
    first, second = describe(group(), FakeTopics(t=4, u=2), "range").members
    assert partitions_of(first.assignment) == [(T, "t", [0, 2, 3]), (U, "u", [1])]
    assert partitions_of(first.target_assignment) == [(T, "t", [0, 3]), (U, "u", [1])]
    assert partitions_of(second.assignment) == []
    assert partitions_of(second.target_assignment) == [(T, "t", [2])]


def test_row_8_a_static_member_that_left_is_described_with_epoch_minus_2() -> None:
    found = describe(
        group_of(
            member_record("g", ConsumerGroupMember("a", "i")),
            current_record("g", "a", CurrentAssignment(-2, 1, MemberState.STABLE, {T: {0: 1}})),
        ),
        FakeTopics(t=1),
        "uniform",
    )
    assert (found.group_state, found.members[0].member_epoch) == ("Reconciling", -2)
    assert partitions_of(found.members[0].assignment) == [(T, "t", [0])]


def test_a_deleted_topic_is_left_out() -> None:
    topics = FakeTopics(t=4, u=2)
    assert described_topics(describe(group(), topics, "range")) == {"t", "u"}
    topics.delete("t")
    found = describe(group(), topics, "range")
    assert partitions_of(found.members[0].assignment) == [(U, "u", [1])]
    assert partitions_of(found.members[1].target_assignment) == []
    assert described_topics(found) == {"u"}


def test_described_topics_are_those_that_members_have_and_those_that_they_are_to_have() -> None:
    has = current_record("g", "a", CurrentAssignment(1, 0, MemberState.STABLE, {T: {0: 1}}))
    found = group_of(member_record("g", ConsumerGroupMember("a")), has, target_record("g", "a", {U: (0,)}))
    assert described_topics(describe(found, FakeTopics(t=1, u=1, v=1), "uniform")) == {"t", "u"}
