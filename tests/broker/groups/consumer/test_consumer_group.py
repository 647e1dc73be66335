"""One consumer group replayed from records: its indexes, state and memory follow each record."""

from __future__ import annotations

import pytest

from lockstep.broker.groups.classic_group import MEMBER_BYTES, group_bytes, text_bytes
from lockstep.broker.groups.consumer import consumer_group_records as records
from lockstep.broker.groups.consumer.consumer_group import (
    NAME_BYTES,
    NEW_MEMBER,
    RECORD_COPIES,
    ConsumerGroup,
    ConsumerGroupState,
    find_remaining,
    subscribed_names,
    subscription_bytes,
)
from lockstep.broker.groups.consumer.consumer_group_records import (
    ConsumerGroupMember,
    CurrentAssignment,
    GroupEpoch,
    MemberState,
    ResolvedRegex,
    TargetMetadata,
)
from lockstep.broker.groups.group_records import Record
from lockstep.protocol.primitives import MalformedMessage

T, U = bytes(range(16)), bytes(range(16, 32))


def replay(group: ConsumerGroup, *written: Record) -> ConsumerGroup:
    for key, value in written:
        kind = int.from_bytes(key[:2], "big")
        group.apply(kind, key, records.read_key(kind, key)[1], value)
    return group


def ended(*written: Record) -> list[Record]:
    return [(key, None) for key, _ in written]


def member(member_id: str, *topics: str, **more: str) -> Record:
    return records.member_record("g", ConsumerGroupMember(member_id, topics=topics, **more))  # type: ignore[arg-type]


def current(
    member_id: str,
    epoch: int,
    assigned: records.EpochsByPartition,
    revoked: records.EpochsByPartition = records.NO_EPOCHS,
    state: MemberState = MemberState.STABLE,
) -> Record:
    return records.current_record(
        "g", member_id, CurrentAssignment(epoch, epoch - 1, state, assigned, revoked)
    )


def epoch(number: int) -> Record:
    return records.group_epoch_record("g", GroupEpoch(number, 9))


def assignment(number: int, time_ms: int = 7) -> Record:
    return records.target_metadata_record("g", TargetMetadata(number, time_ms))


def bytes_of(*written: Record) -> int:
    return RECORD_COPIES * sum(len(key) + len(value or b"") for key, value in written)


def test_an_empty_group() -> None:
    group = ConsumerGroup("g")
    assert (group.group_epoch, group.assignment_epoch, group.state) == (0, 0, ConsumerGroupState.EMPTY)
    assert (group.current_of("m"), dict(group.target_of("m"))) == (NEW_MEMBER, {})
    assert (group.static_member(None), group.static_member("i"), group.tombstones()) == (None, None, [])
    assert group.memory_bytes == group_bytes("g")


def test_each_kind_of_record_and_its_tombstone() -> None:
    resolved = ResolvedRegex(("t", "u"), 3, 4)
    written = [
        epoch(2),
        member("m", "t", regex="x.*"),
        records.regex_record("g", "x.*", resolved),
        records.target_record("g", "m", {T: (0, 1)}),
        assignment(2),
        current("m", 2, {T: {0: 2}}, {U: {1: 1}}),
    ]
    group = replay(ConsumerGroup("g"), *written)
    assert (group.epoch, group.target_metadata) == (GroupEpoch(2, 9), TargetMetadata(2, 7))
    assert (group.group_epoch, group.assignment_epoch) == (2, 2)
    assert group.members == {"m": ConsumerGroupMember("m", topics=("t",), regex="x.*")}
    assert (group.regexes, group.target) == ({"x.*": resolved}, {"m": {T: (0, 1)}})
    assert group.target_of("m") == {T: (0, 1)}
    assert group.current_of("m") == CurrentAssignment(2, 1, MemberState.STABLE, {T: {0: 2}}, {U: {1: 1}})
    assert group.owners == {T: {0: "m"}, U: {1: "m"}}
    assert group.records == dict(written)
    assert replay(group, *reversed(ended(*written))) == ConsumerGroup("g")


def test_a_record_that_is_not_kept_in_the_group_is_kept_as_it_is() -> None:
    """Kafka wrote the metadata of partitions until 4.0: a tombstone may come for it at any time."""
    key, value = b"\0\4\0\1g", b"\0\0\1\0"
    group = replay(ConsumerGroup("g"), (key, value))
    assert (group.records, group.members, group.group_epoch) == ({key: value}, {}, 0)
    assert replay(group, (key, None)) == ConsumerGroup("g")


def test_a_malformed_record_changes_nothing() -> None:
    group = replay(ConsumerGroup("g"), epoch(2), member("m", "t"))
    copy = replay(ConsumerGroup("g"), epoch(2), member("m", "t"))
    with pytest.raises(MalformedMessage):
        replay(group, (member("m", "u")[0], b"\0\0"))
    assert group == copy


def test_groups_are_equal_by_what_they_hold() -> None:
    one, other = (replay(ConsumerGroup("g"), epoch(2), member("m", "t")) for _ in range(2))
    assert one == other
    assert replay(other, member("m", "u")) != one
    assert one != "g" and ConsumerGroup("g") != ConsumerGroup("h")


