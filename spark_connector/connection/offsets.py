"""The offsets of partitions by time: ListOffsets, sent to their leaders.

Owns: one request per leader and call, repeated while leaders move. Invariants: the result has all of the
partitions, or the call fails. Does not: know what a position means (`source/positions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lockstep.kafka_client.blocking_connection import BlockingConnection
from lockstep.protocol.client_errors import BrokerError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from spark_connector.connection.cluster import ClusterClient


def list_offsets(
    cluster: ClusterClient,
    timestamps: Mapping[tuple[str, int], int],
    *,
    committed: bool = False,
    retriable: Iterable[ErrorCode] = (),
) -> dict[tuple[str, int], int]:
    """The offset that each partition has for a time. BrokerError, ConnectionFailed.

    Args:
        timestamps: by topic and partition a time in ms, -2 (earliest) or -1 (latest).
        committed: latest is the last stable offset, else the high watermark.
        retriable: further errors after which the request may succeed, as of `ClusterClient.retry`.
    Returns:
        By topic and partition; -1 where no record is as late as that.
    """

    def attempt() -> dict[tuple[str, int], int]:
        by_leader: dict[int, tuple[BlockingConnection, dict[str, list[ListOffsetsPartition]]]] = {}
        for (topic, index), timestamp in timestamps.items():
            leader = cluster.leader(topic, index)
            _, topics = by_leader.setdefault(id(leader), (leader, {}))
            requested = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            topics.setdefault(topic, []).append(requested)
        found: dict[tuple[str, int], int] = {}
        for leader, topics in by_leader.values():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(committed),
                topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
            )
            for response in leader.call(request, ListOffsetsResponse).topics:
                found |= {
                    (response.name, each.partition_index): _offset(response.name, each)
                    for each in response.partitions
                }
        return found

    return cluster.retry(attempt, retriable=retriable) if timestamps else {}


def _offset(topic: str, found: ListOffsetsPartitionResponse) -> int:
    if found.error_code:
        raise BrokerError(found.error_code, f"{topic}, partition {found.partition_index}")
    return found.offset
