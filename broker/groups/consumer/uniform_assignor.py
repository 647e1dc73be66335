"""The `uniform` assignor: members get about the same number of partitions, and keep what they have.

Pure. Invariants: where all members have the same subscription the numbers differ by one at most; otherwise no
move of one partition to another of its subscribers makes them more equal; a partition moves only if that is
needed. Members and topics are iterated in sorted order, so that the same input gives the same target. Kafka
gives the same numbers; which member gets which partition depends on hashing there. Source: Kafka's
UniformAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from lockstep.broker.groups.consumer.assignor import MemberSpec
from lockstep.broker.groups.consumer.consumer_group_records import Partitions

TopicPartition = tuple[bytes, int]


def assign_uniformly(members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]) -> dict[str, Partitions]:
    """The next target of each member."""
    if not members:
        return {}
    subscriptions = {each.topics for each in members.values()}
    kept, free = _keep_valid(members, topics)
    if len(subscriptions) == 1:
        _fill_quotas(kept, free)
    else:
        _fill_and_balance(members, kept, free)
    return {member_id: _by_topic(partitions) for member_id, partitions in kept.items()}


def _keep_valid(
    members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]
) -> tuple[dict[str, dict[TopicPartition, None]], list[TopicPartition]]:
    """Returns the valid partitions of each member, and the unassigned ones of subscribed topics, in order."""
    kept: dict[str, dict[TopicPartition, None]] = {}
    taken: set[TopicPartition] = set()
    subscribed: set[bytes] = set()
    for member_id in sorted(members):
        member = members[member_id]
        subscribed |= member.topics
        own = kept[member_id] = {}
        for topic_id, partitions in sorted((member.assigned or {}).items()):
            if topic_id not in member.topics:
                continue
            for partition in partitions:
                topic_partition = topic_id, partition
                if partition < topics[topic_id] and topic_partition not in taken:
                    taken.add(topic_partition)
                    own[topic_partition] = None
    free = [
        (topic_id, partition)
        for topic_id in sorted(subscribed)
        for partition in range(topics[topic_id])
        if (topic_id, partition) not in taken
    ]
    return kept, free


def _fill_quotas(kept: dict[str, dict[TopicPartition, None]], free: list[TopicPartition]) -> None:
    """All members have the same subscription: each gets the same number, or one more."""
    total = len(free) + sum(map(len, kept.values()))
    least, extra = divmod(total, len(kept))
    by_load = sorted(kept, key=lambda each: -len(kept[each]))
    quotas = {member_id: least + (index < extra) for index, member_id in enumerate(by_load)}
    for member_id, own in kept.items():
        while len(own) > quotas[member_id]:
            free.append(own.popitem()[0])
    unassigned = iter(free)
    for member_id, own in kept.items():
        for _ in range(quotas[member_id] - len(own)):
            own[next(unassigned)] = None


def _fill_and_balance(
    members: Mapping[str, MemberSpec],
    kept: dict[str, dict[TopicPartition, None]],
    free: list[TopicPartition],
) -> None:
    """Members have different subscriptions: each free partition goes to the subscriber with the fewest, those
    with the fewest subscribers first; then partitions move from members with more to members with fewer."""
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    queues: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    queue_of = {topic_id: queues.setdefault(tuple(own), []) for topic_id, own in subscribers.items()}
    for topic_id, partition in sorted(free, key=lambda each: (len(subscribers[each[0]]), each)):
        queue = queue_of[topic_id]
        if not queue:
            queue += [(len(kept[each]), each) for each in subscribers[topic_id]]
            heapify(queue)
        member_id = _least_loaded(queue, kept)
        kept[member_id][topic_id, partition] = None
        heappush(queue, (len(kept[member_id]), member_id))
    _balance(subscribers, kept)


def _least_loaded(queue: list[tuple[int, str]], kept: Mapping[str, dict[TopicPartition, None]]) -> str:
    """Takes the member with the fewest partitions; a stale entry is pushed back with the present number."""
    while True:
        count, member_id = heappop(queue)
        if count == len(kept[member_id]):
            return member_id
        heappush(queue, (len(kept[member_id]), member_id))


def _balance(subscribers: Mapping[bytes, list[str]], kept: dict[str, dict[TopicPartition, None]]) -> None:
    """Moves single partitions as long as that makes the numbers more equal."""
    while any([_balance_topic(topic_id, subscribers[topic_id], kept) for topic_id in sorted(subscribers)]):
        pass


def _balance_topic(
    topic_id: bytes, subscribers: list[str], kept: dict[str, dict[TopicPartition, None]]
) -> bool:
    """Moves partitions of one topic from members with the most partitions to those with the fewest.

    Returns whether one was moved. The topic has partitions: a member with one ends the loop.
    """
    movable = {
        member_id: [each for each in kept[member_id] if each[0] == topic_id] for member_id in subscribers
    }
    fewest = [(len(kept[member_id]), member_id) for member_id in subscribers]
    most = [(-len(kept[member_id]), member_id) for member_id in subscribers]
    heapify(fewest)
    heapify(most)
    is_moved = False
    while True:
        count, giver = heappop(most)
        if -count != len(kept[giver]) or not movable[giver]:
            continue  # a stale entry, or without a partition of the topic
        receiver = _least_loaded(fewest, kept)
        if len(kept[giver]) <= len(kept[receiver]) + 1:
            return is_moved
        moved = movable[giver].pop()
        del kept[giver][moved]
        kept[receiver][moved] = None
        movable[receiver].append(moved)
        for member_id in (giver, receiver):
            heappush(fewest, (len(kept[member_id]), member_id))
            heappush(most, (-len(kept[member_id]), member_id))
        is_moved = True


def _by_topic(partitions: Iterable[TopicPartition]) -> Partitions:
    found: dict[bytes, list[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(sorted(found[topic_id])) for topic_id in sorted(found)}
