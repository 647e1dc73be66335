"""What a ConsumerGroupHeartbeat is rejected for before its group is looked at (row 7)."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.groups.consumer.request_checks import check_heartbeat
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

JOIN: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "rebalance_timeout_ms": 1,
    "subscribed_topic_names": [],
    "topic_partitions": [],
}
E = ErrorCode


def check(version: int = 1, **fields: Any) -> None:
    check_heartbeat(ConsumerGroupHeartbeatRequest(**{**JOIN, **fields}), version, ["uniform", "range"])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": [TopicPartitions()]}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_row_7_what_is_invalid(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as raised:
        check(**fields)
    assert (raised.value.error, raised.value.message) == (E.INVALID_REQUEST, text)


def test_row_7_an_unknown_assignor() -> None:
    with pytest.raises(RequestError) as raised:
        check(server_assignor="sticky")
    assert raised.value.error is E.UNSUPPORTED_ASSIGNOR
    assert raised.value.message == (
        "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"subscribed_topic_names": None, "subscribed_topic_regex": ""},
        {"member_epoch": 3, "topic_partitions": None, "subscribed_topic_names": None},
        {"member_epoch": -1, "topic_partitions": None},
        {"member_epoch": -2, "instance_id": "i"},
        {"server_assignor": "range"},
    ],
)
def test_what_is_valid(fields: dict[str, Any]) -> None:
    check(**fields)


@pytest.mark.parametrize(("epoch", "is_valid"), [(0, True), (-2, True), (1, False), (-1, False)])
def test_row_9_version_0_may_join_without_a_member_id(epoch: int, is_valid: bool) -> None:
    fields: dict[str, Any] = {"member_id": "", "member_epoch": epoch, "instance_id": "i"}
    if is_valid:
        check(0, **fields)
    else:
        with pytest.raises(RequestError, match="MemberId can't be empty"):
            check(0, **fields)
