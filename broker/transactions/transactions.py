"""The front door to transactions: which coordinator has a transactional id, and making `__transaction_state`.

Owns: `Transactions`, one per broker, with a coordinator per data log group that the node has a copy of. An
id belongs to the partition of `__transaction_state` that Kafka would give it, and so to the log group that
holds that partition; its coordinator is the node that leads there.
Invariants: nothing is said of an id but by a leader that has its lease; the topic has its fixed id; an
ordinary topic of its name, made before there were transactions, is not used and not touched.
Does not: follow leaderships (`hosted.py`), measure time (`expiration.py`), or know what is allowed.
Source: Kafka's TransactionCoordinator and TransactionStateManager; `broker/groups/groups.py` is its sibling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from broker.append import Appender
from broker.groups.groups import TopicMaker, positive_hash
from broker.metadata import TRANSACTION_STATE, TRANSACTION_STATE_TOPIC_ID, Cluster, Topic
from broker.refused import Refused
from broker.transactions.coordinator import MarkerWriter, ProducerIdSource, TransactionCoordinator
from broker.transactions.hosted import HostedTransactions
from broker.transactions.records import Place, TransactionMetadata
from broker.transactions.state import TransactionsState
from broker.transactions.transitions import RAISES_EPOCH_SINCE, Identity
from protocol.errors import ErrorCode
from storage.group import LogGroup
from storage.partition import PartitionLog

log = logging.getLogger("lockstep.transactions")

FOREIGN_TOPIC: Final = (
    f"the topic {TRANSACTION_STATE} is an ordinary one, made before this broker served transactions: "
    "none can be served until it is deleted"
)


class Transactions:
    """Nothing is hosted at first; see `host`."""

    def __init__(
        self,
        cluster: Cluster,
        controller: TopicMaker,
        appenders: Mapping[int, Appender],
        markers: MarkerWriter,
        producer_ids: ProducerIdSource,
        clock_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._cluster = cluster
        self._controller = controller
        self._appenders = appenders
        self._markers = markers
        self._producer_ids = producer_ids
        self._clock_ms = clock_ms
        self._loop = loop
        self._hosted: dict[int, HostedTransactions] = {}
        """By data log group."""

    def host(self, number: int, group: LogGroup, state: TransactionsState) -> None:
        """This node has a copy of a data log group: serve its transactional ids whenever it is led here.

        Args: state: what its partitions of `__transaction_state` are replayed into.
        """
        if number in self._hosted:
            raise ValueError(f"log group {number} is hosted already")
        coordinator = TransactionCoordinator(
            group,
            state,
            partial(self._partition, number),
            self._cluster,
            self._appenders[number],
            self._markers,
            self._producer_ids,
            self._clock_ms,
            self._loop,
        )
        self._hosted[number] = HostedTransactions(coordinator)

    def unhost(self, number: int) -> None:
        """It has none any more. Answers everybody who waits; nothing where it is not hosted."""
        hosted = self._hosted.pop(number, None)
        if hosted is not None:
            hosted.stop()

    def check(self) -> None:
        """Say what keeps transactions from being served; the topics are known by now."""
        if self._is_foreign():
            log.error("%s", FOREIGN_TOPIC)

    def resign(self) -> None:
        """Answer everybody who waits: this broker stops. What is on its way into the log still gets there."""
        for hosted in self._hosted.values():
            hosted.stop()

    # --- where an id is coordinated -------------------------------------------------------------------------

    async def ready(self) -> None:
        """Make `__transaction_state` if it is not there. Raises Refused."""
        if self._find() is not None:
            return
        if self._is_foreign():
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, FOREIGN_TOPIC)
        await self._controller.ensure(TRANSACTION_STATE)

    @property
    def is_ready(self) -> bool:
        """Is `__transaction_state` there?"""
        return self._find() is not None

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that has this id's records."""
        topic = self._find()
        count = self._cluster.settings.transaction_state_log_num_partitions
        return positive_hash(transactional_id) % (len(topic.partitions) if topic is not None else count)

    def log_group_of(self, transactional_id: str) -> int | None:
        """The log group that has this id's records; None where the topic is not known here."""
        topic = self._find()
        if topic is None:
            return None
        return topic.partitions[self.partition_of(transactional_id)].group.group_id

    def coordinator_node(self, transactional_id: str) -> int:
        """The node that coordinates this id as far as is known; -1 for none."""
        topic = self._find()
        if topic is None:
            return -1
        return topic.partitions[self.partition_of(transactional_id)].group.leader_id

    # --- what producers ask ---------------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, producer_id: int, producer_epoch: int
    ) -> Identity:
        """An identity; id and epoch are -1 for a producer that has none yet. Raises Refused."""
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        if not 0 < timeout_ms <= self._cluster.settings.transaction_max_timeout_ms:
            text = f"a transaction timeout of {timeout_ms} ms"
            raise Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT, text)
        expected = None if producer_id < 0 else (producer_id, producer_epoch)
        return await self._coordinator(transactional_id).init(transactional_id, timeout_ms, expected)

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Place],
        version: int,
    ) -> None:
        """Partitions take part in the producer's transaction. Raises Refused."""
        coordinator = self._coordinator(transactional_id)
        await coordinator.add(transactional_id, (producer_id, producer_epoch), partitions, version)

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Place],
        add: bool,
    ) -> dict[Place, ErrorCode]:
        """Whether they take part in the producer's transaction; `add` has them do so. Raises Refused."""
        coordinator = self._coordinator(transactional_id)
        identity = producer_id, producer_epoch
        if not add:
            return await coordinator.verify(transactional_id, identity, partitions)
        await coordinator.add(transactional_id, identity, partitions, RAISES_EPOCH_SINCE)
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def verify_now(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Place],
        add: bool,
    ) -> dict[Place, ErrorCode] | None:
        """As `verify`, at once; None where that is not possible. Raises Refused."""
        identity = producer_id, producer_epoch
        found = self._coordinator(transactional_id).verify_now(transactional_id, identity, partitions)
        if add and found is not None and any(error is not ErrorCode.NONE for error in found.values()):
            return None
        return found

    async def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool, version: int
    ) -> Identity:
        """Commit or abort the producer's transaction; who it is from now on. Raises Refused."""
        coordinator = self._coordinator(transactional_id)
        return await coordinator.end(transactional_id, (producer_id, producer_epoch), commit, version)

    # --- what tools ask -------------------------------------------------------------------------------------

    def described(self, transactional_id: str) -> TransactionMetadata:
        """Where an id stands. Raises Refused."""
        found = self._coordinator(transactional_id).state.get(transactional_id)
        if found is None:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "the transactional id is not known")
        return found

    def listed(self) -> Iterator[tuple[str, TransactionMetadata]]:
        """Every id that is coordinated here. Raises Refused where that is not certain now."""
        coordinators = [each.require() for each in self._hosted.values() if each.group.is_leader]
        return ((name, each) for one in coordinators for name, each in one.state.ids.items())

    def coordinators(self) -> list[TransactionCoordinator]:
        """Those that serve here now."""
        return [each.coordinator for each in self._hosted.values() if each.serves]

    # --- within ---------------------------------------------------------------------------------------------

    def _coordinator(self, transactional_id: str) -> TransactionCoordinator:
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        topic = self._find()
        if topic is None:
            if self._is_foreign():
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, FOREIGN_TOPIC)
            raise Refused(ErrorCode.NOT_COORDINATOR, f"{TRANSACTION_STATE} is not there yet")
        group = topic.partitions[positive_hash(transactional_id) % len(topic.partitions)].group
        hosted = self._hosted.get(group.group_id)
        if hosted is None or not group.is_leader:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"log group {group.group_id} is not led here")
        return hosted.require()

    def _find(self) -> Topic | None:
        return self._cluster.topic_by_id(TRANSACTION_STATE_TOPIC_ID)

    def _is_foreign(self) -> bool:
        topic = self._cluster.topic(TRANSACTION_STATE)
        return topic is not None and topic.topic_id != TRANSACTION_STATE_TOPIC_ID

    def _partition(self, number: int, transactional_id: str) -> PartitionLog | None:
        topic = self._find()
        if topic is None:
            return None
        partition = topic.partitions[positive_hash(transactional_id) % len(topic.partitions)]
        group = partition.group  # of other nodes it has no log, and is led elsewhere
        return partition.log if group.group_id == number and group.is_leader else None
