"""The topics of subscriptions: the hash that tells of a change, names, ids, and the test of one topic."""

from __future__ import annotations

from lockstep.broker.groups.consumer.consumer_group_records import ConsumerGroupMember, ResolvedRegex
from lockstep.broker.groups.consumer.subscribed_topics import ids_of, is_subscribed, metadata_hash, names_of
from tests.broker.groups.consumer.fakes import FakeTopics
from tests.broker.groups.consumer.replayed_group import id_of

T, U = id_of(1), id_of(2)
REGEXES = {"t|v": ResolvedRegex(("t", "v"), 1, 1)}


def test_the_hash_of_no_existing_topic_is_0() -> None:
    topics = FakeTopics(t=1)
    assert metadata_hash([], topics) == metadata_hash(["x"], topics) == 0
    assert metadata_hash(["t"], topics) != 0


def test_the_hash_is_of_a_set_of_existing_topics() -> None:
    topics = FakeTopics(t=1, u=2)
    once = metadata_hash(["t", "u"], topics)
    assert metadata_hash(["u", "x", "t", "u"], topics) == once
    assert metadata_hash(["t"], topics) != once
    assert -(1 << 63) <= once < 1 << 63


def test_row_10_the_hash_changes_with_the_partition_count_and_the_id() -> None:
    topics = FakeTopics(t=1, u=1)
    first = metadata_hash(["t"], topics)
    topics.grow("u", 9)  # not among the names
    assert metadata_hash(["t"], topics) == first
    topics.grow("t", 2)
    grown = metadata_hash(["t"], topics)
    topics.delete("t")
    topics.create("t", 2)
    assert len({first, grown, metadata_hash(["t"], topics)}) == 3


def test_row_2_names_and_regex_come_to_their_union() -> None:
    assert list(names_of(ConsumerGroupMember("a", topics=("t", "u")), REGEXES)) == ["t", "u"]
    both = ConsumerGroupMember("a", topics=("t", "u"), regex="t|v")
    assert list(names_of(both, REGEXES)) == ["t", "u", "v"]
    assert list(names_of(both, {})) == ["t", "u"]  # not resolved yet
    assert list(names_of(ConsumerGroupMember("a", regex="t|v"), REGEXES)) == ["t", "v"]
    # An expression that is empty is none, whatever the records have for it.
    assert list(names_of(ConsumerGroupMember("a"), {"": ResolvedRegex(("t",))})) == []


def test_ids_and_partition_counts_of_existing_topics() -> None:
    topics = FakeTopics(t=1, u=3)
    assert ids_of(["u", "x", "t"], topics) == {T: 1, U: 3}
    assert ids_of([], topics) == {}


def test_a_member_is_subscribed_to_an_existing_topic_by_name_or_by_regex() -> None:
    topics = FakeTopics(t=1, u=1, v=1)

    def subscribed(member: ConsumerGroupMember) -> list[bool]:
        return [is_subscribed(id_of(number), member, REGEXES, topics) for number in (1, 2, 3, 4)]

    assert subscribed(ConsumerGroupMember("a")) == [False] * 4
    assert subscribed(ConsumerGroupMember("a", topics=("a", "u", "x"))) == [False, True, False, False]
    assert subscribed(ConsumerGroupMember("a", regex="t|v")) == [True, False, True, False]
    assert subscribed(ConsumerGroupMember("a", topics=("u",), regex="t|v")) == [True, True, True, False]
    assert subscribed(ConsumerGroupMember("a", regex="not resolved")) == [False] * 4


def test_row_4_nobody_is_subscribed_to_a_deleted_topic() -> None:
    topics, member = FakeTopics(t=1), ConsumerGroupMember("a", topics=("t",))
    assert is_subscribed(T, member, {}, topics)
    topics.delete("t")
    assert not is_subscribed(T, member, {}, topics)
    topics.create("t", 1)  # another one of that name
    assert not is_subscribed(T, member, {}, topics)
    assert is_subscribed(U, member, {}, topics)
