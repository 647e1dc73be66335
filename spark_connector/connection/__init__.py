"""Talking to brokers with plain blocking sockets: what a Spark task can use, where no event loop runs.

`wire` is one connection, `cluster` finds leaders and coordinators, `offsets` asks leaders how far partitions
reach, `configs` how a topic is configured. What is said on a connection, and what can go wrong, is in
`protocol` (`client_protocol`, `client_errors`), shared with `lockstep.connection`, which is the same for
asyncio; neither of the two imports the other, because executors are not sent the broker's packages.
"""

from __future__ import annotations

from protocol.client_errors import BrokerError, ClientError, ConnectionFailed, TimedOut, Unsupported
from spark_connector.connection.cluster import Cluster, Partition, Topic
from spark_connector.connection.configs import topic_configs
from spark_connector.connection.offsets import list_offsets
from spark_connector.connection.wire import Connection, Pending

__all__ = [
    "BrokerError",
    "ClientError",
    "Cluster",
    "Connection",
    "ConnectionFailed",
    "Partition",
    "Pending",
    "TimedOut",
    "Topic",
    "Unsupported",
    "list_offsets",
    "topic_configs",
]
