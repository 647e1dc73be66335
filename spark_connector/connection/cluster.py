"""A client of one cluster: the leaders of partitions, the coordinators of groups, connections to brokers.

Owns: the connections of one task or one driver, and the newest metadata.

Invariants: one connection to each broker. Only `retry` repeats a request that failed because leadership moved
or a connection broke, after fresh metadata, and only where its caller allows it: this package never sends a
write twice on its own.

Does not: authenticate or encrypt (the brokers offer neither), join groups. One thread at a time may use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from lockstep.protocol.bootstrap import bootstrap_addresses
from lockstep.protocol.client_errors import BrokerError, ClientError, ConnectionFailed
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lockstep.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from spark_connector.connection.wire import BlockingConnection

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators, as FindCoordinator has them."""
_MIN_BACKOFF_S: Final = 0.02
_MAX_BACKOFF_S: Final = 0.5
_STALE_S: Final = 3.0
"""Longer than an election: a broker that knows no leader for so long may be cut off from the others."""
LEADERSHIP_ERRORS: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""The errors of old metadata, or of an election in progress."""
NO_TOPIC: Final = "there is no such topic"
NOT_CREATED: Final = (
    f"{NO_TOPIC}, and the brokers create none (auto.create.topics.enable=false): create it first"
)


@dataclass(frozen=True)
class PartitionInfo:
    """One partition of a topic; `leader` is a node, -1 where there is none now."""

    index: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True)
class TopicInfo:
    """A topic as the cluster's metadata describe it; partitions in order, from 0 without a gap."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class ClusterClient:
    """Connections to one cluster. Use it as `with ClusterClient("host:9092") as cluster`.

    Args:
        bootstrap: HOST:PORT of brokers, with commas between them; any one that responds is enough.
        timeout_s: for each connection, each response, and for `retry` as a whole.
        security: the value of `kafka.security.protocol`; only PLAINTEXT is supported.
    Raises:
        ClientError: for an invalid address or protocol.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "lockstep-spark",
        timeout_s: float = 30.0,
        security: str = "PLAINTEXT",
    ) -> None:
        if security != "PLAINTEXT":
            raise ClientError(
                f"kafka.security.protocol={security}: Lockstep's brokers offer PLAINTEXT alone; leave it out"
            )
        try:
            self._bootstrap = bootstrap_addresses(bootstrap)
        except ClientError as error:
            raise ClientError(f"kafka.bootstrap.servers: {error}") from None
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], BlockingConnection] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._metadata_source: tuple[str, int] | None = None
        """The broker that sent the newest metadata."""
        self._unreachable: dict[tuple[str, int], None] = {}
        """Brokers that did not respond, or may be cut off from the others: tried last, the newest at the
        end."""
        self._is_closed = False
        self.cluster_id: str | None = None
        """From the newest metadata; None before the first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections, for good."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()

    # -- metadata ---------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> list[TopicInfo]:
        """The topics of these names, or all, sorted by name, as they are now. BrokerError for one unknown."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in sorted(set(names))]
        found = sorted(map(_topic, self._metadata(wanted)), key=lambda topic: topic.name)
        self._topics.update((topic.name, topic) for topic in found)
        return found

    def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """A topic from the cached metadata, which `refresh` drops. BrokerError for an unknown topic.

        Args: create: let the brokers make a missing topic, as a producer's Metadata request does
            (auto.create.topics.enable and their defaults decide).
        """
        known = self._topics.get(name)
        if known is None:
            (known,) = map(_topic, self._metadata([MetadataRequestTopic(name=name)], create=create))
            self._topics[name] = known
        return known

    def refresh(self) -> None:
        """Drops the cached leaders; a broken connection is opened again at its next use."""
        self._topics.clear()

    # -- connections ------------------------------------------------------------------------------------

    def any(self) -> BlockingConnection:
        """A connection to one of the bootstrap brokers. ConnectionFailed where none of them responds."""
        known = dict.fromkeys([*self._bootstrap, *self._addresses.values()])
        trusted = [address for address in known if address not in self._unreachable]
        failure: ClientError | None = None
        for some in (trusted, [address for address in self._unreachable if address in known]):
            for address in sorted(some, key=lambda each: not self._is_open(each)):
                try:
                    self._metadata_source = address
                    return self._connection_to(*address)
                except ConnectionFailed as error:
                    failure = failure or error
                    self._mark_unreachable(address)
        assert failure is not None
        raise failure

    def _is_open(self, address: tuple[str, int]) -> bool:
        connection = self._connections.get(address)
        return connection is not None and connection.is_open

    def _mark_unreachable(self, address: tuple[str, int] | None) -> None:
        if address is not None:
            self._unreachable.pop(address, None)
            self._unreachable[address] = None

    def leader(self, topic: str, partition: int) -> BlockingConnection:
        """The connection to a partition's leader. BrokerError for an unknown partition or no leader."""
        about = f"{topic}, partition {partition}"
        partitions = self.topic(topic).partitions
        if 0 <= partition < len(partitions):  # they are in order, and there is no gap between them
            return self._node(partitions[partition].leader, about)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about, "there is no such partition")

    def coordinator(self, key: str, kind: int = GROUP) -> BlockingConnection:
        """The coordinator of a group or a transactional id; waits for one. BrokerError."""
        about = f"{'group' if kind == GROUP else 'transactional id'} {key}"

        def ask() -> BlockingConnection:
            connection = self.any()
            request = FindCoordinatorRequest(key=key, key_type=kind)
            if connection.version_of(FindCoordinatorRequest) >= 4:
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            response = connection.call(request, FindCoordinatorResponse)
            for found in response.coordinators or (response,):
                if found.error_code:
                    raise BrokerError(found.error_code, about, found.error_message)
                self._addresses[found.node_id] = (found.host, found.port)
                return self._node(found.node_id, about)
            raise ClientError(f"{about}: the broker answered with no coordinator")

        return self.retry(ask)

    def retry(self, ask: Callable[[], T], *, retriable: Iterable[ErrorCode] = ()) -> T:
        """Calls `ask`, and again after fresh metadata while leadership moves or connections break.

        For idempotent requests. Raises the last error after `timeout_s`.

        Args: retriable: further errors after which the request may succeed.
        """
        deadline, stale_at = time.monotonic() + self.timeout_s, time.monotonic() + _STALE_S
        pause_s, is_second = _MIN_BACKOFF_S, False
        again = LEADERSHIP_ERRORS.union(retriable)
        while True:
            try:
                return ask()
            except ConnectionFailed:
                if self._is_closed or (time.monotonic() >= deadline and is_second):
                    raise
            except BrokerError as error:
                if error.code not in again or time.monotonic() >= deadline:
                    raise
            if time.monotonic() >= stale_at:
                self._mark_unreachable(self._metadata_source)
                stale_at = time.monotonic() + _STALE_S
            is_second = True  # a silent broker has used up all the time: another may lead by now
            time.sleep(max(min(pause_s, deadline - time.monotonic()), 0))
            pause_s = min(2 * pause_s, _MAX_BACKOFF_S)
            self.refresh()

    def _node(self, node_id: int, about: str) -> BlockingConnection:
        address = self._addresses.get(node_id)
        if address is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, about)
        return self._connection_to(*address)

    def _connection_to(self, host: str, port: int) -> BlockingConnection:
        if self._is_closed:
            raise ConnectionFailed("the connections to this cluster are closed")
        connection = self._connections.get((host, port))
        if connection is None or not connection.is_open:
            connection = BlockingConnection.open(
                host, port, client_id=self._client_id, timeout_s=self.timeout_s
            )
            self._connections[host, port] = connection
        return connection

    def _metadata(
        self, wanted: list[MetadataRequestTopic] | None, *, create: bool = False
    ) -> list[MetadataResponseTopic]:
        def ask() -> list[MetadataResponseTopic]:
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
            response = self.any().call(request, MetadataResponse)
            self._addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
            self.cluster_id = response.cluster_id
            for topic in response.topics:
                if topic.error_code:
                    unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    message = (NOT_CREATED if create else NO_TOPIC) if unknown else None
                    raise BrokerError(topic.error_code, f"topic {topic.name}", message)
            return list(response.topics)

        return self.retry(ask)


def _topic(found: MetadataResponseTopic) -> TopicInfo:
    partitions = tuple(
        PartitionInfo(each.partition_index, each.leader_id, each.leader_epoch)
        for each in sorted(found.partitions, key=lambda each: each.partition_index)
    )
    return TopicInfo(found.name or "", bytes(found.topic_id), found.is_internal, partitions)
