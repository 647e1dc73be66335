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

from broker.append import Appender, AppendRequest, AppendResult, BatchRejected
from broker.metadata import Topic, TopicPartition
from broker.request_errors import RequestError
from protocol.errors import ErrorCode
from protocol.lock_words import ATOMIC_TAG, REJECTION_PREFIX
from protocol.messages.produce import ProduceRequest
from storage.types import Buffer

MAX_SECONDS: Final = 1.0
"""LIMIT. Of the processor's time to check one append, whose batches may have to be opened: not much more than
one of them may take (`broker/time_slices.py`). To ask again would take as long."""
thread_time: Callable[[], float] = time.thread_time
MAX_TEXT: Final = 500
MAX_TEXTS: Final = 100_000
"""Characters of a refusal that every partition is told; of all of them."""

PartitionBatch = tuple[Topic, TopicPartition, Buffer]


def is_atomic(request: ProduceRequest) -> bool:
    """Whether the request asks for it. Raises RequestError for what it may not go with."""
    tag = request.unknown_tags.get(ATOMIC_TAG)
    if tag is None:
        return False
    if tag:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"tagged field {ATOMIC_TAG} is empty in an atomic append"
        )
    if request.acks == 0:
        raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, "an atomic append needs acks=1 or acks=all")
    if request.transactional_id is not None:
        raise RequestError(ErrorCode.INVALID_REQUEST, "an atomic append is no part of a transaction")
    return True


def append_atomically(
    batches: list[PartitionBatch], appenders: Mapping[int, Appender], produce_version: int
) -> list[AppendResult]:
    """Append the batches, one for each partition. Raises RequestError, which names the guilty one."""
    if len({id(partition) for _, partition, _ in batches}) < len(batches):
        raise RequestError(ErrorCode.INVALID_REQUEST, "an atomic append with two batches for one partition")
    groups = {partition.group.group_id for _, partition, _ in batches}
    if not groups:
        raise RequestError(ErrorCode.INVALID_REQUEST, "an atomic append of nothing")
    if len(groups) > 1:
        places = ", ".join(f"{_name(batch)} in {batch[1].group.group_id}" for batch in batches)
        text = "an atomic append is over partitions of one log group (lockstep.group of a topic, when it is "
        text += f"created), not of {len(groups)}: {places}"
        raise RequestError(ErrorCode.INVALID_RECORD, text[: 2 * MAX_TEXT])
    for batch in batches:
        if not batch[1].group.is_leader:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partitions")
    try:
        return appenders[groups.pop()].append_atomically(_within_time_limit(batches), produce_version)
    except BatchRejected as rejected:
        name, error = _name(batches[rejected.index]), rejected.error
        line = error.message.removeprefix(REJECTION_PREFIX)
        text = f"{name}: {line}" if line == error.message else f"{REJECTION_PREFIX}batch={name} {line}"
        raise RequestError(error.error, text[: max(MAX_TEXT, MAX_TEXTS // len(batches))]) from None


def _within_time_limit(batches: list[PartitionBatch]) -> Iterator[AppendRequest]:
    """The batches, each when those before it are checked. Raises RequestError where that took too long."""
    ends_at = thread_time() + MAX_SECONDS
    for index, (topic, partition, records) in enumerate(batches):
        if index and thread_time() >= ends_at:
            text = f"{index} of {len(batches)} batches took {MAX_SECONDS:g} s to check: append fewer together"
            raise RequestError(ErrorCode.RECORD_LIST_TOO_LARGE, text)
        yield partition.log, records, topic.config


def _name(batch: PartitionBatch) -> str:
    topic, partition, _ = batch
    return f"{topic.name}-{partition.index}"
