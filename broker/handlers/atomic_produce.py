"""An atomic append: one Produce request over several partitions of a log group, taken or refused as a whole.

Asked for by the tagged field `lockstep.atomic` (10000, empty; Produce 9 and newer). It is one entry of the
group: readers see all of it or nothing, and so does everyone after a crash. A refusal is told for each
partition, in the words of the one that caused it. Its batches are checked in one turn of the loop, against
what was there before all of them, for which there is a limit of time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from broker.append import Appended, Appender, GuiltyBatch, Wanted
from broker.metadata import Topic, TopicPartition
from broker.refused import Refused
from protocol.errors import ErrorCode
from protocol.lock_words import ATOMIC_TAG, REFUSED
from protocol.messages.produce import ProduceRequest
from storage.types import Buffer

MOST_SECONDS: Final = 1.0
"""LIMIT. Of the processor's time to check one append, whose batches may have to be opened: not much more than
one of them may take (`broker/turns.py`). To ask again would take as long."""
thread_seconds: Callable[[], float] = time.thread_time
MOST_TEXT: Final = 500
MOST_TEXTS: Final = 100_000
"""Characters of a refusal that every partition is told; of all of them."""

Place = tuple[Topic, TopicPartition, Buffer]


def is_atomic(request: ProduceRequest) -> bool:
    """Whether the request asks for it. Raises Refused for what it may not go with."""
    asked = request.unknown_tags.get(ATOMIC_TAG)
    if asked is None:
        return False
    if asked:
        raise Refused(ErrorCode.INVALID_REQUEST, f"tagged field {ATOMIC_TAG} is empty in an atomic append")
    if request.acks == 0:
        raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, "an atomic append needs acks=1 or acks=all")
    if request.transactional_id is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, "an atomic append is no part of a transaction")
    return True


def append_atomically(
    places: list[Place], appenders: Mapping[int, Appender], produce_version: int
) -> list[Appended]:
    """Append the batches, one for each partition. Raises Refused, which names the guilty one."""
    if len({id(partition) for _, partition, _ in places}) < len(places):
        raise Refused(ErrorCode.INVALID_REQUEST, "an atomic append with two batches for one partition")
    groups = {partition.group.group_id for _, partition, _ in places}
    if not groups:
        raise Refused(ErrorCode.INVALID_REQUEST, "an atomic append of nothing")
    if len(groups) > 1:
        where = ", ".join(f"{_name(each)} in {each[1].group.group_id}" for each in places)
        text = "an atomic append is over partitions of one log group (lockstep.group of a topic, when it is "
        text += f"created), not of {len(groups)}: {where}"
        raise Refused(ErrorCode.INVALID_RECORD, text[: 2 * MOST_TEXT])
    for each in places:
        if not each[1].group.is_leader:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partitions")
    try:
        return appenders[groups.pop()].append_atomically(_in_time(places), produce_version)
    except GuiltyBatch as guilty:
        name, refused = _name(places[guilty.place]), guilty.refused
        line = refused.message.removeprefix(REFUSED)
        text = f"{name}: {line}" if line == refused.message else f"{REFUSED}batch={name} {line}"
        raise Refused(refused.error, text[: max(MOST_TEXT, MOST_TEXTS // len(places))]) from None


def _in_time(places: list[Place]) -> Iterator[Wanted]:
    """The batches, each when those before it are checked. Raises Refused where that took too long."""
    ends_at = thread_seconds() + MOST_SECONDS
    for at, (topic, partition, records) in enumerate(places):
        if at and thread_seconds() >= ends_at:
            text = f"{at} of {len(places)} batches took {MOST_SECONDS:g} s to check: append fewer together"
            raise Refused(ErrorCode.RECORD_LIST_TOO_LARGE, text)
        yield partition.log, records, topic.config


def _name(place: Place) -> str:
    topic, partition, _ = place
    return f"{topic.name}-{partition.index}"
