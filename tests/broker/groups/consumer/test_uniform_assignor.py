"""The `uniform` assignor: the numbers are as equal as can be, and little moves."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from hypothesis import given

from lockstep.broker.groups.consumer.assignor import MemberSpec
from lockstep.broker.groups.consumer.consumer_group_records import Partitions
from lockstep.broker.groups.consumer.uniform_assignor import assign_uniformly
from tests.broker.groups.consumer.random_assignments import TOPICS, check_complete, groups


@given(groups())
def test_each_partition_of_a_subscribed_topic_has_one_member_that_is_subscribed(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    check_complete(assign_uniformly, *group)


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


def test_no_members_have_no_target() -> None:
    assert assign_uniformly({}, {TOPICS[0]: 3}) == {}


def test_only_what_is_valid_is_kept() -> None:
    """Neither a topic given up, nor a partition that is gone, nor one that another member has already."""
    one, two = TOPICS[:2]
    members = {
        "a": MemberSpec(frozenset([one]), None, {one: (1, 7), two: (0,)}),
        "b": MemberSpec(frozenset([one]), None, {one: (0, 1)}),
        "c": MemberSpec(frozenset([one])),
    }
    assert assign_uniformly(members, {one: 3, two: 1}) == {
        "a": {one: (1,)},
        "b": {one: (0,)},
        "c": {one: (2,)},
    }


def test_free_partitions_go_to_the_subscribers_with_the_fewest() -> None:
    """Those of topics with fewer subscribers first, whatever the order of the topics."""
    one, two = TOPICS[:2]
    members = {"a": MemberSpec(frozenset([one])), "b": MemberSpec(frozenset([one, two]))}
    topics = {one: 4, two: 2}
    assert assign_uniformly(members, topics) == {"a": {one: (0, 1, 2)}, "b": {one: (3,), two: (0, 1)}}


def test_a_queue_of_subscribers_is_brought_up_to_date_by_the_assignments_of_another() -> None:
    """b gets the partitions of the second topic after the first topic has counted it as empty."""
    one, two, three = TOPICS[:3]
    members = {
        "a": MemberSpec(frozenset([one, three])),
        "b": MemberSpec(frozenset([one, two, three])),
        "c": MemberSpec(frozenset([two])),
    }
    target = assign_uniformly(members, {one: 1, two: 3, three: 2})
    assert target == {"a": {one: (0,), three: (0, 1)}, "b": {two: (0, 2)}, "c": {two: (1,)}}


def test_partitions_move_from_who_has_most_of_what_the_other_may_have() -> None:
    """a has the most, but nothing that c may have: b gives one."""
    one, two = TOPICS[:2]
    members = {
        "a": MemberSpec(frozenset([one, two]), None, {one: tuple(range(6))}),
        "b": MemberSpec(frozenset([two]), None, {two: (0, 1, 2, 3)}),
        "c": MemberSpec(frozenset([two]), None, {}),
    }
    assert assign_uniformly(members, {one: 6, two: 4}) == {
        "a": {one: tuple(range(6))},
        "b": {two: (0, 1)},
        "c": {two: (2, 3)},
    }


def test_nothing_moves_where_nobody_has_what_the_other_may_have() -> None:
    one, two = TOPICS[:2]
    members = {
        "a": MemberSpec(frozenset([one, two]), None, {one: (0, 1, 2)}),
        "b": MemberSpec(frozenset([two]), None, {two: (0,)}),
    }
    assert assign_uniformly(members, {one: 3, two: 1}) == {"a": {one: (0, 1, 2)}, "b": {two: (0,)}}
