"""What a pipeline asks of a cluster: how far partitions reach, how a topic is configured.

Owns: three questions over a `Cluster`, asked again while leaders move. Does not: read or write records.
"""

from __future__ import annotations

from typing import Final

from protocol.config_resources import ResourceType
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from spark_connector.connection import BrokerError, Cluster
from spark_connector.options import LATEST

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SETTLING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
"""Of a topic that was made a moment ago and is not known everywhere."""


def ends_of(cluster: Cluster, topic: str) -> dict[int, int]:
    """The high watermark of each partition: what is acknowledged is below it."""
    return offsets_of(cluster, topic, LATEST)


def offsets_of(
    cluster: Cluster, topic: str, timestamp: int, *, isolation: int = READ_UNCOMMITTED
) -> dict[int, int]:
    """For each partition what ListOffsets says of `timestamp`, which may be EARLIEST or LATEST."""
    count = len(cluster.retried(lambda: cluster.topic(topic), also=SETTLING).partitions)
    return {
        partition: offset_of(cluster, topic, partition, timestamp, isolation=isolation)
        for partition in range(count)
    }


def offset_of(
    cluster: Cluster, topic: str, partition: int, timestamp: int, *, isolation: int = READ_UNCOMMITTED
) -> int:
    """The same of one partition. BrokerError, ConnectionFailed."""
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
            )
        ],
    )

    def ask() -> int:
        answer = cluster.leader(topic, partition).call(request, ListOffsetsResponse)
        result = answer.topics[0].partitions[0]
        if result.error_code:
            raise BrokerError(result.error_code, f"{topic}, partition {partition}")
        return int(result.offset)

    return cluster.retried(ask, also=SETTLING)


def config_of(cluster: Cluster, topic: str, name: str) -> str | None:
    """One configuration of a topic; None where the broker knows none of that name. BrokerError."""
    resource = DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=[name]
    )

    def ask() -> str | None:
        request = DescribeConfigsRequest(resources=[resource])
        for result in cluster.any().call(request, DescribeConfigsResponse).results:
            if result.error_code:
                raise BrokerError(result.error_code, f"topic {topic}", result.error_message)
            for each in result.configs:
                if each.name == name:
                    return each.value
        return None

    return cluster.retried(ask)
