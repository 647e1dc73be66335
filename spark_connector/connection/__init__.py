"""Talking to brokers with plain blocking sockets: what a Spark task can use, where no event loop runs.

`errors` says what can go wrong, `wire` is one connection, `cluster` finds leaders and coordinators.
`lockstep.connection` is the same for asyncio; neither imports the other, because executors are not sent the
broker's packages.
"""

from __future__ import annotations

from spark_connector.connection.cluster import Cluster, Partition, Topic
from spark_connector.connection.errors import (
    BrokerError,
    ClientError,
    ConnectionFailed,
    TimedOut,
    Unsupported,
)
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
]
