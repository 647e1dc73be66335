"""DeleteTopics: by name, or since version 6 by id (KIP-516). Each topic is ended or refused on its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from broker.context import ClientContext
from broker.handlers.create_topics import TOPICS_AT_ONCE
from broker.metadata import Topic
from broker.request_errors import RequestError
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
    names = Counter(each.name for each in wanted if each.name is not None)
    ids = Counter(each.topic_id for each in wanted if each.topic_id != ZERO_UUID)
    results: list[DeletableTopicResult] = []
    ending: dict[bytes, tuple[Topic, DeletableTopicResult]] = {}
    for each in _distinct(wanted):
        result = DeletableTopicResult(name=each.name, topic_id=each.topic_id)
        results.append(result)
        try:
            if (each.name is not None and names[each.name] > 1) or ids[each.topic_id] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
            topic = _find(context, header.api_version, each)
            if topic.topic_id in ending:
                raise RequestError(ErrorCode.INVALID_REQUEST, "The same topic is named by name and by id.")
        except RequestError as refused:
            _refuse(result, refused)
            continue
        result.name, result.topic_id = topic.name, topic.topic_id
        ending[topic.topic_id] = topic, result
    each_ending = list(ending.values())
    for first in range(0, len(each_ending), TOPICS_AT_ONCE):
        now = each_ending[first : first + TOPICS_AT_ONCE]
        await asyncio.gather(*(_delete(context, topic, result) for topic, result in now))
    return DeleteTopicsResponse(responses=results)


def _distinct(wanted: list[DeleteTopicState]) -> list[DeleteTopicState]:
    """Each name and id once; topics that are not named at all stay as they are."""
    named: dict[tuple[str | None, bytes], DeleteTopicState] = {}
    nameless = []
    for each in wanted:
        if each.name is None and each.topic_id == ZERO_UUID:
            nameless.append(each)
        else:
            named.setdefault((each.name, each.topic_id), each)
    return [*named.values(), *nameless]


def _find(context: ClientContext, api_version: int, wanted: DeleteTopicState) -> Topic:
    """The topic to end. Raises RequestError."""
    context.services.topics.check_leads()
    if not context.services.settings.delete_topic_enable:
        disabled = api_version >= DISABLED_SINCE
        error = ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST
        raise RequestError(error, "Topic deletion is disabled.")
    cluster = context.services.cluster
    if wanted.name is None and wanted.topic_id == ZERO_UUID:
        raise RequestError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if wanted.name is not None and wanted.topic_id != ZERO_UUID:
        raise RequestError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    topic = cluster.topic_by_id(wanted.topic_id) if wanted.name is None else cluster.topic(wanted.name)
    if topic is None:
        unknown_name = wanted.name is not None
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown_name else ErrorCode.UNKNOWN_TOPIC_ID
        raise RequestError(error, error.message)
    return topic


async def _delete(context: ClientContext, topic: Topic, result: DeletableTopicResult) -> None:
    try:
        await context.services.topics.delete(topic)
    except RequestError as refused:
        _refuse(result, refused)


def _refuse(result: DeletableTopicResult, refused: RequestError) -> None:
    result.error_code = refused.error
    result.error_message = refused.message
