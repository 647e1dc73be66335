"""The clients and the metadata of handlers that are tested without a broker and without a socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache, Topic
from lockstep.broker.metadata.metadata_image import (
    Command,
    MetadataImage,
    NodeEntry,
    TopicEntry,
    TopicState,
    cluster_command,
    create_command,
    node_command,
    place_command,
    ready_command,
)
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.network.connection import Connection
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.peers.node_status import Status
from lockstep.broker.requests.request_context import (
    ClientContext,
    EncodedResponse,
    RequestHandler,
    await_response,
)
from lockstep.broker.settings.config import Settings
from lockstep.protocol.api import RequestHeader, messages_for
from lockstep.protocol.compiler import decode, encode
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import DirectoryEntry

LISTENER = "PLAINTEXT"
CLUSTER_ID = "a-cluster"
PORT = 9092


def client(listener: str = LISTENER, *, is_forwarded: bool = False, peer: str = "a client") -> ClientContext:
    """The client of a request, on a connection to 127.0.0.1."""
    context = ClientContext(listener, peer, "127.0.0.1")
    context.is_forwarded = is_forwarded
    return context


def header(api_version: int, api_key: int = -1) -> RequestHeader:
    """The header of a request; handlers read its version alone."""
    return RequestHeader(api_key, api_version, 1, "client")


def open_connections(connections: Connections) -> list[Connection]:
    """The open connections of a broker."""
    return [cast(Connection, each) for each in connections._open]


class Caller:
    """Calls handlers as a connection does: requests and responses pass the codec of their version.

    Args: handlers: those that may be called.
    """

    def __init__(self, *handlers: RequestHandler) -> None:
        self.handlers = handlers
        self._by_key = {int(each.api_key): each for each in handlers}
        self.client = client()

    async def call(self, request: Any, version: int) -> Any:
        """The response to one request; EncodedResponse is decoded. Raises what the handler raises."""
        api_key = int(request.SCHEMA.api_key)
        request_type, response_type = messages_for(api_key)
        handler = self._by_key[api_key]
        assert handler.versions[0] <= version <= handler.versions[1]
        received = decode(request_type, version, b"".join(map(bytes, encode(request, version))), 0)
        response = await await_response(handler.handle(self.client, header(version, api_key), received))
        if response is None:
            return None
        body = response.body if isinstance(response, EncodedResponse) else encode(response, version)
        return decode(response_type, version, memoryview(b"".join(map(bytes, body))), 0)


async def forget_nothing(number: int, name: str) -> bool:
    """A log group whose consumer groups have committed nothing for a topic."""
    return False


class FakeMetadata:
    """The metadata of node 1: real objects that nothing but `record` fills, and no log group.

    Args: node_ids: the recorded nodes, reached on PORT of `host-ID`; all hold groups 0 and 1. `settings` are
    of this node.
    """

    def __init__(self, node_ids: tuple[int, ...] = (1,), **settings: object) -> None:
        self.now = 100.0
        self.image = MetadataImage()
        groups: dict[int, LogGroup] = {}
        self.nodes = NodeRegistry(1, self.image, groups, lambda: self.now)
        purgatory = cast(FetchPurgatory, SimpleNamespace(wake=lambda partition: None))
        self.cluster = MetadataCache(
            Settings(**settings),  # type: ignore[arg-type]
            self.image,
            groups,
            purgatory,
            self.nodes.leader_of,
            lambda: self.now,
        )
        self.endpoints = NodeEndpoints(self.nodes, {LISTENER: ("", PORT)}, self.cluster)
        self.record(cluster_command(CLUSTER_ID))
        for node_id in node_ids:
            host = f"host-{node_id}"
            self.record(
                node_command(
                    NodeEntry(node_id, {LISTENER: (host, PORT)}, (host, PORT + 1), f"rack-{node_id}")
                )
            )
        self.record(place_command({METADATA_GROUP: node_ids, 1: node_ids}))

    def record(self, *commands: Command) -> None:
        """Replay metadata commands, as if they were committed."""
        batch = BatchBuilder()
        for command in commands:
            batch.append(json.dumps(command).encode(), timestamp_ms=1)
        self.image.replay(DirectoryEntry(1, 0, 1, 1, 0, 1, 0), batch.build(), 1)

    def add_topic(
        self, name: str, groups: tuple[int, ...] = (1,), overrides: Mapping[str, str] | None = None
    ) -> Topic:
        """Record a topic with a partition in each of these log groups; none of them is here."""
        topic_id = name.encode().ljust(16, b"-")[:16]
        entry = TopicEntry(name, topic_id, list(groups), dict(overrides or {}), TopicState.CREATING)
        self.record(create_command(entry), ready_command(topic_id))
        topic = self.cluster.topic(name)
        assert topic is not None
        return topic

    def report(self, node_id: int, leads: Mapping[int, int] | None = None, applied: int = 0) -> None:
        """Another node reports its status. Args: leads: log group -> term. applied: how far of group 0."""
        self.nodes.on_status(node_id, Status(leads=leads or {}, applied=applied))

    def lead_here(self, group: int, term: int = 1) -> LogGroup:
        """Add a log group to this node that reports only that it leads."""
        fake = SimpleNamespace(
            group_id=group, leader_id=1, is_leader=True, term=term, applied_index=0, recovered_index=0,
            raft=SimpleNamespace(member_id=1, configuration=SimpleNamespace(voters=(), learners=())),
        )  # fmt: skip
        self.cluster.groups[group] = cast(LogGroup, fake)
        return self.cluster.groups[group]
