"""What a pipeline asks of a cluster: how far partitions reach, how a topic is configured.

Owns: which brokers are asked, and three questions about one topic, asked again while leaders move. Does not:
read or write records.
"""

from __future__ import annotations

import os
from typing import Final

from protocol.errors import ErrorCode
from spark_connector.connection import Cluster, list_offsets, topic_configs
from spark_connector.options import LATEST

SETTLING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
"""Of a topic that was made a moment ago and is not known everywhere."""

_BOOTSTRAP: Final = "LOCKSTEP_BOOTSTRAP"


def default_bootstrap() -> str:
    """The brokers to ask where none are named."""
    return os.environ.get(_BOOTSTRAP) or "localhost:9092"


def ends_of(cluster: Cluster, topic: str) -> dict[int, int]:
    """The high watermark of each partition: what is acknowledged is below it."""
    return offsets_of(cluster, topic, LATEST)


def offsets_of(cluster: Cluster, topic: str, timestamp: int, *, committed: bool = False) -> dict[int, int]:
    """For each partition, in order, what ListOffsets says of `timestamp`, which may be EARLIEST or LATEST.

    Raises BrokerError, ConnectionFailed.
    """
    count = len(cluster.retried(lambda: cluster.topic(topic), also=SETTLING).partitions)
    wanted = {(topic, partition): timestamp for partition in range(count)}
    found = list_offsets(cluster, wanted, committed=committed, also=SETTLING)
    return {partition: found[topic, partition] for partition in range(count)}


def config_of(cluster: Cluster, topic: str, name: str) -> str | None:
    """One configuration of a topic; None where the broker knows none of that name. BrokerError."""
    return topic_configs(cluster, topic, [name]).get(name)