def test_the_state_follows_members_epochs_and_current_assignments() -> None:
    group = replay(ConsumerGroup("g"), epoch(1))
    assert (group.state, group.unreconciled) == (ConsumerGroupState.EMPTY, set())
    replay(group, member("a", "t"), member("b", "t"))
    assert (group.state, group.unreconciled) == (ConsumerGroupState.ASSIGNING, set())
    replay(group, assignment(1))
    assert (group.state, group.unreconciled) == (ConsumerGroupState.RECONCILING, {"a", "b"})
    replay(group, current("a", 1, {}), current("b", 1, {}, state=MemberState.UNRELEASED_PARTITIONS))
    assert (group.state, group.unreconciled) == (ConsumerGroupState.RECONCILING, {"b"})
    replay(group, current("b", 1, {}))
    assert (group.state, group.unreconciled) == (ConsumerGroupState.STABLE, set())
    replay(group, assignment(1, time_ms=8))
    assert (group.state, group.target_metadata.time_ms) == (ConsumerGroupState.STABLE, 8)
    replay(group, epoch(2), assignment(2), current("a", 2, {}))
    assert (group.state, group.unreconciled) == (ConsumerGroupState.RECONCILING, {"b"})
    replay(group, *ended(member("b")))
    assert (group.state, group.unreconciled) == (ConsumerGroupState.STABLE, set())
    replay(group, current("b", 1, {}))  # of no member: it does not hold the group up
    assert group.state is ConsumerGroupState.STABLE


def test_the_counts_of_subscriptions_follow_the_members() -> None:
    group = replay(
        ConsumerGroup("g"),
        member("a", "t", "u", regex="x.*", server_assignor="range"),
        member("b", "t", regex="x.*", server_assignor="range"),
        member("c"),
    )
    assert (group.topic_members, group.regex_members) == ({"t": 2, "u": 1}, {"x.*": 2})
    assert group.assignors == {"range": 2}
    replay(group, member("a", "v", server_assignor="uniform"))
    assert (group.topic_members, group.regex_members) == ({"t": 1, "v": 1}, {"x.*": 1})
    assert group.assignors == {"range": 1, "uniform": 1}
    replay(group, *ended(member("a"), member("b"), member("c"), member("d")))
    assert (group.topic_members, group.regex_members, group.assignors, group.members) == ({}, {}, {}, {})


def test_the_names_of_a_subscription() -> None:
    resolved = {"x.*": ResolvedRegex(("u", "x1")), "of nobody": ResolvedRegex(("y",))}
    assert subscribed_names(["t", "u"], ["x.*", "not yet"], resolved) == {"t", "u", "x1"}
    assert subscribed_names(["t"], [], resolved) == {"t"}


def test_the_names_that_remain_where_some_are_removed() -> None:
    assert find_remaining({"a": 2, "b": 1, "c": 1}, ["a", "b"]) == {"a", "c"}
    assert find_remaining({"a": 2}, ["a", "a"]) == set()


def test_the_memory_of_a_subscription() -> None:
    assert subscription_bytes((), "") == 0
    assert subscription_bytes(("t", "topic"), "x.*") == 2 * NAME_BYTES + RECORD_COPIES * (6 + 2 * 3)


def test_a_static_member_is_found_by_its_instance_id() -> None:
    group = replay(ConsumerGroup("g"), member("a", instance_id="i"), member("b"))
    assert group.static_member("i") == group.members["a"]
    replay(group, member("a", instance_id="j"))
    assert (group.static_member("i"), group.static_ids) == (None, {"j": "a"})
    replay(group, member("c", instance_id="j"))
    assert group.static_ids == {"j": "c"}
    replay(group, *ended(member("a")))  # its successor has the instance id now
    assert (group.static_ids, group.static_member("j")) == ({"j": "c"}, group.members["c"])
    replay(group, *ended(member("c")))
    assert (group.static_ids, group.static_member("j")) == ({}, None)


def test_a_partition_has_an_owner_until_it_is_given_up() -> None:
    group = replay(ConsumerGroup("g"), current("a", 1, {T: {0: 1, 1: 1}}, {U: {0: 1}}))
    assert [group.is_owned(T, 0), group.is_owned(T, 2), group.is_owned(U, 0)] == [True, False, True]
    replay(group, current("a", 2, {T: {0: 1}}))
    assert (group.owners, group.is_owned(U, 0)) == ({T: {0: "a"}}, False)
    replay(group, *ended(current("a", 2, {})))
    assert (group.owners, group.current_of("a")) == ({}, NEW_MEMBER)


def test_what_another_member_has_got_meanwhile_is_not_released() -> None:
    """Also where all of the topic had gone already."""
    group = replay(ConsumerGroup("g"), current("a", 1, {T: {0: 1, 1: 1}}), current("b", 2, {T: {0: 2}}))
    replay(group, *ended(current("a", 1, {})))
    assert group.owners == {T: {0: "b"}}
    replay(group, current("a", 1, {T: {0: 1}}), *ended(current("a", 1, {})))
    assert group.owners == {}
    replay(group, *ended(current("b", 2, {})))
    assert (group.owners, group.current) == ({}, {})


def test_the_group_ends_with_its_members_and_then_its_own_record() -> None:
    written = [epoch(1), member("a", "t"), assignment(1), current("a", 1, {T: {0: 1}}), member("b", "t")]
    group = replay(ConsumerGroup("g"), *written)
    ends = group.tombstones()
    assert [(key[1], value) for key, value in ends] == [(6, None), (8, None), (5, None), (5, None), (3, None)]
    assert replay(group, *ends) == ConsumerGroup("g")


def test_memory_is_that_of_the_newest_records_and_of_the_members() -> None:
    group = ConsumerGroup("g")
    replay(group, epoch(1), member("a", "t"), epoch(2), member("a", "t", "topic"))
    newest = bytes_of(epoch(2), member("a", "t", "topic"))
    assert group.memory_bytes == group_bytes("g") + MEMBER_BYTES + text_bytes("a") + 2 * NAME_BYTES + newest
    replay(group, *ended(member("a"), member("b")))
    assert group.memory_bytes == group_bytes("g") + bytes_of(epoch(2))
