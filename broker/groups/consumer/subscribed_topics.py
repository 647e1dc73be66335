"""The topics that a group or a member is subscribed to, as the metadata has them now.

Owns: `TopicDescriber` (the cluster's topics, as the rules see them) and the hash by which a group notices
that its topics have changed. Invariant: the hash of no existing topic is 0. The hash is this broker's own,
not Kafka's: a group that another broker wrote rises by one epoch. Source: Kafka's
ModernGroup.computeMetadataHash, TopicIds.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Protocol

from lockstep.broker.groups.consumer.consumer_group_records import ConsumerGroupMember, ResolvedRegex


class TopicView(Protocol):
    """One topic that clients can see."""

    @property
    def name(self) -> str:
        """Returns its name."""

    @property
    def topic_id(self) -> bytes:
        """Returns its id, of 16 bytes."""

    @property
    def partitions(self) -> Sized:
        """Returns its partitions."""


class TopicDescriber(Protocol):
    """The topics that clients can see; `broker/metadata/metadata_cache.py`."""

    def topic(self, name: str | None) -> TopicView | None:
        """Returns the topic of a name."""

    def topic_by_id(self, topic_id: bytes) -> TopicView | None:
        """Returns the topic of an id."""

    def topics(self) -> Sequence[TopicView]:
        """Returns all of them."""


def metadata_hash(names: Iterable[str], topics: TopicDescriber) -> int:
    """Hashes ids and partition counts of the named topics that exist; 0 for none."""
    found = sorted(
        (topic.name, topic.topic_id, len(topic.partitions))
        for topic in map(topics.topic, set(names))
        if topic is not None
    )
    if not found:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name, topic_id, count in found:
        digest.update(f"{len(name)} {name} {count} ".encode())
        digest.update(topic_id)
    return int.from_bytes(digest.digest(), "big", signed=True)


def names_of(member: ConsumerGroupMember, regexes: Mapping[str, ResolvedRegex]) -> Iterable[str]:
    """The names that a member is subscribed to, each once; a regular expression that is not resolved yet
    matches nothing."""
    resolved = regexes.get(member.regex) if member.regex else None
    return member.topics if resolved is None else dict.fromkeys((*member.topics, *resolved.topics))


def ids_of(names: Iterable[str], topics: TopicDescriber) -> dict[bytes, int]:
    """The ids of the named topics that exist, with their partition counts."""
    return {topic.topic_id: len(topic.partitions) for topic in map(topics.topic, names) if topic is not None}


def is_subscribed(
    topic_id: bytes, member: ConsumerGroupMember, regexes: Mapping[str, ResolvedRegex], topics: TopicDescriber
) -> bool:
    """Returns whether the topic exists and the member is subscribed to it."""
    topic = topics.topic_by_id(topic_id)
    if topic is None:
        return False
    if _has(member.topics, topic.name):
        return True
    resolved = regexes.get(member.regex) if member.regex else None
    return resolved is not None and _has(resolved.topics, topic.name)


def _has(names: Sequence[str], name: str) -> bool:
    """Binary search in sorted names, as each heartbeat checks all topics of its member."""
    at = bisect_left(names, name)
    return at < len(names) and names[at] == name
