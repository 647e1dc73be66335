"""The `range` assignor: ranges of each topic, static members first."""

from __future__ import annotations

from hypothesis import given

from lockstep.broker.groups.consumer.assignor import MemberSpec
from lockstep.broker.groups.consumer.range_assignor import assign_ranges
from tests.broker.groups.consumer.random_assignments import TOPICS, check_complete, groups


@given(groups())
def test_each_partition_of_a_subscribed_topic_has_one_member_that_is_subscribed(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    check_complete(assign_ranges, *group)


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


def test_members_beyond_the_partitions_get_nothing() -> None:
    """No empty range; those who are not subscribed to a topic do not count in it."""
    one, two = TOPICS[:2]
    members = {
        "a": MemberSpec(frozenset([one])),
        "b": MemberSpec(frozenset([one, two])),
        "c": MemberSpec(frozenset()),
    }
    assert assign_ranges(members, {one: 1, two: 2}) == {"a": {one: (0,)}, "b": {two: (0, 1)}, "c": {}}
    assert assign_ranges({}, {one: 1}) == {}
