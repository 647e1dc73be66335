"""Finds the coordinator of a transactional id, for the requests of producers and tools.

Owns: `TransactionCoordinators`, one per broker, with a coordinator per data log group that the node has a
copy of. Invariants: only the leader of an id's shard serves it; callers have taken a read barrier of the
shards that `lapsed_shards` names. Does not: map ids to log groups or make `__transaction_state`
(`broker/coordination/`), measure time (`transaction_expiration.py`), or know what is allowed
(`transaction_rules.py`). Source: Kafka's TransactionCoordinator; `broker/groups/group_coordinators.py` is its
sibling.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from lockstep.broker.coordination.coordinator_registry import CoordinatorRegistry
from lockstep.broker.coordination.coordinator_shard import CoordinatorShard
from lockstep.broker.metadata.metadata_cache import (
    TRANSACTION_STATE,
    TRANSACTION_STATE_TOPIC_ID,
    MetadataCache,
)
from lockstep.broker.produce.appender import Appender
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import take_read_barrier
from lockstep.broker.transactions.transaction_coordinator import (
    MarkerWriter,
    ProducerIdSource,
    TransactionCoordinator,
)
from lockstep.broker.transactions.transaction_records import TopicPartition, TransactionMetadata
from lockstep.broker.transactions.transaction_rules import RAISES_EPOCH_MIN_VERSION, Identity
from lockstep.broker.transactions.transaction_state import TransactionsState
from lockstep.broker.transactions.verification_client import VerificationRequest
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.log_group import LogGroup

CONFLICTING_TOPIC: Final = (
    f"the topic {TRANSACTION_STATE} is an ordinary one, made before this broker served transactions: "
    "none can be served until it is deleted"
)


class TransactionCoordinators(CoordinatorRegistry[CoordinatorShard[TransactionCoordinator]]):
    """The shards of this node, by log group."""

    topic_name = TRANSACTION_STATE
    topic_id = TRANSACTION_STATE_TOPIC_ID
    conflicting_topic = CONFLICTING_TOPIC
    log = logging.getLogger("lockstep.transactions")

    def __init__(
        self,
        cluster: MetadataCache,
        appenders: Mapping[int, Appender],
        markers: MarkerWriter,
        producer_ids: ProducerIdSource,
    ) -> None:
        super().__init__(cluster)
        self._appenders = appenders
        self._markers = markers
        self._producer_ids = producer_ids

    def add_shard(self, group_id: int, group: LogGroup, state: TransactionsState) -> None:
        """This node has a copy of a data log group: serve its transactional ids whenever it is led here.

        Args: state: what its partitions of `__transaction_state` are replayed into.
        """
        self._require_absent(group_id)
        coordinator = TransactionCoordinator(
            state,
            partial(self._led_partition, group_id),
            self._cluster,
            self._appenders[group_id],
            self._markers,
            self._producer_ids,
        )
        self._shards[group_id] = CoordinatorShard(group, coordinator, "transactions")

    def log_group_of(self, transactional_id: str) -> int | None:
        """The log group that has this id's records; None where the topic is not known here."""
        partition = self._topic_partition(transactional_id)
        return None if partition is None else partition.group.group_id

    # --- producers' requests --------------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, producer_id: int, producer_epoch: int
    ) -> Identity:
        """An identity; id and epoch are -1 for a producer that has none yet. Raises RequestError."""
        if not transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        if not 0 < timeout_ms <= self._cluster.settings.transaction_max_timeout_ms:
            text = f"a transaction timeout of {timeout_ms} ms"
            raise RequestError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, text)
        expected = None if producer_id < 0 else (producer_id, producer_epoch)
        coordinator = self._coordinator(transactional_id)
        return await coordinator.init(transactional_id, timeout_ms, expected)

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        version: int,
    ) -> None:
        """Partitions take part in the producer's transaction. Raises RequestError."""
        coordinator = self._coordinator(transactional_id)
        await coordinator.add(transactional_id, (producer_id, producer_epoch), partitions, version)

    async def verify(
        self, request: VerificationRequest, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns whether partitions take part in the producer's transaction; `add` adds them. Takes its read
        barrier itself, as other nodes use it, too. Raises RequestError."""
        transactional_id, producer_id, producer_epoch, add = request
        await take_read_barrier(partial(self.lapsed_shards, [transactional_id]))
        coordinator = self._coordinator(transactional_id)
        identity = producer_id, producer_epoch
        if not add:
            return await coordinator.verify(transactional_id, identity, partitions)
        await coordinator.add(transactional_id, identity, partitions, RAISES_EPOCH_MIN_VERSION)
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def verify_now(
        self, request: VerificationRequest, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode] | None:
        """Verifies at once; None where that is not possible. Raises RequestError."""
        transactional_id, producer_id, producer_epoch, add = request
        identity = producer_id, producer_epoch
        if self.lapsed_shards([transactional_id]):
            return None
        coordinator = self._coordinator(transactional_id)
        found = coordinator.verify_now(transactional_id, identity, partitions)
        if add and found is not None and any(error is not ErrorCode.NONE for error in found.values()):
            return None
        return found

    async def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool, version: int
    ) -> Identity:
        """Commit or abort the producer's transaction; who it is from now on. Raises RequestError."""
        coordinator = self._coordinator(transactional_id)
        return await coordinator.end(transactional_id, (producer_id, producer_epoch), commit, version)

    # --- tools' requests ------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Returns the state of an id. Raises RequestError."""
        found = self._coordinator(transactional_id).state.get(transactional_id)
        if found is None:
            raise RequestError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "the transactional id is not known")
        return found

    def list_all(self) -> Iterator[tuple[str, TransactionMetadata]]:
        """Yields every id that is coordinated here. Raises RequestError where that is not certain now."""
        coordinators = [each.require() for each in self._shards.values() if each.group.is_leader]
        return ((name, each) for one in coordinators for name, each in one.state.ids.items())

    def coordinators(self) -> list[TransactionCoordinator]:
        """Returns the coordinators that serve here now."""
        return [each.coordinator for each in self._serving_shards()]

    # --- private --------------------------------------------------------------------------------------------

    def _coordinator(self, transactional_id: str) -> TransactionCoordinator:
        """Returns the coordinator of this id. Raises RequestError."""
        if not transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        return self._find_shard(transactional_id).require()
