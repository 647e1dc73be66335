"""A client of one cluster: the leaders of partitions, the coordinators of groups, connections to brokers.

Owns: the connections of one task or one driver, and the topics of the newest metadata; the `ClusterView` has
the brokers and the order in which they are tried.

Invariants: one connection to each broker. Only `retry` repeats a request that failed because leadership moved
or a connection broke, after fresh metadata, and only where its caller allows it: this package never sends a
write twice on its own.

Does not: join groups. One thread at a time may use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, Self, TypeVar

from lockstep.kafka_client.blocking_connection import BlockingConnection
from lockstep.kafka_client.security import ClientSecurity, Properties
from lockstep.protocol.client_errors import BrokerError, ClientError, ConnectionFailed, ListenerMismatch
from lockstep.protocol.cluster_view import (
    GROUP,
    LEADERSHIP_ERRORS,
    Address,
    ClusterView,
    RetrySchedule,
    TopicMetadata,
    coordinator_request,
    topics_of,
)
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

_STALE_S: Final = 3.0
"""Longer than an election: a broker that knows no leader for this time may be partitioned from others."""
_MISMATCH_TIMEOUT_S: Final = 1.0
"""The time in which a client that was never served repeats requests whose connection is closed: the
broker may be about to stop, but its listener may also be of another kind."""
NO_TOPIC: Final = "there is no such topic"
NOT_CREATED: Final = (
    f"{NO_TOPIC}, and the brokers create none (auto.create.topics.enable=false): create it first"
)


class ClusterClient:
    """Connections to one cluster. Use it as `with ClusterClient("host:9092") as cluster`.

    Args:
        bootstrap: HOST:PORT of brokers, with commas between them; any one that responds is enough.
        timeout_s: for each connection, each response, and for `retry` as a whole.
        properties: Kafka's client properties of TLS and SASL, without `kafka.` before their names.
    Raises:
        ClientError: for an invalid address or property.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "lockstep-spark",
        timeout_s: float = 30.0,
        properties: Properties | None = None,
    ) -> None:
        try:
            self._security = ClientSecurity.of(properties)
        except ClientError as error:
            raise ClientError(f"kafka.{error}") from None
        try:
            self._view = ClusterView(bootstrap)
        except ClientError as error:
            raise ClientError(f"kafka.bootstrap.servers: {error}") from None
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._connections: dict[Address, BlockingConnection] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._metadata_source: Address | None = None
        """The broker that sent the newest metadata."""
        self._is_closed = False

    @property
    def cluster_id(self) -> str | None:
        """From the newest metadata; None before the first."""
        return self._view.cluster_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections, permanently."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()

    # -- metadata ---------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> list[TopicMetadata]:
        """The topics of these names, or all, sorted by name, as they are now. BrokerError for one unknown."""
        requested = (
            None if names is None else [MetadataRequestTopic(name=name) for name in sorted(set(names))]
        )
        found = sorted(self._metadata(requested), key=lambda topic: topic.name)
        self._topics.update((topic.name, topic) for topic in found)
        return found

    def topic(self, name: str, *, create: bool = False) -> TopicMetadata:
        """A topic from the cached metadata, which `refresh` drops. BrokerError for an unknown topic.

        Args: create: let the brokers make a missing topic, as a producer's Metadata request does
            (auto.create.topics.enable and their defaults decide).
        """
        known = self._topics.get(name)
        if known is None:
            (known,) = self._metadata([MetadataRequestTopic(name=name)], create=create)
            self._topics[name] = known
        return known

    def refresh(self) -> None:
        """Drops the cached leaders; a broken connection is opened again at its next use."""
        self._topics.clear()

    # -- connections ------------------------------------------------------------------------------------

    def any(self) -> BlockingConnection:
        """A connection to one of the bootstrap brokers. ConnectionFailed where none of them responds."""
        view = self._view
        failure: ClientError | None = None

        def preference(address: Address) -> tuple[bool, bool]:
            return view.is_suspect(address), not self._is_open(address)

        for address in sorted(view.candidates(), key=preference):
            try:
                self._metadata_source = address
                return self._connection_to(*address)
            except ConnectionFailed as error:
                failure = failure or error
                view.suspect(address)
        assert failure is not None
        raise failure

    def _is_open(self, address: tuple[str, int]) -> bool:
        connection = self._connections.get(address)
        return connection is not None and connection.is_open

    def leader(self, topic: str, partition: int) -> BlockingConnection:
        """The connection to a partition's leader. BrokerError for an unknown partition or no leader."""
        return self._node(self.topic(topic).leader_of(partition), f"{topic}, partition {partition}")

    def coordinator(self, key: str, kind: int = GROUP) -> BlockingConnection:
        """The coordinator of a group or a transactional id; waits for one. BrokerError."""
        about = f"{'group' if kind == GROUP else 'transactional id'} {key}"

        def attempt() -> BlockingConnection:
            connection = self.any()
            request = coordinator_request(key, kind, connection.version_of(FindCoordinatorRequest))
            response = connection.call(request, FindCoordinatorResponse)
            return self._node(self._view.coordinator_of(response, about), about)

        return self.retry(attempt)

    def retry(self, attempt: Callable[[], T], *, retriable: Iterable[ErrorCode] = ()) -> T:
        """Calls `attempt`, and repeats it after fresh metadata while leadership moves or connections break.

        For idempotent requests. Raises the last error after `timeout_s`.

        Args: retriable: further errors after which the request may succeed.
        """
        start, is_second = time.monotonic(), False
        deadline = start + self.timeout_s
        schedule = RetrySchedule(deadline, _STALE_S)
        again = LEADERSHIP_ERRORS.union(retriable)
        while True:
            try:
                return attempt()
            except (BrokerError, ConnectionFailed) as error:
                is_lost = isinstance(error, ConnectionFailed)
                if isinstance(error, ListenerMismatch) and not self._view.addresses:
                    deadline = min(deadline, start + _MISMATCH_TIMEOUT_S)
                if self._is_closed or (isinstance(error, BrokerError) and error.code not in again):
                    raise
                now = time.monotonic()
                pause_s = schedule.pause_s(now)
                if now >= deadline and (is_second or not is_lost):
                    raise
                pause_s = None if pause_s is None or now + pause_s > deadline else pause_s
            if self._metadata_source is not None and schedule.is_stale(now):
                self._view.suspect(self._metadata_source)
            is_second = True
            # The last try is at the deadline. A silent broker has used up all the time: another may lead.
            time.sleep(max(deadline - now, 0) if pause_s is None else pause_s)
            self.refresh()

    def _node(self, node_id: int, about: str) -> BlockingConnection:
        if node_id not in self._view.addresses:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, about)
        return self._connection_to(*self._view.address_of(node_id))

    def _connection_to(self, host: str, port: int) -> BlockingConnection:
        if self._is_closed:
            raise ConnectionFailed("the connections to this cluster are closed")
        connection = self._connections.get((host, port))
        if connection is None or not connection.is_open:
            connection = BlockingConnection.open(
                host, port, client_id=self._client_id, timeout_s=self.timeout_s, security=self._security
            )
            self._connections[host, port] = connection
        return connection

    def _metadata(
        self, requested: list[MetadataRequestTopic] | None, *, create: bool = False
    ) -> list[TopicMetadata]:
        def attempt() -> list[TopicMetadata]:
            request = MetadataRequest(topics=requested, allow_auto_topic_creation=create)
            response = self.any().call(request, MetadataResponse)
            self._view.update(response)
            missing = NOT_CREATED if create else NO_TOPIC
            return topics_of(response, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: missing})

        return self.retry(attempt)
