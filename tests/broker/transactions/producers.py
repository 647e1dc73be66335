"""Transactional producers by hand, and readers of what is committed, on a cluster in this process.

producer = await Producer.of(cluster, "id")
await producer.add("t", 0, 1)
await producer.send("t", 0, b"value")
await producer.end(True)
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from lockstep.protocol.messages.end_txn import EndTxnRequest
from lockstep.protocol.messages.fetch import FetchResponse, PartitionData
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest
from lockstep.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from lockstep.protocol.records.batch import iter_headers
from lockstep.protocol.records.record import iter_records
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.wire import Client, batch, fetch_request, produce_request

AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
PATIENCE_SECONDS = 15.0
TRANSACTION = 1
"""FindCoordinator's type of key."""


class Producer:
    """One transactional id, in the first version of transactions. Make it with `of`."""

    def __init__(self, cluster: BrokerCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.producer_id = self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = defaultdict(int)
        self._clients: dict[int, Client] = {}

    @classmethod
    async def of(cls, cluster: BrokerCluster, name: str, timeout_ms: int = 60_000) -> Producer:
        """With an identity."""
        made = cls(cluster, name)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        answer = await made.asked(request, 4)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        made.producer_id, made.epoch = answer.producer_id, answer.producer_epoch
        return made

    async def coordinator(self) -> int:
        """The node that coordinates this id now."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.name])
        while True:
            answer: FindCoordinatorResponse = await (await self.client()).call(request, 4)
            (found,) = answer.coordinators
            if found.error_code == 0 and found.node_id in self.cluster.brokers:
                return found.node_id
            assert asyncio.get_running_loop().time() < deadline, ErrorCode(found.error_code)
            await asyncio.sleep(0.02)

    async def client(self, node_id: int | None = None) -> Client:
        """To a node; to any one by default."""
        wanted = min(self.cluster.brokers) if node_id is None else node_id
        broker = self.cluster.brokers[wanted]
        known = self._clients.get(wanted)
        if known is None or known.reader.at_eof():
            known = self._clients[wanted] = await Client.connect(broker.port)
        return known

    async def close(self) -> None:
        for each in self._clients.values():
            await each.close()

    async def asked(self, request: Struct, version: int) -> Any:
        """The coordinator's answer, when it has one."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            answer = None
            try:
                answer = await (await self.client(await self.coordinator())).call(request, version)
            except (ConnectionError, asyncio.IncompleteReadError, KeyError):
                self._clients.clear()
            if answer is not None and (getattr(answer, "error_code", 0) not in AGAIN):
                return answer
            assert asyncio.get_running_loop().time() < deadline, answer
            await asyncio.sleep(0.02)

    async def add(self, topic: str, *partitions: int) -> set[int]:
        """Take them into the transaction; the error codes."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            answer: AddPartitionsToTxnResponse = await self.asked(request, 3)
            (told,) = answer.results_by_topic_v3_and_below
            found = {each.partition_error_code for each in told.results_by_partition}
            if not found & AGAIN or asyncio.get_running_loop().time() > deadline:
                return found
            await asyncio.sleep(0.02)

    def data(self, topic: str, partition: int, *values: bytes) -> bytes:
        """The next batch for a partition."""
        sequence = self._sequences[topic, partition]
        self._sequences[topic, partition] += len(values)
        return batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def takes_back(self, topic: str, partition: int, count: int) -> None:
        """So many records were refused: their sequences are used again."""
        self._sequences[topic, partition] -= count

    def twin(self) -> Producer:
        """The same producer over connections of its own, as it would be with requests on the way."""
        made = Producer(self.cluster, self.name)
        made.producer_id, made.epoch = self.producer_id, self.epoch
        made._sequences = self._sequences.copy()
        return made

    def leader(self, topic: str, partition: int) -> int | None:
        """The node that leads a partition now."""
        found = next(iter(self.cluster.brokers.values())).assembly.cluster.partition(topic, partition)
        return None if found is None else self.cluster.leader_of(found.group.group_id)

    async def send(
        self, topic: str, partition: int, *values: bytes, version: int = 11, acks: int = -1
    ) -> PartitionProduceResponse:
        """Write a batch, again where that is what a client would do."""
        request = produce_request(topic, self.data(topic, partition, *values), partition, acks)
        request.transactional_id = self.name
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            leader = self.leader(topic, partition)
            if leader is not None:
                answer: ProduceResponse = await (await self.client(leader)).call(request, version)
                (told,) = answer.responses[0].partition_responses
                if told.error_code not in AGAIN:
                    return told
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)

    async def write(self, topic: str, partition: int, *values: bytes) -> None:
        """Both steps; both must be taken."""
        added = await self.add(topic, partition)
        assert added == {0}, added
        told = await self.send(topic, partition, *values)
        assert told.error_code == 0, ErrorCode(told.error_code)

    async def end(self, commit: bool) -> ErrorCode:
        """Commit or abort."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = await self.asked(request, 4)
        return ErrorCode(answer.error_code)


async def fetched(producer: Producer, topic: str, partition: int, *, committed: bool) -> PartitionData:
    """A partition from its start, from its leader. ConnectionError and the like where there is none."""
    leader = producer.leader(topic, partition)
    if leader is None:
        raise ConnectionError("no leader")
    client = await producer.client(leader)
    request = fetch_request({topic: {partition: 0}}, isolation_level=int(committed))
    answer: FetchResponse = await client.call(request, 12)
    return answer.responses[0].partitions[0]


async def committed(producer: Producer, topic: str, partition: int) -> list[bytes]:
    """The values that a reader of committed records sees."""
    data = await fetched(producer, topic, partition, committed=True)
    assert data.error_code in (0, *AGAIN), ErrorCode(data.error_code)
    raw = bytes(data.records or b"")  # type: ignore[arg-type]
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
    dropped: set[int] = set()
    found: list[bytes] = []
    for at, header in iter_headers(raw):
        while aborted and aborted[0][0] <= header.last_offset:
            dropped.add(aborted.pop(0)[1])
        if header.is_control:
            dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            found += [bytes(each.value or b"") for each in iter_records(raw, at)]
    return found
