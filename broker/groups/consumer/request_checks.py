"""The checks of a ConsumerGroupHeartbeat that need no group: they come before anything else.

Pure. A malformed request is rejected with these texts even where this node is not the group's coordinator.
Source: Kafka's GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lockstep.broker.groups.consumer.consumer_group_records import LEFT_STATIC_EPOCH
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
MEMBER_IDS_OF_CLIENTS_MIN_VERSION: Final = 1


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]
) -> None:
    """Checks one request. Raises RequestError."""
    epoch = request.member_epoch
    if api_version >= MEMBER_IDS_OF_CLIENTS_MIN_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _reject_empty(request.member_id, "MemberId can't be empty.")
    _reject_empty(request.group_id, "GroupId can't be empty.")
    _reject_empty(request.instance_id, "InstanceId can't be empty.")
    _reject_empty(request.rack_id, "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEFT_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEFT_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise RequestError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _reject_empty(text: str | None, problem: str) -> None:
    """Rejects a text of white space only, as Kafka does; null is fine."""
    if text is not None and not text.strip():
        raise _invalid(problem)


def _invalid(problem: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, problem)
