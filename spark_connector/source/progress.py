"""A stream's position as the offsets of a consumer group, so that every Kafka tool shows its lag.

Invariants: the stored offsets are those that Spark has committed, never more; they are not read back: the
checkpoint alone decides where a stream resumes. The group has no members, so inspecting it disturbs no one.

Does not: fail a stream while brokers are unavailable; the next commit stores all of it again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from spark_connector.connection import BrokerError, ClusterClient, ConnectionFailed
from spark_connector.options import OptionError, TopicPartition

_NEWEST = 9
"""Version 10 has ids in place of names, which would need a lookup."""
_HAS_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
_log = logging.getLogger(__name__)


def store(cluster: ClusterClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Stores the next offset of each partition. OptionError where others are members of the group."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        wanted = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        topics.setdefault(topic, []).append(wanted)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )

    def attempt() -> None:
        response = cluster.coordinator(group).call(request, OffsetCommitResponse, newest=_NEWEST)
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code:
                    about = f"group {group}, {topic.name}, partition {each.partition_index}"
                    raise BrokerError(each.error_code, about)

    try:
        cluster.retry(attempt)
    except BrokerError as error:
        if error.code in _HAS_MEMBERS:
            raise OptionError(
                "kafka.group.id", f"group {group} has members of its own; choose a group without members"
            ) from error
        _log.warning("the stream's position was not stored: %s", error)
    except ConnectionFailed as error:
        _log.warning("the stream's position was not stored: %s", error)
