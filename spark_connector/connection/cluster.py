"""A cluster of brokers: who leads which partition, who coordinates which group, and a connection to each.

Owns: the connections of one task or one driver, and what the metadata last said.

Invariants: one connection to each broker. What fails because leadership moved, or because a connection
broke, is asked again by `retried` alone, after fresh metadata, and only what its caller says may be asked
again: nothing that writes is sent twice by this package on its own.

Does not: authenticate or encrypt (the brokers offer neither), join groups. One thread at a time may use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from protocol.bootstrap import bootstrap_addresses
from protocol.client_errors import BrokerError, ClientError, ConnectionFailed
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from spark_connector.connection.wire import Connection

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators, as FindCoordinator has them."""
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
_STALE_S: Final = 3.0
"""An election is over by then: a broker that knows no leader for so long may be cut off from the others."""
MOVED: Final = frozenset(
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
"""Refusals that come of old metadata, or of an election that is under way."""
NO_TOPIC: Final = "there is no such topic"
NOT_CREATED: Final = (
    f"{NO_TOPIC}, and the brokers create none (auto.create.topics.enable=false): create it first"
)


@dataclass(frozen=True)
class Partition:
    """One partition of a topic; `leader` is a node, -1 where there is none now."""

    index: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster's metadata describe it; partitions in order, from 0 without a gap."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[Partition, ...]


class Cluster:
    """Connections to one cluster. Use it as `with Cluster("host:9092") as cluster`.

    Args:
        bootstrap: HOST:PORT of brokers, with commas between them; any one that answers is enough.
        timeout_s: for each connection, each answer, and for `retried` as a whole.
        security: what `kafka.security.protocol` says; PLAINTEXT is the only one there is.
    Raises:
        ClientError: for an address or a protocol that cannot be.
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
        self._connections: dict[tuple[str, int], Connection] = {}
        self._topics: dict[str, Topic] = {}
        self._asked: tuple[str, int] | None = None
        """Who was asked last about all others."""
        self._given_up: dict[tuple[str, int], None] = {}
        """Who did not answer, or may be cut off from the others: asked last, the newest at the end."""
        self._is_closed = False
        self.cluster_id: str | None = None
        """As the metadata last said it; None before any were asked for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """For good."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()

    # -- metadata ---------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> list[Topic]:
        """The topics of these names, or all, sorted by name, as they are now. BrokerError for one unknown."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in sorted(set(names))]
        found = sorted(map(_topic, self._metadata(wanted)), key=lambda topic: topic.name)
        self._topics.update((topic.name, topic) for topic in found)
        return found

    def topic(self, name: str, *, create: bool = False) -> Topic:
        """A topic as it was when last asked for: `refresh` forgets it. BrokerError where there is none.

        Args: create: let the brokers make a missing topic, as a producer's Metadata request does
            (auto.create.topics.enable and their defaults decide).
        """
        known = self._topics.get(name)
        if known is None:
            (known,) = map(_topic, self._metadata([MetadataRequestTopic(name=name)], create=create))
            self._topics[name] = known
        return known

    def refresh(self) -> None:
        """Forget who leads what; connections that broke are made again when they are asked for."""
        self._topics.clear()

    # -- connections ------------------------------------------------------------------------------------

    def any(self) -> Connection:
        """A connection to one of those that were named. ConnectionFailed where none of them answers."""
        known = dict.fromkeys([*self._bootstrap, *self._addresses.values()])
        trusted = [address for address in known if address not in self._given_up]
        failure: ClientError | None = None
        for some in (trusted, [address for address in self._given_up if address in known]):
            for address in sorted(some, key=lambda each: not self._is_open(each)):
                try:
                    self._asked = address
                    return self._connected(*address)
                except ConnectionFailed as error:
                    failure = failure or error
                    self._give_up(address)
        assert failure is not None
        raise failure

    def _is_open(self, address: tuple[str, int]) -> bool:
        connection = self._connections.get(address)
        return connection is not None and connection.is_open

    def _give_up(self, address: tuple[str, int] | None) -> None:
        if address is not None:
            self._given_up.pop(address, None)
            self._given_up[address] = None

    def leader(self, topic: str, partition: int) -> Connection:
        """Whom to ask about a partition. BrokerError where there is no such partition or no leader."""
        about = f"{topic}, partition {partition}"
        partitions = self.topic(topic).partitions
        if 0 <= partition < len(partitions):  # they are in order, and there is no gap between them
            return self._node(partitions[partition].leader, about)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about, "there is no such partition")

    def coordinator(self, key: str, kind: int = GROUP) -> Connection:
        """The broker that looks after a group, or a transactional id; waits for one. BrokerError."""
        about = f"{'group' if kind == GROUP else 'transactional id'} {key}"

        def ask() -> Connection:
            connection = self.any()
            request = FindCoordinatorRequest(key=key, key_type=kind)
            if connection.version_of(FindCoordinatorRequest) >= 4:
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            answer = connection.call(request, FindCoordinatorResponse)
            for found in answer.coordinators or (answer,):
                if found.error_code:
                    raise BrokerError(found.error_code, about, found.error_message)
                self._addresses[found.node_id] = (found.host, found.port)
                return self._node(found.node_id, about)
            raise ClientError(f"{about}: the broker answered with no coordinator")

        return self.retried(ask)

    def retried(self, ask: Callable[[], T], *, also: Iterable[ErrorCode] = ()) -> T:
        """`ask`, and again after fresh metadata while leadership moves or connections break.

        For what may be asked twice. Gives up with the last error after `timeout_s`.

        Args: also: further refusals that are worth asking again.
        """
        deadline, stale_at = time.monotonic() + self.timeout_s, time.monotonic() + _STALE_S
        pause_s, is_second = _FIRST_PAUSE_S, False
        again = MOVED.union(also)
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
                self._give_up(self._asked)
                stale_at = time.monotonic() + _STALE_S
            is_second = True  # a broker that fell silent has used up all the time: another may lead by now
            time.sleep(max(min(pause_s, deadline - time.monotonic()), 0))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            self.refresh()

    def _node(self, node_id: int, about: str) -> Connection:
        address = self._addresses.get(node_id)
        if address is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, about)
        return self._connected(*address)

    def _connected(self, host: str, port: int) -> Connection:
        if self._is_closed:
            raise ConnectionFailed("the connections to this cluster are closed")
        connection = self._connections.get((host, port))
        if connection is None or not connection.is_open:
            connection = Connection.open(host, port, client_id=self._client_id, timeout_s=self.timeout_s)
            self._connections[host, port] = connection
        return connection

    def _metadata(
        self, wanted: list[MetadataRequestTopic] | None, *, create: bool = False
    ) -> list[MetadataResponseTopic]:
        def ask() -> list[MetadataResponseTopic]:
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
            answer = self.any().call(request, MetadataResponse)
            self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            self.cluster_id = answer.cluster_id
            for topic in answer.topics:
                if topic.error_code:
                    unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    message = (NOT_CREATED if create else NO_TOPIC) if unknown else None
                    raise BrokerError(topic.error_code, f"topic {topic.name}", message)
            return list(answer.topics)

        return self.retried(ask)


def _topic(found: MetadataResponseTopic) -> Topic:
    partitions = tuple(
        Partition(each.partition_index, each.leader_id, each.leader_epoch)
        for each in sorted(found.partitions, key=lambda each: each.partition_index)
    )
    return Topic(found.name or "", bytes(found.topic_id), found.is_internal, partitions)
