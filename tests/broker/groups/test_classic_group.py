"""The pure group: its table of states, votes, static members, leaders, and the way to and from a record."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from lockstep.broker.groups.classic_group import (
    GROUP_BYTES,
    MAX_GENERATION,
    MEMBER_BYTES,
    PENDING_BYTES,
    PROTOCOL_BYTES,
    TRANSITIONS,
    ClassicGroup,
    InvalidTransition,
    Member,
    State,
    protocols_of,
)
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case

ALLOWED = {
    ("Empty", "PreparingRebalance"),
    ("PreparingRebalance", "CompletingRebalance"),
    ("PreparingRebalance", "Empty"),
    ("CompletingRebalance", "Stable"),
    ("CompletingRebalance", "PreparingRebalance"),
    ("Stable", "PreparingRebalance"),
    *((state.value, "Dead") for state in State if state is not State.DEAD),
}


class Waiter:
    def complete(self, response: object | None) -> None:
        """Nobody asks in these tests."""


def member(name: str, *protocols: str, instance: str | None = None, rebalance_ms: int = 5) -> Member:
    known = tuple((each, f"{name} {each}".encode()) for each in protocols or ("range",))
    return Member(name, instance, "client", "/127.0.0.1", 10, rebalance_ms, known)


def group_of(*members: Member) -> ClassicGroup:
    group = ClassicGroup("g", 1)
    for each in members:
        group.add(each, "consumer")
    return group


@each_case(("before", "after"), list(itertools.product(State, State)))
def test_states_change_along_the_table_alone(before: State, after: State) -> None:
    group = ClassicGroup("g", 1)
    group.state = before
    if (before.value, after.value) in ALLOWED:
        group.transition(after, 7)
        assert (group.state, group.state_time_ms) == (after, 7)
    else:
        with pytest.raises(InvalidTransition):
            group.transition(after, 7)
        assert (group.state, group.state_time_ms) == (before, 1)
    assert set(TRANSITIONS) == set(State)


def test_the_states_that_can_rebalance() -> None:
    group = ClassicGroup("g", 1)
    found = set()
    for state in State:
        group.state = state
        if group.can_rebalance:
            found.add(state)
    assert found == {State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE}


def test_first_member_leads_and_sets_the_protocol_type() -> None:
    group = group_of(member("a"), member("b"))
    assert (group.leader, group.protocol_type) == ("a", "consumer")
    group.remove("a")
    assert group.leader == "b"
    group.remove("b")
    assert group.leader is None
    group.add(member("c"), "connect")
    assert (group.leader, group.protocol_type) == ("c", "connect")


def test_a_member_twice_is_a_mistake_of_ours() -> None:
    group = group_of(member("a", instance="i"))
    with pytest.raises(KeyError):
        group.add(member("a"), "consumer")
    with pytest.raises(KeyError):
        group.add(member("b", instance="i"), "consumer")
    assert list(group.members) == ["a"]


@each_case(
    ("known", "chosen"),
    [
        ([("x",)], "x"),
        ([("x", "y"), ("x", "y")], "x"),
        ([("x", "y"), ("y", "x"), ("y", "x")], "y"),
        ([("x", "y"), ("y", "x")], "x"),  # a tie: the older vote
        ([("z", "y"), ("x", "y"), ("x", "y")], "y"),  # the only one all know
        ([("a", "x", "y"), ("b", "y", "x"), ("c", "y", "x")], "y"),
    ],
)
def test_voting(known: list[tuple[str, ...]], chosen: str) -> None:
    group = group_of(*(member(f"m{n}", *each) for n, each in enumerate(known)))
    assert group.select_protocol() == chosen


def test_what_is_supported() -> None:
    group = ClassicGroup("g", 1)
    assert group.supports("consumer", (("range", b""),))
    assert not group.supports("", (("range", b""),))
    assert not group.supports("consumer", ())
    group.add(member("a", "x", "y"), "consumer")
    group.add(member("b", "y", "z"), "consumer")
    group.state = State.PREPARING_REBALANCE
    assert group.supports("consumer", (("y", b""),))
    assert group.supports("consumer", (("new", b""), ("y", b"")))
    assert not group.supports("consumer", (("x", b""),))
    assert not group.supports("connect", (("y", b""),))
    assert not group.supports("consumer", ())
    group.update(group.members["b"], (("x", b""),), 1, 1)
    assert group.supports("consumer", (("x", b""),))
    assert not group.supports("consumer", (("y", b""),))


def test_a_protocol_named_twice_counts_once() -> None:
    assert protocols_of([("x", b"1"), ("y", b"2"), ("x", b"3")]) == (("x", b"1"), ("y", b"2"))


def test_static_members() -> None:
    group = group_of(member("a", instance="i"), member("b"))
    assert group.validate("a", "i") is ErrorCode.NONE
    assert group.validate("b", None) is ErrorCode.NONE
    assert group.validate("b", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert group.validate("a", "j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.validate("c", None) is ErrorCode.UNKNOWN_MEMBER_ID
    group.pending_sync = {"a"}
    group.rename(group.members["a"], "a2")
    assert group.leader == "a2"
    assert group.pending_sync == {"a2"}
    assert group.validate("a2", "i") is ErrorCode.NONE
    assert group.validate("a", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert group.validate("a", None) is ErrorCode.UNKNOWN_MEMBER_ID
    group.remove("a2")
    assert group.static_ids == {}
    assert group.leader == "b"


def test_whose_place_a_join_takes() -> None:
    group = group_of(member("a", "range", instance="one"))
    assert group.find_replaced("", "one") is group.members["a"]
    assert group.find_replaced("a", "one") is group.members["a"]
    assert group.find_replaced("", "two") is None and group.find_replaced("", None) is None


def test_everybody_joined() -> None:
    group = group_of(member("a"), member("b", instance="i"))
    first, second = Waiter(), Waiter()
    assert not group.all_joined
    assert group.await_join(group.members["a"], first) is None
    assert group.await_join(group.members["a"], second) is first
    assert group.awaiting_join == 1
    assert [each.member_id for each in group.not_rejoined()] == []
    group.await_join(group.members["b"], first)
    assert group.all_joined
    group.pending.add("c")
    assert not group.all_joined
    group.remove("c")
    assert group.take_join_waiter(group.members["a"]) is second
    assert group.take_join_waiter(group.members["a"]) is None
    assert [each.member_id for each in group.not_rejoined()] == ["a"]
    group.remove("b")
    assert group.awaiting_join == 0


def test_leader_that_did_not_join_loses_the_lead() -> None:
    group = group_of(member("a", instance="i"), member("b", instance="j"))
    assert not group.elect_joined_leader()
    assert group.leader == "a"
    group.await_join(group.members["b"], Waiter())
    assert group.elect_joined_leader()
    assert group.leader == "b"
    assert not ClassicGroup("g", 1).elect_joined_leader()


def test_generations() -> None:
    group = group_of(member("a"))
    group.state = State.PREPARING_REBALANCE
    group.pending_sync = {"a"}
    group.next_generation(5)
    assert (group.generation, group.state, group.protocol) == (1, State.COMPLETING_REBALANCE, "range")
    assert group.pending_sync == set()
    group.remove("a")
    group.transition(State.PREPARING_REBALANCE, 6)
    group.generation = MAX_GENERATION
    group.next_generation(7)
    assert (group.generation, group.state, group.protocol) == (1, State.EMPTY, None)


def test_timeouts_and_size() -> None:
    group = ClassicGroup("g", 1)
    empty = GROUP_BYTES + len("g")
    assert (group.rebalance_timeout_ms, group.memory_bytes) == (0, empty)
    group.add(member("a", rebalance_ms=5), "consumer")
    group.add(member("b", rebalance_ms=9), "consumer")
    assert group.rebalance_timeout_ms == 9
    size = len("range") + len("a range") + PROTOCOL_BYTES
    assert group.protocol_bytes == 2 * size
    names = group.name_bytes
    group.add_pending_member("c")
    assert group.name_bytes == names + 1
    assert group.memory_bytes == empty + 2 * size + 2 * MEMBER_BYTES + PENDING_BYTES + names + 1
    group.update(group.members["a"], (("x", b"12345"),), 1, 1)
    assert group.protocol_bytes == size + 6 + PROTOCOL_BYTES
    group.rename(group.members["b"], "\U0001f600" * 5)
    assert group.name_bytes == names + 1 + 3 * (4 * 5 - 1)
    group.remove("a")
    group.remove("\U0001f600" * 5)
    group.remove("c")
    assert (group.protocol_bytes, group.memory_bytes) == (0, empty)


def _to_stable(group: ClassicGroup) -> None:
    group.transition(State.PREPARING_REBALANCE, 2)
    group.next_generation(3)
    group.transition(State.STABLE, 4)


def test_to_a_record_and_back() -> None:
    group = group_of(member("a", "x", "range"), member("b", "range", instance="i"))
    group.leader = "b"
    _to_stable(group)
    metadata = group.to_record({"a": b"part a"})
    assert (metadata.protocol, metadata.leader, metadata.generation) == ("range", "b", 1)
    assert metadata.state_time_ms == 4
    assert [(each.member_id, each.subscription, each.assignment) for each in metadata.members] == [
        ("a", b"a range", b"part a"),
        ("b", b"b range", b""),
    ]
    again = ClassicGroup.restore("g", metadata)
    assert (again.state, again.generation, again.leader) == (State.STABLE, 1, "b")
    assert again.static_ids == {"i": "b"}
    assert again.members["a"].protocols == (("range", b"a range"),)
    assert again.members["a"].assignment == b"part a"
    assert again.to_record({"a": b"part a"}) == metadata


def test_an_empty_record_and_back() -> None:
    group = group_of(member("a"))
    _to_stable(group)
    group.remove("a")
    group.transition(State.PREPARING_REBALANCE, 5)
    group.next_generation(6)
    again = ClassicGroup.restore("g", group.to_record({}))
    assert (again.state, again.generation, again.protocol_type) == (State.EMPTY, 2, "consumer")
    assert (again.protocol, again.leader, again.state_time_ms) == (None, None, 6)


def test_a_record_with_strange_contents_is_taken_over() -> None:
    group = group_of(member("a"))
    _to_stable(group)
    metadata = group.to_record({})
    changed: dict[str, Any] = {"leader": "nobody", "protocol": None}
    for name, value in changed.items():
        object.__setattr__(metadata, name, value)
    object.__setattr__(metadata.members[0], "rebalance_timeout_ms", -1)
    again = ClassicGroup.restore("g", metadata)
    assert again.leader == "a"
    assert again.members["a"].rebalance_timeout_ms == 10
    again.transition(State.PREPARING_REBALANCE, 5)
    again.next_generation(6)
    assert again.protocol == ""
