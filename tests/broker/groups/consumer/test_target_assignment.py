"""The target assignment: which assignor makes it, of which topics, and the records of what changes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lockstep.broker.groups.consumer.assignor import MemberSpec
from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.broker.groups.consumer.consumer_group_records import (
    ConsumerGroupMember,
    Partitions,
    ResolvedRegex,
    TargetMetadata,
    target_metadata_record,
    target_record,
)
from lockstep.broker.groups.consumer.range_assignor import assign_ranges
from lockstep.broker.groups.consumer.target_assignment import ASSIGNORS, next_target, preferred_assignor
from lockstep.broker.groups.consumer.uniform_assignor import assign_uniformly
from lockstep.broker.groups.group_records import Record
from tests.broker.groups.consumer.fakes import FakeTopics
from tests.broker.groups.consumer.replayed_group import id_of

T, U = id_of(1), id_of(2)
METADATA = TargetMetadata(7, 1_234)
LAST = target_metadata_record("g", METADATA)


def make(
    members: list[ConsumerGroupMember],
    targets: Mapping[str, Partitions],
    topics: FakeTopics,
    assignor: str = "range",
    regexes: Mapping[str, ResolvedRegex] | None = None,
) -> tuple[dict[str, Partitions], list[Record]]:
    by_id = {each.member_id: each for each in members}
    return next_target(ConsumerGroup("g"), by_id, targets, regexes or {}, topics, assignor, METADATA)


def test_the_assignor_that_most_members_request_else_the_first_configured() -> None:
    assert preferred_assignor({}, ["uniform", "range"]) == "uniform"
    assert preferred_assignor({}, ["range", "uniform"]) == "range"
    assert preferred_assignor({"range": 1}, ["uniform", "range"]) == "range"
    assert preferred_assignor({"range": 2, "uniform": 1}, ["uniform", "range"]) == "range"
    assert preferred_assignor({"uniform": 2, "range": 1}, ["range", "uniform"]) == "uniform"


def test_of_two_that_as_many_request_it_is_the_same_one_in_any_order() -> None:
    assert preferred_assignor({"range": 2, "uniform": 2}, ["range", "uniform"]) == "uniform"
    assert preferred_assignor({"uniform": 2, "range": 2}, ["range", "uniform"]) == "uniform"


def test_the_assignors_by_kafkas_names() -> None:
    assert dict(ASSIGNORS) == {"uniform": assign_uniformly, "range": assign_ranges}


def test_a_new_target_is_written_for_each_member_and_its_epoch_last() -> None:
    members = [ConsumerGroupMember(each, topics=("t",)) for each in "ab"]
    target, records = make(members, {}, FakeTopics(t=3))
    assert target == {"a": {T: (0, 1)}, "b": {T: (2,)}}
    assert records == [target_record("g", "a", {T: (0, 1)}), target_record("g", "b", {T: (2,)}), LAST]


def test_only_what_differs_from_the_present_target_is_written() -> None:
    members = [ConsumerGroupMember(each, topics=("t",)) for each in "abc"]
    target, records = make(members, {"a": {T: (0,)}, "b": {T: (1, 2)}}, FakeTopics(t=3))
    assert target == {"a": {T: (0,)}, "b": {T: (1,)}, "c": {T: (2,)}}
    assert records == [target_record("g", "b", {T: (1,)}), target_record("g", "c", {T: (2,)}), LAST]
    assert make(members, target, FakeTopics(t=3)) == (target, [LAST])


def test_a_member_that_gets_nothing_is_written_once() -> None:
    members = [ConsumerGroupMember(each, topics=("t",)) for each in "ab"]
    target, records = make(members, {"a": {T: (0,)}}, FakeTopics(t=1))
    assert target == {"a": {T: (0,)}, "b": {}}
    assert records == [target_record("g", "b", {}), LAST]
    assert make(members, target, FakeTopics(t=1))[1] == [LAST]


def test_members_have_their_own_subscriptions_by_name_and_regex() -> None:
    members = [
        ConsumerGroupMember("a", topics=("t", "x")),
        ConsumerGroupMember("b", regex="u.*"),
        ConsumerGroupMember("c", regex="later.*"),
        ConsumerGroupMember("d", topics=("t",), regex="u.*"),
    ]
    target, _ = make(members, {}, FakeTopics(t=2, u=2), regexes={"u.*": ResolvedRegex(("u",), 1, 1)})
    assert target == {"a": {T: (0,)}, "b": {U: (0,)}, "c": {}, "d": {T: (1,), U: (1,)}}


def test_the_named_assignor_sees_subscriptions_instance_ids_and_the_present_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[Mapping[str, MemberSpec], Mapping[bytes, int]]] = []

    def assign(members: Mapping[str, MemberSpec], counts: Mapping[bytes, int]) -> dict[str, Partitions]:
        seen.append((members, counts))
        return {"a": {T: (1,)}, "b": {}}

    monkeypatch.setattr("lockstep.broker.groups.consumer.target_assignment.ASSIGNORS", {"uniform": assign})
    members = [
        ConsumerGroupMember("a", "i", topics=("t", "u")),
        ConsumerGroupMember("b", topics=("t", "x")),
    ]
    target, records = make(members, {"a": {U: (0,)}}, FakeTopics(t=2, u=1), "uniform")
    specs = {
        "a": MemberSpec(frozenset([T, U]), "i", {U: (0,)}),
        "b": MemberSpec(frozenset([T]), None, None),
    }
    assert seen == [(specs, {T: 2, U: 1})]
    assert target == {"a": {T: (1,)}, "b": {}}
    assert records == [target_record("g", "a", {T: (1,)}), target_record("g", "b", {}), LAST]


def test_the_uniform_assignor_keeps_what_members_have() -> None:
    members = [ConsumerGroupMember(each, topics=("t",)) for each in "ab"]
    kept: dict[str, Partitions] = {"a": {T: (2,)}, "b": {T: (0, 1)}}
    assert make(members, kept, FakeTopics(t=3), "uniform") == (kept, [LAST])
    assert make(members, kept, FakeTopics(t=3), "range")[0] == {"a": {T: (0, 1)}, "b": {T: (2,)}}
