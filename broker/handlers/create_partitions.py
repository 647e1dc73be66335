"""CreatePartitions: each topic grows or is refused on its own (KIP-195).

The answer waits until the new partitions can be written to. Of a topic with locks it warns in its text: a key
may be in another partition from now on, and its locks are not.
Source: Kafka's ControllerApis.createPartitions and ReplicationControlManager for which error answers what.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from broker.context import ClientContext
from broker.handlers.create_topics import FIRST_GROUP, TOPICS_AT_ONCE
from broker.metadata import Topic
from broker.replica_assignment import check_groups, check_replicas
from broker.request_errors import RequestError
from broker.settings.topic_config import LOCKS_KEPT
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

API_KEY = ApiKey.CREATE_PARTITIONS
VERSIONS = (0, 3)

SPLIT_LOCKS: Final = (
    "The topic has locks: keys may be in other partitions from now on, raised locks are not; and "
    "stop every writer that knows of fewer partitions, or two may hold the same lock."
)

Growth = tuple[Topic, int]
"""A topic and how many partitions it is to have."""


async def handle(
    context: ClientContext, header: RequestHeader, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Let grow what can."""
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    growing: list[Growth] = []
    partitions = 0
    limit = context.services.settings.lockstep_max_partitions_per_request
    for wanted in request.topics:
        try:
            if counts[wanted.name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic, added = _checked(context, wanted)
            if partitions + added > limit:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION,
                    f"Excessively large number of partitions per request: at most {limit}.",
                )
            partitions += added
            results[wanted.name] = CreatePartitionsTopicResult(name=wanted.name)
            growing.append((topic, wanted.count))
        except RequestError as refused:
            results[wanted.name] = _refusal(wanted.name, refused)
    if not request.validate_only:
        for first in range(0, len(growing), TOPICS_AT_ONCE):
            now = growing[first : first + TOPICS_AT_ONCE]
            for result in await asyncio.gather(*(_grow(context, each) for each in now)):
                results[result.name] = result
    return CreatePartitionsResponse(results=[results[name] for name in counts])


def _checked(context: ClientContext, wanted: CreatePartitionsTopic) -> tuple[Topic, int]:
    """The topic, and how many partitions are to be added. Raises RequestError."""
    services = context.services
    services.topics.check_leads()
    topic = services.cluster.topic(wanted.name)
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise RequestError(error, error.message)
    added = services.topics.check_growth(topic, wanted.count)
    if wanted.assignments is not None:
        given = len(wanted.assignments)
        if given != added:
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {given} assignment(s) "
                "were specified.",
            )
        for each in wanted.assignments:
            check_replicas(each.broker_ids, services.nodes.registered())
        pinned = topic.config.lockstep_group
        numbers = range(FIRST_GROUP, services.cluster.data_groups + 1) if pinned is None else [pinned]
        placed = [set(services.cluster.nodes_of(number)) for number in numbers]
        check_groups((each.broker_ids for each in wanted.assignments), placed)
    return topic, added


async def _grow(context: ClientContext, growth: Growth) -> CreatePartitionsTopicResult:
    topic, partition_count = growth
    try:
        await context.services.topics.grow(topic, partition_count)
    except RequestError as refused:
        return _refusal(topic.name, refused)
    warning = SPLIT_LOCKS if topic.config.lockstep_locks == LOCKS_KEPT else None
    return CreatePartitionsTopicResult(name=topic.name, error_message=warning)


def _refusal(name: str, refused: RequestError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=refused.error, error_message=refused.message)
