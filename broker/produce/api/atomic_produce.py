"""An atomic append: one Produce request over several partitions of a log group, appended or rejected as one.

The tagged field `lockstep.atomic` requests it (10000, empty; Produce 9 and newer). It is one entry of the
group: readers see all of it or nothing, also after a crash. Each partition gets the error of the rejected
one. Its batches are validated in one iteration of the loop, against the log without any of them, within a
time limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lockstep.broker.produce.append_result import AppendResult
from lockstep.broker.produce.appender import Appender, AppendRequest, BatchRejected
from lockstep.broker.produce.delayed_produce import PartitionBatch
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.lock_words import ATOMIC_TAG, REJECTION_PREFIX
from lockstep.protocol.messages.produce import ProduceRequest

MAX_SECONDS: Final = 1.0
"""LIMIT. Processor time to validate one append, whose batches may have to be opened: not much more than one
of them may take (`broker/requests/time_slices.py`). A retry would take as long."""
thread_time: Callable[[], float] = time.thread_time
MAX_TEXT: Final = 500
MAX_TEXTS: Final = 100_000
"""Characters of the error text of each partition; of all of them."""


def is_atomic(request: ProduceRequest) -> bool:
    """True for a request of an atomic append. Raises RequestError for an option that excludes it."""
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
    """Append the batches, one for each partition. Raises RequestError, which names the rejected one."""
    if len({id(partition) for _, partition, _ in batches}) < len(batches):
        raise RequestError(ErrorCode.INVALID_REQUEST, "an atomic append with two batches for one partition")
    groups = {partition.group.group_id for _, partition, _ in batches}
    if not groups:
        raise RequestError(ErrorCode.INVALID_REQUEST, "an atomic append of nothing")
    if len(groups) > 1:
        groups_text = ", ".join(f"{_name(batch)} in {batch[1].group.group_id}" for batch in batches)
        text = "an atomic append is over partitions of one log group (lockstep.group of a topic, when it is "
        text += f"created), not of {len(groups)}: {groups_text}"
        raise RequestError(ErrorCode.INVALID_RECORD, text[: 2 * MAX_TEXT])
    for batch in batches:
        if not batch[1].group.is_leader:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partitions")
    result = appenders[groups.pop()].append_atomically(_within_time_limit(batches), produce_version)
    if isinstance(result, BatchRejected):
        name, error = _name(batches[result.index]), result.error
        line = error.message.removeprefix(REJECTION_PREFIX)
        text = f"{name}: {line}" if line == error.message else f"{REJECTION_PREFIX}batch={name} {line}"
        raise RequestError(error.error, text[: max(MAX_TEXT, MAX_TEXTS // len(batches))])
    return result


def _within_time_limit(batches: list[PartitionBatch]) -> Iterator[AppendRequest]:
    """The batches, each after the validation of those before it. Raises RequestError when that took too
    long."""
    ends_at = thread_time() + MAX_SECONDS
    for index, (topic, partition, records) in enumerate(batches):
        if index and thread_time() >= ends_at:
            text = f"{index} of {len(batches)} batches took {MAX_SECONDS:g} s to check: append fewer together"
            raise RequestError(ErrorCode.RECORD_LIST_TOO_LARGE, text)
        yield partition.log, records, topic.config


def _name(batch: PartitionBatch) -> str:
    topic, partition, _ = batch
    return f"{topic.name}-{partition.index}"
