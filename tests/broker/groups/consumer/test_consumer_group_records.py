"""The records of consumer groups: there and back, byte for byte what Kafka writes."""

from __future__ import annotations

import pytest

from lockstep.broker.groups.consumer import consumer_group_records as records
from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.broker.groups.consumer.consumer_group_records import (
    ConsumerGroupMember,
    CurrentAssignment,
    GroupEpoch,
    MemberState,
    ResolvedRegex,
    TargetMetadata,
)
from lockstep.broker.groups.consumer.consumer_groups_state import ConsumerGroupsState
from lockstep.broker.groups.group_records import Record, UnknownGroupRecord
from lockstep.protocol.primitives import MalformedMessage

T = bytes(range(16))
MEMBER = ConsumerGroupMember("m", "i", "r", "c", "/h", ("a", "b"), "x.*", 7, "range")
CURRENT = CurrentAssignment(5, 4, MemberState.UNREVOKED_PARTITIONS, {T: {0: 4, 2: 5}}, {T: {1: 3}})


@pytest.mark.parametrize("member", [MEMBER, ConsumerGroupMember("m")])
def test_a_member_there_and_back(member: ConsumerGroupMember) -> None:
    key, value = records.member_record("g", member)
    assert records.read_key(5, key) == ("g", "m")
    assert value is not None and records.read_member("m", value) == member


def test_the_others_there_and_back() -> None:
    group = records.group_epoch_record("g", GroupEpoch(3, -7))
    target = records.target_record("g", "m", {T: (0, 3)})
    metadata = records.target_metadata_record("g", TargetMetadata(3, 1_000))
    current = records.current_record("g", "m", CURRENT)
    regex = records.regex_record("g", "x.*", ResolvedRegex(("a", "b"), 5, 6))
    assert records.read_group_epoch(_value(group)) == GroupEpoch(3, -7)
    assert records.read_target(_value(target)) == {T: (0, 3)}
    assert records.read_target_metadata(_value(metadata)) == TargetMetadata(3, 1_000)
    assert records.read_current(_value(current)) == CURRENT
    assert records.read_regex(_value(regex)) == ResolvedRegex(("a", "b"), 5, 6)
    keys = [key[:2] for key, _ in (group, target, metadata, current, regex)]
    assert keys == [bytes([0, kind]) for kind in (3, 7, 6, 8, 16)]
    assert records.read_key(16, regex[0]) == ("g", "x.*")


def _value(record: Record) -> bytes:
    assert record[1] is not None
    return record[1]


def test_bytes_of_the_records_without_tags() -> None:
    key, value = records.target_record("g", "m", {T: (1,)})
    assert key == b"\0\7\0\1g\0\1m"
    assert value == b"\0\0\2" + T + b"\2\0\0\0\1\0\0"
    assert records.group_epoch_record("g", GroupEpoch(2)) == (b"\0\3\0\1g", b"\0\0\0\0\0\2\0")


def test_a_record_of_a_kafka_without_epochs_of_partitions() -> None:
    value = b"\0\0" + b"\0\0\0\5" + b"\0\0\0\4" + b"\1" + b"\2" + T + b"\2\0\0\0\3\0" + b"\1" + b"\0"
    assert records.read_current(value) == CurrentAssignment(5, 4, MemberState.STABLE, {T: {3: 5}})


def test_an_unknown_state_and_an_unknown_version() -> None:
    value = bytearray(_value(records.current_record("g", "m", CURRENT)))
    value[10] = 9
    assert records.read_current(bytes(value)).state is MemberState.UNKNOWN
    with pytest.raises(UnknownGroupRecord):
        records.read_current(b"\0\1" + bytes(value[2:]))
    with pytest.raises(MalformedMessage):
        records.read_current(b"\0")


