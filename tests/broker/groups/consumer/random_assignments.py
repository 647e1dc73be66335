"""Random consumer groups for the assignors, and who has what in a target.

Owns: `groups`, members with subscriptions of their own, and `owners`, which holds a target to be well-formed.
"""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis.strategies as st

from lockstep.broker.groups.consumer.assignor import Assignor, MemberSpec
from lockstep.broker.groups.consumer.consumer_group_records import Partitions

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


def check_complete(assign: Assignor, members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]) -> None:
    """Each partition of a subscribed topic has one member, which is subscribed; the order does not matter."""
    subscribed = frozenset[bytes]().union(*(each.topics for each in members.values()))
    target = assign(members, topics)
    assert target.keys() == members.keys()
    found = owners(target)
    assert found.keys() == {(each, index) for each in subscribed for index in range(topics[each])}
    assert all(topic_id in members[owner].topics for (topic_id, _), owner in found.items())
    assert assign({each: members[each] for each in reversed(list(members))}, topics) == target
