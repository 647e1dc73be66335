"""A client's view of its cluster, and the schedule of its retries; without a socket and without a clock.

Owns: the addresses of the brokers and the order in which they are tried, the topics of Metadata responses
and their leaders, the retriable errors, the pauses between attempts. The clients of an event loop and the
blocking ones share it; they hold the connections, send the requests and wait.

Invariant: a broker that was suspected comes after all that were not, the one suspected longest ago first.
Does not: decide whether a request may be repeated; that is for its caller, who knows what it means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lockstep.protocol.bootstrap import bootstrap_addresses
from lockstep.protocol.client_errors import BrokerError, ClientError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lockstep.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

Address = tuple[str, int]

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
NEW_TOPIC_ERRORS: Final = LEADERSHIP_ERRORS | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""The same of a topic that was just created: a broker may not know it yet."""
RETRIABLE_ERRORS: Final = NEW_TOPIC_ERRORS | {
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
}
"""All errors that end by themselves: the same request may succeed a little later."""

GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators, as FindCoordinator has them."""
PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4)
"""The pauses between attempts; the last one repeats."""


@dataclass(frozen=True)
class PartitionMetadata:
    """One partition of a topic; `leader` is a node, -1 where there is none now."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error_code: int


@dataclass(frozen=True)
class TopicMetadata:
    """A topic as the cluster's metadata describe it; its partitions are in order."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]

    def leader_of(self, index: int) -> int:
        """The node that leads a partition. BrokerError for an unknown partition."""
        partitions = self.partitions
        if 0 <= index < len(partitions) and partitions[index].index == index:  # all but always so
            return partitions[index].leader
        for partition in partitions:
            if partition.index == index:
                return partition.leader
        about = f"{self.name}, partition {index}"
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about, "there is no such partition")


def topics_of(response: MetadataResponse, reasons: Mapping[int, str]) -> list[TopicMetadata]:
    """The topics of a response, in its order. BrokerError for the first that has an error, in the words that
    `reasons` has for its code."""
    for topic in response.topics:
        if topic.error_code:
            raise BrokerError(topic.error_code, f"topic {topic.name or ''}", reasons.get(topic.error_code))
    return [_topic(each) for each in response.topics]


def _topic(found: MetadataResponseTopic) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            partition.error_code,
        )
        for partition in sorted(found.partitions, key=lambda partition: partition.partition_index)
    )
    return TopicMetadata(found.name or "", bytes(found.topic_id), found.is_internal, partitions)


def coordinator_request(key: str, kind: int, version: int) -> FindCoordinatorRequest:
    """The question for the coordinator of one group or transactional id, in any version."""
    if version >= 4:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    return FindCoordinatorRequest(key=key, key_type=kind)


class ClusterView:
    """The brokers of one cluster. Args: bootstrap: HOST:PORT of brokers, with commas between them. Raises
    ClientError."""

    __slots__ = ("_bootstrap", "_suspects", "addresses", "cluster_id", "controller_id")

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap_addresses(bootstrap)
        self._suspects: dict[Address, None] = {}
        self.addresses: dict[int, Address] = {}
        """By node, as the newest metadata named them."""
        self.controller_id = -1
        self.cluster_id: str | None = None
        """From the newest metadata; None before the first."""

    def update(self, response: MetadataResponse) -> None:
        """Take the brokers of a Metadata response in place of those known before."""
        self.addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id

    def coordinator_of(
        self, response: FindCoordinatorResponse, about: str, reasons: Mapping[int, str] | None = None
    ) -> int:
        """The node that coordinates, whose address the response names. BrokerError as `topics_of`."""
        if len(response.coordinators) > 1:
            count = len(response.coordinators)
            raise ClientError(f"{about}: the broker responded with {count} results, 1 was requested")
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            reason = (reasons or {}).get(found.error_code, found.error_message)
            raise BrokerError(found.error_code, about, reason)
        self.addresses[found.node_id] = (found.host, found.port)
        return found.node_id

    def address_of(self, node_id: int) -> Address:
        """A node's address. BrokerError where there is no such node, as for a partition without a leader."""
        address = self.addresses.get(node_id)
        if address is None:
            reason = None if node_id < 0 else f"there is no such node, known are {sorted(self.addresses)}"
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"node {node_id}", reason)
        return address

    def candidates(self) -> list[Address]:
        """All addresses for what any broker can serve, in the order in which they are tried."""
        known = dict.fromkeys([*self._bootstrap, *self.addresses.values()])
        trusted = [address for address in known if address not in self._suspects]
        return trusted + [address for address in self._suspects if address in known]

    def is_suspect(self, address: Address) -> bool:
        return address in self._suspects

    def suspect(self, address: Address) -> None:
        """Try this broker last: it did not respond, or may be cut off from the others."""
        self._suspects.pop(address, None)
        self._suspects[address] = None


class RetrySchedule:
    """The pauses between tries that begin at `now`, until a deadline of the same clock.

    Args:
        stale_s: attempts that have failed for this time make the metadata broker suspected: one that is
            partitioned from the others continues to respond that there is no leader.
    """

    __slots__ = ("_count", "_deadline", "_failing_since", "_stale_s")

    def __init__(self, deadline: float, stale_s: float = float("inf")) -> None:
        self._deadline = deadline
        self._stale_s = stale_s
        self._failing_since = 0.0
        self._count = 0

    def remaining_s(self, now: float) -> float:
        return max(0.001, self._deadline - now)

    def pause_s(self, now: float) -> float | None:
        """The wait after one more failed try, in seconds; None where the next one would be too late."""
        if not self._count:
            self._failing_since = now
        pause_s = PAUSES_S[min(self._count, len(PAUSES_S) - 1)]
        self._count += 1
        return pause_s if now + pause_s < self._deadline else None

    def is_stale(self, now: float) -> bool:
        """Returns whether attempts have failed for `stale_s`."""
        return self._count > 0 and now - self._failing_since >= self._stale_s
