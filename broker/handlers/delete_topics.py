"""DeleteTopics: by name, or since version 6 by id (KIP-516). Each topic is ended or refused on its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from broker.context import ClientContext
from broker.metadata import Topic
from broker.topics import Refused
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.primitives import ZERO_UUID

API_KEY = ApiKey.DELETE_TOPICS
VERSIONS = (1, 6)

BY_ID_SINCE: Final = 6
DISABLED_SINCE: Final = 3


async def handle(
    context: ClientContext, header: RequestHeader, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """End what can be ended."""
    wanted = request.topics
    if header.api_version < BY_ID_SINCE:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    results = [DeletableTopicResult(name=each.name, topic_id=each.topic_id) for each in wanted]
    found: dict[int, Topic] = {}
    for place, each in enumerate(wanted):
        try:
            found[place] = _find(context, header.api_version, each)
        except Refused as refused:
            _refuse(results[place], refused)
    counts = Counter(topic.name for topic in found.values())
    ending: list[int] = []
    for place, topic in found.items():
        if counts[topic.name] > 1:
            _refuse(results[place], Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id."))
        else:
            results[place].name = topic.name
            results[place].topic_id = topic.topic_id
            ending.append(place)
    await asyncio.gather(*(_delete(context, found[place], results[place]) for place in ending))
    return DeleteTopicsResponse(responses=results)


def _find(context: ClientContext, api_version: int, wanted: DeleteTopicState) -> Topic:
    """The topic to end. Raises Refused."""
    if not context.services.settings.delete_topic_enable:
        disabled = api_version >= DISABLED_SINCE
        error = ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST
        raise Refused(error, "Topic deletion is disabled.")
    cluster = context.services.cluster
    if wanted.name is None and wanted.topic_id == ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if wanted.name is not None and wanted.topic_id != ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    topic = cluster.topic_by_id(wanted.topic_id) if wanted.name is None else cluster.topic(wanted.name)
    if topic is None:
        unknown_name = wanted.name is not None
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown_name else ErrorCode.UNKNOWN_TOPIC_ID
        raise Refused(error, error.message)
    return topic


async def _delete(context: ClientContext, topic: Topic, result: DeletableTopicResult) -> None:
    try:
        await context.services.topics.delete(topic)
    except Refused as refused:
        _refuse(result, refused)


def _refuse(result: DeletableTopicResult, refused: Refused) -> None:
    result.error_code = refused.error
    result.error_message = refused.message
