"""The queries of a pipeline about a topic: the offsets of its partitions and its configurations.

Owns: the default brokers, and three queries about one topic, repeated while leaders move. Does not:
read or write records.
"""

from __future__ import annotations

import os
from typing import Final

from lockstep.protocol.errors import ErrorCode
from spark_connector.connection import ClusterClient, list_offsets, topic_configs
from spark_connector.options import LATEST

NEW_TOPIC_ERRORS: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
"""The error of a new topic that some brokers do not know yet."""

_BOOTSTRAP: Final = "LOCKSTEP_BOOTSTRAP"


def default_bootstrap() -> str:
    """The bootstrap servers where none are named."""
    return os.environ.get(_BOOTSTRAP) or "localhost:9092"


def high_watermarks(cluster: ClusterClient, topic: str) -> dict[int, int]:
    """The high watermark of each partition: acknowledged records are below it."""
    return offsets_of(cluster, topic, LATEST)


def offsets_of(
    cluster: ClusterClient, topic: str, timestamp: int, *, committed: bool = False
) -> dict[int, int]:
    """The offset of each partition, in order, for `timestamp`, which may be EARLIEST or LATEST.

    Raises BrokerError, ConnectionFailed.
    """
    count = len(cluster.retry(lambda: cluster.topic(topic), retriable=NEW_TOPIC_ERRORS).partitions)
    timestamps = {(topic, partition): timestamp for partition in range(count)}
    found = list_offsets(cluster, timestamps, committed=committed, retriable=NEW_TOPIC_ERRORS)
    return {partition: found[topic, partition] for partition in range(count)}


def config_of(cluster: ClusterClient, topic: str, name: str) -> str | None:
    """One configuration of a topic; None for an unknown name. BrokerError."""
    return topic_configs(cluster, topic, [name]).get(name)
