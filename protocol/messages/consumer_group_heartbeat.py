"""ConsumerGroupHeartbeat (68): joins a consumer group, stays in it, learns the assignment, leaves (KIP-848).

Versions: 1 subscriptions by a regular expression, and member ids that the client makes up (KIP-1082).
"""

from __future__ import annotations

from lockstep.protocol.fields import (
    Struct,
    array,
    int16,
    int32,
    message,
    string,
    struct,
    struct_field,
    uuid,
)


@struct()
class TopicPartitions(Struct):
    """The partitions of one topic that a member owns, or may use."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(api_key=68, versions="0-1", flexible="0+", kind="request")
class ConsumerGroupHeartbeatRequest(Struct):
    """A member's state; null is what has not changed since its last heartbeat."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, default=None, nullable="0+")
    subscribed_topic_regex: str | None = string(default=None, versions="1+", nullable="1+")
    server_assignor: str | None = string(default=None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, default=None, nullable="0+")


@struct()
class Assignment(Struct):
    """All partitions that the member may use at once."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(api_key=68, versions="0-1", flexible="0+", kind="response")
class ConsumerGroupHeartbeatResponse(Struct):
    """The member's epoch, and its assignment where that has changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    member_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct_field(Assignment, default=None, nullable="0+")