def test_a_group_ends_with_its_last_record() -> None:
    state = ConsumerGroupsState()
    written = [
        records.group_epoch_record("g", GroupEpoch(2)),
        records.member_record("g", MEMBER),
        records.target_record("g", "m", {T: (0,)}),
        records.current_record("g", "m", CURRENT),
        records.regex_record("g", "x.*", ResolvedRegex(("a",), 1, 1)),
        records.target_metadata_record("g", TargetMetadata(2, 5)),
    ]
    for key, value in written:
        state.apply(key[1], key, value)
    group = state.group("g")
    assert group is not None and state.memory_bytes == group.memory_bytes > 3_000
    ends = group.tombstones()
    assert sorted(key for key, _ in ends) == sorted(key for key, _ in written)
    assert ends[-1] == (written[0][0], None)
    for key, value in ends:
        state.apply(key[1], key, value)
    assert (state == ConsumerGroupsState(), state.memory_bytes, bool(state)) == (True, 0, False)


def test_a_partition_stays_with_the_member_that_got_it_last() -> None:
    group = ConsumerGroup("g")
    for member_id, index in (("a", 0), ("b", 0), ("a", 1)):
        key, value = records.current_record(
            "g", member_id, CurrentAssignment(1, 0, MemberState.STABLE, {T: {index: 1}})
        )
        group.apply(8, key, member_id, value)
    assert group.owners == {T: {0: "b", 1: "a"}}


def test_a_member_and_a_regular_expression_end_with_tombstones_in_kafkas_order() -> None:
    ends = records.member_tombstones("g", "m")
    assert ends == [(bytes([0, kind]) + b"\0\1g\0\1m", None) for kind in (8, 7, 5)]
    assert [key for key, _ in ends] == [
        records.current_record("g", "m", CURRENT)[0],
        records.target_record("g", "m", {})[0],
        records.member_record("g", MEMBER)[0],
    ]
    assert records.regex_tombstone("g", "x.*") == (b"\0\x10\0\1g\0\3x.*", None)


def test_the_group_and_the_name_of_each_kind_of_key() -> None:
    for kind in records.KINDS - records.MEMBER_KINDS - {16}:
        assert records.read_key(kind, bytes([0, kind]) + b"\0\1g") == ("g", "")
    for kind in (*records.MEMBER_KINDS, 16):
        assert records.read_key(kind, bytes([0, kind]) + b"\0\1g\0\2mm") == ("g", "mm")
        with pytest.raises(MalformedMessage):
            records.read_key(kind, bytes([0, kind]) + b"\0\1g")


def test_topics_and_partitions_are_written_in_order_and_read_once() -> None:
    """Equal objects have equal bytes."""
    other = bytes(16)
    for one, two in (
        (
            records.target_record("g", "m", {T: (0,), other: (1,)}),
            records.target_record("g", "m", {other: (1,), T: (0,)}),
        ),
        (
            records.current_record("g", "m", CurrentAssignment(assigned={T: {0: 4, 2: 5}, other: {0: 1}})),
            records.current_record("g", "m", CurrentAssignment(assigned={other: {0: 1}, T: {2: 5, 0: 4}})),
        ),
        (
            records.regex_record("g", "x", ResolvedRegex(("a", "b"))),
            records.regex_record("g", "x", ResolvedRegex(("b", "a"))),
        ),
    ):
        assert one == two
    twice = ConsumerGroupMember("m", topics=("b", "a", "b"))
    assert records.read_member("m", _value(records.member_record("g", twice))).topics == ("a", "b")
    regex = _value(records.regex_record("g", "x", ResolvedRegex(("b", "a", "b"))))
    assert records.read_regex(regex).topics == ("a", "b")


def test_epochs_that_do_not_fit_their_partitions_count_as_the_members() -> None:
    """Two partitions with one epoch: as if there were none."""
    value = b"\0\0" + b"\0\0\0\5" + b"\0\0\0\4" + b"\1" + b"\2" + T + b"\3\0\0\0\1\0\0\0\3"
    value += b"\1\0\5\2\0\0\0\2" + b"\1" + b"\0"
    assert records.read_current(value).assigned == {T: {1: 5, 3: 5}}


def test_a_member_is_reconciled_to_the_epoch_of_its_assignment() -> None:
    assert CurrentAssignment(5).is_reconciled_to(5)
    assert not CurrentAssignment(5).is_reconciled_to(6)
    assert not CURRENT.is_reconciled_to(5)
