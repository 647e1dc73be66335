"""The member of a request, the check of its epoch, static members, and members that go."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
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
    member_tombstones,
    regex_record,
    regex_tombstone,
    target_metadata_record,
    target_record,
)
from lockstep.broker.groups.consumer.membership import (
    FoundMember,
    check_epoch,
    fence,
    find_member,
    leave,
    require_static,
    unknown_member,
)
from lockstep.broker.groups.consumer.subscribed_topics import metadata_hash
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from tests.broker.groups.consumer.fakes import FakeTopics
from tests.broker.groups.consumer.replayed_group import group_of, id_of, replay
from tests.support.cases import each_case

T, U = id_of(1), id_of(2)
STABLE, UNREVOKED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS
DYNAMIC = ConsumerGroupMember("d", topics=("t", "u"), regex="x.*", rebalance_timeout_ms=7)
STATIC = ConsumerGroupMember("s", "i", "r", topics=("t",), rebalance_timeout_ms=8)
DYNAMIC_HAS = CurrentAssignment(5, 4, STABLE, {T: {0: 4, 1: 5}})
STATIC_HAS = CurrentAssignment(5, 5, UNREVOKED, {T: {2: 5}}, {T: {3: 5}})
E = ErrorCode


def group() -> ConsumerGroup:
    return group_of(
        group_epoch_record("g", GroupEpoch(5, 77)),
        member_record("g", DYNAMIC),
        member_record("g", STATIC),
        regex_record("g", "x.*", ResolvedRegex(("x1",), 1, 1)),
        target_record("g", "d", {T: (0, 1)}),
        target_record("g", "s", {T: (2,)}),
        target_metadata_record("g", TargetMetadata(5, 1_000)),
        current_record("g", "d", DYNAMIC_HAS),
        current_record("g", "s", STATIC_HAS),
    )


def rejection(call: Any, *args: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(RequestError) as raised:
        call(*args)
    return raised.value.error, raised.value.message


def left_group() -> ConsumerGroup:
    """The static member has left with epoch -2."""
    found = group()
    replay(found, leave(found, "s", "i", -2, FakeTopics()))
    return found


# --- the member of a request --------------------------------------------------------------------------------


def test_a_join_makes_a_member_without_records() -> None:
    new = FoundMember(ConsumerGroupMember("n"), CurrentAssignment(), None, (), is_new=True)
    assert find_member(group(), "n", None, 0, {}) == new
    assert find_member(group(), "n", "j", 0, {}) == new  # heartbeat.py writes the instance id


@each_case("epoch, owned", [(5, None), (5, {T: [9]}), (4, {T: [0]}), (0, {})])
def test_a_member_is_found_by_its_id(epoch: int, owned: Any) -> None:
    assert find_member(group(), "d", None, epoch, owned) == FoundMember(DYNAMIC, DYNAMIC_HAS)


@each_case("epoch", [1, 5])
def test_row_8_an_unknown_member_that_does_not_join_is_25(epoch: int) -> None:
    expected = (E.UNKNOWN_MEMBER_ID, "Member n is not a member of group g.")
    assert rejection(find_member, group(), "n", None, epoch, {}) == expected
    error = unknown_member(group(), "n")
    assert (error.error, error.message) == expected


def test_a_static_member_is_found_by_its_instance_id_and_its_epoch_checked() -> None:
    assert find_member(group(), "s", "i", 5, None) == FoundMember(STATIC, STATIC_HAS)
    assert rejection(find_member, group(), "s", "i", 4, {})[0] is E.FENCED_MEMBER_EPOCH
    assert rejection(find_member, group(), "d", None, 6, {})[0] is E.FENCED_MEMBER_EPOCH


def test_row_8_unknown_and_fenced_instance_ids() -> None:
    assert rejection(find_member, group(), "s", "j", 5, None) == (
        E.UNKNOWN_MEMBER_ID,
        "Instance id j is unknown.",
    )
    assert rejection(find_member, group(), "o", "i", 5, None) == (
        E.FENCED_INSTANCE_ID,
        "Static member o with instance id i was fenced by member s.",
    )
    assert require_static(STATIC, "s", "i") is STATIC


def test_a_member_takes_an_instance_id_that_nobody_has() -> None:
    assert find_member(group(), "d", "j", 0, {}) == FoundMember(DYNAMIC, DYNAMIC_HAS)


@each_case("member_id", ["o", "s"])
def test_an_instance_id_in_use_is_not_given_to_another_nor_once_more(member_id: str) -> None:
    assert rejection(find_member, group(), member_id, "i", 0, {}) == (
        E.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id i cannot join the group because the instance id is "
        "owned by s member.",
    )


@pytest.mark.parametrize("member_id", ["o", "s"])
def test_row_8_a_static_member_that_has_left_is_replaced(member_id: str) -> None:
    found = left_group()
    result = find_member(found, member_id, "i", 0, {})
    member = ConsumerGroupMember(member_id, "i", "r", topics=("t",), rebalance_timeout_ms=8)
    current = CurrentAssignment(0, 0, UNREVOKED, {T: {2: 5}})
    assert result == FoundMember(
        member,
        current,
        "s",
        (
            *member_tombstones("g", "s"),
            member_record("g", member),
            target_record("g", member_id, {T: (2,)}),
            current_record("g", member_id, current),
        ),
    )
    replay(found, result.records)
    assert found.static_member("i") == member
    assert found.owners == {T: {0: "d", 1: "d", 2: member_id}}
    if member_id != "s":
        assert rejection(find_member, found, "s", "i", 5, None)[0] is E.FENCED_INSTANCE_ID
        assert rejection(leave, found, "s", "i", -1, FakeTopics())[0] is E.FENCED_INSTANCE_ID


# --- epochs -------------------------------------------------------------------------------------------------

HAS = CurrentAssignment(5, 3, STABLE, {T: {0: 2, 1: 5}, U: {0: 5}}, {T: {2: 5}})


@each_case(
    "received, owned",
    [(5, None), (5, {T: [9]}), (0, {}), (3, {}), (3, {T: [1]}), (3, {T: [0, 1], U: [0]}), (3, {U: []})],
)
def test_row_5_the_present_epoch_and_the_previous_one_with_a_subset_are_accepted(
    received: int, owned: Any
) -> None:
    check_epoch(HAS, received, owned)


@each_case(
    "received, owned",
    [(3, None), (3, {T: [0, 2]}), (3, {b"x" * 16: []}), (3, {T: [0], b"x" * 16: [0]}), (4, {}), (2, {})],
)
def test_row_5_an_older_epoch_is_fenced_the_previous_one_with_other_partitions_too(
    received: int, owned: Any
) -> None:
    assert rejection(check_epoch, HAS, received, owned) == (
        E.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a smaller member epoch ({received}) than the one known by the group "
        "coordinator (5). The member must abandon all its partitions and rejoin.",
    )


def test_a_higher_epoch_is_fenced() -> None:
    assert rejection(check_epoch, HAS, 6, {}) == (
        E.FENCED_MEMBER_EPOCH,
        "The consumer group member has a greater member epoch (6) than the one known by the group "
        "coordinator (5). The member must abandon all its partitions and rejoin.",
    )


# --- members that go ----------------------------------------------------------------------------------------


def test_row_8_what_a_leave_is_rejected_for() -> None:
    topics = FakeTopics()
    assert rejection(leave, group(), "n", None, -1, topics)[0] is E.UNKNOWN_MEMBER_ID
    for epoch in (-1, -2):
        assert rejection(leave, group(), "s", "j", epoch, topics)[0] is E.UNKNOWN_MEMBER_ID
        assert rejection(leave, group(), "d", "i", epoch, topics)[0] is E.FENCED_INSTANCE_ID


def test_row_8_a_static_member_leaves_for_a_while_twice_and_keeps_all_but_what_it_had_to_give_up() -> None:
    found = group()
    for _ in range(2):
        records = leave(found, "s", "i", -2, FakeTopics())
        assert records == [current_record("g", "s", CurrentAssignment(-2, 5, UNREVOKED, {T: {2: 5}}))]
        replay(found, records)
    assert (found.group_epoch, found.owners) == (5, {T: {0: "d", 1: "d", 2: "s"}})


def test_a_leave_raises_the_epoch_and_hashes_the_topics_that_are_left() -> None:
    topics = FakeTopics(t=4, u=1, x1=1)
    found = group()
    records = leave(found, "d", None, -1, topics)
    assert records == [
        *member_tombstones("g", "d"),
        regex_tombstone("g", "x.*"),
        group_epoch_record("g", GroupEpoch(6, metadata_hash(["t"], topics))),
    ]
    replay(found, records)
    assert (list(found.members), found.state.value, found.owners) == (
        ["s"],
        "Assigning",
        {T: {2: "s", 3: "s"}},
    )


def test_a_static_member_leaves_for_good() -> None:
    topics = FakeTopics(t=4, u=1, x1=1)
    assert leave(group(), "s", "i", -1, topics) == [
        *member_tombstones("g", "s"),
        group_epoch_record("g", GroupEpoch(6, metadata_hash(["t", "u", "x1"], topics))),
    ]


def test_the_last_members_take_the_assignment_epoch_with_them() -> None:
    """As Kafka 4.4.0, which writes an assignment of the time 0: the next one to join does not wait."""
    found = group()
    records = fence(found, ["s", "d"], FakeTopics(t=4))
    assert records == [
        *member_tombstones("g", "s"),
        *member_tombstones("g", "d"),
        regex_tombstone("g", "x.*"),
        group_epoch_record("g", GroupEpoch(6, 0)),
        target_metadata_record("g", TargetMetadata(6, 0)),
    ]
    replay(found, records)
    assert (found.state.value, found.owners, found.target, found.regexes) == ("Empty", {}, {}, {})


def test_a_regex_stays_as_long_as_one_member_has_it() -> None:
    topics = FakeTopics(t=1, x1=1, y=1)
    members = [ConsumerGroupMember(each, regex="x.*") for each in "abc"]
    members.append(ConsumerGroupMember("d", regex="unresolved"))
    found = group_of(
        *(member_record("g", each) for each in members),
        regex_record("g", "x.*", ResolvedRegex(("x1",), 1, 1)),
    )
    digest = metadata_hash(["x1"], topics)
    assert fence(found, ["a", "b"], topics) == [
        *member_tombstones("g", "a"),
        *member_tombstones("g", "b"),
        group_epoch_record("g", GroupEpoch(1, digest)),
    ]
    assert fence(found, ["d"], topics)[3:] == [
        regex_tombstone("g", "unresolved"),
        group_epoch_record("g", GroupEpoch(1, digest)),
    ]
