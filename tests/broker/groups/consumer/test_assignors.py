"""The assignors: every partition has one subscriber, the numbers are as equal as can be, little moves."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import hypothesis.strategies as st
from hypothesis import given

from lockstep.broker.groups.consumer.assignor import MemberSpec
from lockstep.broker.groups.consumer.consumer_group_records import Partitions
from lockstep.broker.groups.consumer.range_assignor import assign_ranges
from lockstep.broker.groups.consumer.target_assignment import ASSIGNORS, preferred_assignor
from lockstep.broker.groups.consumer.uniform_assignor import assign_uniformly

TOPICS = [bytes([number]) * 16 for number in range(1, 6)]
MEMBERS = [f"m{number}" for number in range(8)]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, MemberSpec], dict[bytes, int]]:
    """Members with subscriptions of their own, and what they had before, which may not fit any more."""
    topics = draw(counts)
    names = draw(st.lists(st.sampled_from(MEMBERS), unique=True, min_size=1))
    subscription = st.frozensets(st.sampled_from(sorted(topics)))
    same = draw(st.none() | subscription)
    assigned = st.dictionaries(
        st.sampled_from(TOPICS), st.frozensets(st.integers(0, 10)).map(lambda each: tuple(sorted(each)))
    )
    members = {
        name: MemberSpec(
            draw(subscription) if same is None else same,
            draw(st.none() | st.just(f"i{name}")),
            draw(st.none() | assigned),
        )
        for name in names
    }
    return members, topics


def owners(target: Mapping[str, Partitions]) -> dict[tuple[bytes, int], str]:
    found: dict[tuple[bytes, int], str] = {}
    for member_id, partitions in target.items():
        for topic_id, indexes in partitions.items():
            assert list(indexes) == sorted(set(indexes)) != []
            for index in indexes:
                assert (topic_id, index) not in found
                found[topic_id, index] = member_id
    return found


@given(groups())
def test_each_partition_of_a_subscribed_topic_has_one_member_that_is_subscribed(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, topics = group
    subscribed = frozenset[bytes]().union(*(each.topics for each in members.values()))
    for assign in ASSIGNORS.values():
        target = assign(members, topics)
        assert target.keys() == members.keys()
        found = owners(target)
        assert found.keys() == {(each, index) for each in subscribed for index in range(topics[each])}
        assert all(topic_id in members[owner].topics for (topic_id, _), owner in found.items())
        assert assign(dict(reversed(members.items())), topics) == target


@given(groups())
def test_the_uniform_assignor_is_balanced(group: tuple[dict[str, MemberSpec], dict[bytes, int]]) -> None:
    members, topics = group
    target = assign_uniformly(members, topics)
    sizes = {member_id: sum(map(len, target[member_id].values())) for member_id in members}
    if len({each.topics for each in members.values()}) == 1:
        assert max(sizes.values()) - min(sizes.values()) <= 1
    for giver, taker in combinations(members, 2):
        for one, other in ((giver, taker), (taker, giver)):
            if sizes[one] - sizes[other] >= 2:  # no single move would make them more equal
                assert not target[one].keys() & members[other].topics


@given(groups())
def test_the_uniform_assignor_changes_nothing_that_is_balanced(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, topics = group
    target = assign_uniformly(members, topics)
    again = {
        member_id: MemberSpec(each.topics, each.instance_id, target[member_id])
        for member_id, each in members.items()
    }
    assert assign_uniformly(again, topics) == target


def sizes_of(target: Mapping[str, Partitions]) -> list[int]:
    return sorted(sum(map(len, each.values())) for each in target.values())


def test_only_as_many_partitions_move_as_a_new_member_gets() -> None:
    topic = TOPICS[0]
    spec = frozenset([topic])
    members = {
        "a": MemberSpec(spec, None, {topic: tuple(range(6))}),
        "b": MemberSpec(spec, None, {topic: tuple(range(6, 12))}),
    }
    target = assign_uniformly({**members, "c": MemberSpec(spec)}, {topic: 12})
    assert sizes_of(target) == [4, 4, 4]
    for name, member in members.items():
        assert set(target[name][topic]) < set((member.assigned or {})[topic])


def test_who_has_more_keeps_the_one_that_is_left_over() -> None:
    topic = TOPICS[0]
    spec = frozenset([topic])
    members = {"a": MemberSpec(spec, None, {topic: (0,)}), "b": MemberSpec(spec, None, {topic: (1, 2)})}
    assert assign_uniformly(members, {topic: 3}) == {"a": {topic: (0,)}, "b": {topic: (1, 2)}}


def test_many_members_with_two_subscriptions_are_assigned_in_time() -> None:
    topics = {TOPICS[0]: 2_000, TOPICS[1]: 1_000}
    members = {f"m{number:04}": MemberSpec(frozenset(TOPICS[: 1 + number % 2])) for number in range(1_000)}
    assert sizes_of(assign_uniformly(members, topics)) == [3] * 1_000


def test_ranges_are_contiguous_and_the_first_members_get_one_more() -> None:
    topics = {TOPICS[0]: 5, TOPICS[1]: 5}
    spec = frozenset(topics)
    target = assign_ranges({name: MemberSpec(spec) for name in ("b", "a")}, topics)
    assert target == {
        "a": {TOPICS[0]: (0, 1, 2), TOPICS[1]: (0, 1, 2)},
        "b": {TOPICS[0]: (3, 4), TOPICS[1]: (3, 4)},
    }


def test_static_members_come_first_by_their_instance_ids() -> None:
    topics = {TOPICS[0]: 3}
    spec = frozenset(topics)
    members = {"a": MemberSpec(spec), "b": MemberSpec(spec, "2"), "c": MemberSpec(spec, "1")}
    assert assign_ranges(members, topics) == {
        "c": {TOPICS[0]: (0,)},
        "b": {TOPICS[0]: (1,)},
        "a": {TOPICS[0]: (2,)},
    }


def test_the_assignor_that_most_members_request() -> None:
    assert preferred_assignor({}, ["uniform", "range"]) == "uniform"
    assert preferred_assignor({"range": 2, "uniform": 1}, ["uniform", "range"]) == "range"
