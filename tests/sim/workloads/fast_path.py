"""The fast path of Produce on a node of a world: requests as bytes, without sockets.

Owns: the request of one batch, the metadata that the fast path looks at, and the check that its reply is
what the client is told. Does not: choose who is asked, or wait for a commit (`producing.py`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition, Topic
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.produce_fast_path import PlainResponse, ProduceFastPath
from lockstep.broker.requests.fast_path import Reply
from lockstep.broker.requests.request_context import ClientContext
from lockstep.broker.requests.router import Route
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.broker.settings.topic_config import topic_config
from lockstep.protocol.compiler import decode
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.storage.partition import PartitionLog
from tests.broker.wire import frame

if TYPE_CHECKING:
    from tests.sim.node import Node

VERSION = 9
SETTINGS = from_texts({"log.dirs": "unused"})


class FastProduce:
    """The fast path of one life of a node. Args: max_message_bytes: of all topics."""

    path_type: ClassVar[type[ProduceFastPath]] = ProduceFastPath
    """In Python: planted mistakes cannot be put into the extension's."""

    def __init__(self, node: Node, appender: Appender, max_message_bytes: int) -> None:
        self._node = node
        self._group = appender.group
        far = str(1 << 62)
        texts = {"max.message.bytes": str(max_message_bytes), "message.timestamp.after.max.ms": far}
        self._config = topic_config(texts, SETTINGS)
        self._topics: dict[str, Topic] = {}
        cluster = cast(MetadataCache, SimpleNamespace(changes=0, topic=self._topics.get, first_sequences={}))
        route = cast(Route, SimpleNamespace(first=3, last=13, request_count=0))
        appenders = {appender.group.group_id: appender}
        self._path = self.path_type(cluster, appenders, cast(NodeEndpoints, None), route)
        self._requests = self._path.open(cast(Any, self), ClientContext("PLAINTEXT", "a client", ""))

    def append(self, partition: PartitionLog, data: bytes) -> PlainResponse | None:
        """Append a batch, the only one of its request; None where it is declined."""
        name = f"topic-{partition.local_id}"
        if name not in self._topics:
            topic = self._topics[name] = Topic(name, partition.topic_id, self._config)
            topic.partitions.append(Partition(topic, 0, self._group))
            topic.partitions[0].log = partition
        topics = [TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=data)])]
        request = frame(ProduceRequest(acks=-1, timeout_ms=1, topic_data=topics), VERSION)
        reply = self._requests.append(memoryview(request)[4:])
        assert reply is None or isinstance(reply, PlainResponse)
        return reply

    # --- the connection's part ------------------------------------------------------------------------------

    def on_reply(self, reply: Reply) -> None:
        """Whoever waits for the commit looks at it."""

    def abort(self) -> None:
        self._node.world.violate("the fast path answers", "a connection failed")


def response_of(reply: PlainResponse) -> PartitionProduceResponse:
    """The response that a reply has been given."""
    assert reply.buffers is not None, "a commit is known, and the reply is not encoded"
    data = b"".join(map(bytes, reply.buffers))
    response = decode(ProduceResponse, VERSION, data, 9)
    return response.responses[0].partition_responses[0]


def agrees(reply: PlainResponse, is_committed: bool) -> bool:
    """Does the client hear what became of its batch?"""
    response = response_of(reply)
    if is_committed:
        return response.error_code == ErrorCode.NONE and response.base_offset == reply.appended[0][1]
    return response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and response.base_offset == -1
