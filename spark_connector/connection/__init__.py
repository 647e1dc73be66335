"""The client of Spark tasks: connections to brokers over plain blocking sockets, as no event loop runs there.

`wire` is one connection, `cluster` finds leaders and coordinators, `offsets` lists the offsets of partitions,
`configs` describes topics. The messages and the errors are in `protocol` (`client_protocol`,
`client_errors`), shared with `lockstep.connection`, which is the same for asyncio; neither of the two imports
the other, because executors do not have the broker's packages.
"""

from __future__ import annotations

from lockstep.protocol.client_errors import BrokerError, ClientError, ConnectionFailed, TimedOut, Unsupported
from spark_connector.connection.cluster import ClusterClient
from spark_connector.connection.configs import topic_configs
from spark_connector.connection.offsets import list_offsets
from spark_connector.connection.wire import BlockingConnection, ResponseFuture

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
