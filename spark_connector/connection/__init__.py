"""The client of Spark tasks over plain blocking sockets, as no event loop runs there.

`cluster` finds leaders and coordinators, `offsets` lists the offsets of partitions, `configs` describes
topics. One connection is `lockstep.kafka_client.blocking_connection`'s.
"""

from __future__ import annotations

from lockstep.kafka_client.blocking_connection import BlockingConnection, ResponseFuture
from lockstep.protocol.client_errors import BrokerError, ClientError, ConnectionFailed, TimedOut, Unsupported
from spark_connector.connection.cluster import ClusterClient
from spark_connector.connection.configs import topic_configs
from spark_connector.connection.offsets import list_offsets

__all__ = [
    "BlockingConnection",
    "BrokerError",
    "ClientError",
    "ClusterClient",
    "ConnectionFailed",
    "ResponseFuture",
    "TimedOut",
    "Unsupported",
    "list_offsets",
    "topic_configs",
]
