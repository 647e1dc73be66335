"""The `transactions` workload: producers write to several partitions at once or not at all; consumers of
committed records read from any node.

Each client is its own coordinator: it decides, and has the group's leader end the transaction in all
partitions with one frame, as the broker's coordinator does where everything is in its group. Half of the
clients have transactions of version 2, whose markers raise the epoch. A batch that has to be verified waits a
while before it is tried again, so that markers come between; and some requests to end come twice, late.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lockstep.broker.fetch.aborted_transactions import aborted_transactions
from lockstep.broker.produce.append_result import (
    AppendResult,
    VerificationGuardMismatch,
    VerificationRequired,
)
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.types import NotLeader, OffsetOutOfRange, StorageError
from tests.sim.checks.clients import Write
from tests.sim.checks.history import History, group_of
from tests.sim.checks.transactions import Transaction, Transactions
from tests.sim.faces import Check, Unanswered
from tests.sim.workloads.appends import Appends
from tests.sim.workloads.asking import BACKOFF_S, Elsewhere, InDoubt, commit, must_lead, on_node
from tests.sim.workloads.consuming import FETCH_BYTES, Consumer, Fetched, is_whole, serves
from tests.sim.workloads.producing import (
    FOR_GOOD,
    LIMITS,
    PRODUCE_VERSION,
    TRANSIENT,
    PlainProducer,
    Producer,
    _stands,
)

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

TRANSACTIONAL_ID = "of the simulator"
TOO_LATE = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
"""What a batch hears whose transaction has ended."""


class GuardMismatch(RequestError):
    """The transaction ended during its verification."""


async def produce(node: Node, transaction: Transaction, number: int, data: bytes, delay_s: float) -> int:
    """As broker/produce/api/produce.py with its gate: a batch that may begin a transaction is verified
    first."""
    must_lead(node)
    group = group_of(node)
    partition = group.partitions.get(number)
    if partition is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, f"partition {number}")
    appender = node.memory["appender"]
    try:
        appended = appender.append_transactional(partition, data, LIMITS, PRODUCE_VERSION, TRANSACTIONAL_ID)
        if isinstance(appended, VerificationRequired):
            if transaction.is_commit is not None:
                raise RequestError(ErrorCode.INVALID_TXN_STATE, "it ends, or has ended")
            term = group.term
            await asyncio.sleep(delay_s)
            must_lead(node)
            if group.term != term or group.partitions.get(number) is not partition:
                raise Elsewhere(-1)
            appended = appender.append_transactional(
                partition,
                data,
                LIMITS,
                PRODUCE_VERSION,
                TRANSACTIONAL_ID,
                verified=True,
                guard=appended.guard,
            )
            if isinstance(appended, VerificationGuardMismatch):
                error = appended.error()
                raise GuardMismatch(error.error, error.message)
        assert isinstance(appended, AppendResult)
    except RequestError as refusal:
        if refusal.error in TRANSIENT or refusal.error in FOR_GOOD:
            raise
        await _stands(node, group)
        raise
    await commit(node)
    return appended.base_offset


async def end(node: Node, transaction: Transaction, version: int) -> None:
    """As a coordinator whose group has all partitions; before version 2 it must know what has ended."""
    must_lead(node)
    if version < 2 and transaction.is_over:
        return
    group = group_of(node)
    partitions = [group.partitions[each] for each in sorted(transaction.numbers) if each in group.partitions]
    marker = TxnMarkerEntry(
        transaction.producer_id,
        transaction.marker_epoch,
        group.term,
        transaction.is_commit is True,
        version,
    )
    try:
        node.memory["appender"].end_transactions(partitions, marker)
    except NotLeader:
        raise Elsewhere(-1) from None
    except RequestError:
        await _stands(node, group)
        raise
    await commit(node)


async def fetch_committed(
    node: Node, workload: TransactionalAppends, number: int, offset: int, max_bytes: int
) -> Fetched:
    """As broker/fetch/api/fetch.py for read_committed."""
    group = group_of(node)
    partition = group.partitions.get(number)
    if partition is None or not serves(group):
        return Fetched(False, offset, 0)
    History.of(node.world).changed(node)
    end = partition.last_stable_offset
    if offset < partition.log_start_offset or offset >= end:
        return Fetched(True, offset, partition.log_start_offset)
    try:
        result = group.read(partition, offset, max_bytes, end)
        if result.cold:
            result = await group.read_cold(partition, offset, max_bytes, end)
            if not is_whole(group):
                return Fetched(False, offset, 0)
    except OffsetOutOfRange:
        return Fetched(True, offset, partition.log_start_offset)
    aborted = aborted_transactions(partition, offset, result.buffers)
    after = workload.readers.fetched(node, number, offset, result.buffers)
    workload.transactions.read(node, number, offset, result.buffers, aborted)
    return Fetched(True, after, partition.log_start_offset)


class CommittedConsumer(Consumer):
    """Reads what is committed, on whichever node."""

    async def one(self) -> None:
        running, numbers = self._world.running(), sorted(self._workload.numbers.values())
        if running and numbers:
            try:
                await self.poll(self._random.choice(running), self._random.choice(numbers))
            except (Unanswered, StorageError, OSError):
                self._finder.lost()

    async def poll(self, node: Node, number: int) -> int:
        position, max_bytes = self._positions.get(number, 0), self._random.choice(FETCH_BYTES)
        workload = self._workload
        asked = on_node(fetch_committed, workload, number, position, max_bytes)
        got = await self._world.ask(node, asked, 5.0)
        if got.there:
            position = max(position, got.log_start_offset, got.next_offset)
            self._positions[number] = position
        return position


class TransactionalProducer(Producer):
    """One transaction after the other, each in some of the partitions."""

    def __init__(self, workload: TransactionalAppends, name: str, producer_id: int) -> None:
        super().__init__(workload, name)
        self._transactions = workload.transactions
        self._producer_id = producer_id
        self._version = self._random.choice((1, 2))
        self._epoch = 0
        self._sequences: dict[int, int] = {}
        self._late: list[asyncio.Task[None]] = []

    async def one(self) -> None:
        """Write, and end it; now and then without waiting for what was written, which is then aborted."""
        random = self._random
        transaction = Transaction(self._producer_id, self._epoch, self._epoch + (self._version == 2))
        self._transactions.begin(transaction)
        hasty = random.random() < 0.2
        for _ in range(random.choice((1, 2, 3, 5))):
            if not self._workload.numbers:
                break
            number = self._workload.numbers[random.choice(sorted(self._workload.numbers))]
            task = self._world.clients.create_task(self._write(transaction, number, hasty), name=self._name)
            if hasty:
                self._late.append(task)
                await asyncio.sleep(random.random() * 0.02)
            else:
                await task
            if random.random() < 0.1:
                await asyncio.sleep(random.random())
        transaction.is_commit = not hasty and random.random() < 0.6
        await self._end(transaction)
        if hasty or self._version == 2:
            self._epoch += 1
            self._sequences.clear()

    async def _write(self, transaction: Transaction, number: int, is_hasty: bool) -> None:
        transaction.numbers.add(number)
        sequence = self._sequences.get(number, 0)
        data, value = self.some_batch(
            producer_id=self._producer_id,
            producer_epoch=transaction.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self._sequences[number] = sequence + int.from_bytes(data[57:61], "big")
        await self._send(transaction, self._workload.clients.begin(data, value), number, is_hasty)

    async def _send(self, transaction: Transaction, write: Write, number: int, is_hasty: bool) -> None:
        """Until it is acknowledged, or its transaction ends without it, or its partition is gone."""
        while True:
            error = await self._try(transaction, write, number)
            if error is ErrorCode.NONE:
                return
            if error is ErrorCode.UNKNOWN_TOPIC_ID or (error in TOO_LATE and transaction.is_commit is False):
                self._workload.clients.refused(write)
                return
            if transaction.is_over:
                return
            out_of_order = error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_hasty
            if not out_of_order and error is not ErrorCode.UNKNOWN_SERVER_ERROR and error not in TRANSIENT:
                text = f"{write} of partition {number}, {transaction}: {error.name}"
                self._world.violate("a good batch is taken", text)
            await self.back_off()

    async def _try(self, transaction: Transaction, write: Write, number: int) -> ErrorCode:
        delay_s = self._random.choice((0.0, 0.001, 0.3))
        try:
            asked = on_node(produce, transaction, number, write.data, delay_s)
            base_offset = await self._finder.ask(asked)
        except Elsewhere:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        except (InDoubt, Unanswered):
            write.doubtful = True
            return ErrorCode.UNKNOWN_SERVER_ERROR
        except RequestError as refusal:
            if refusal.error is ErrorCode.UNKNOWN_TOPIC_ID:
                self._workload.is_gone(number)
            return refusal.error
        self._workload.clients.acknowledged(write, number, base_offset)
        return ErrorCode.NONE

    async def _end(self, transaction: Transaction) -> None:
        """Until somebody says that it has ended."""
        while True:
            try:
                await self._finder.ask(on_node(end, transaction, self._version))
                break
            except (Elsewhere, InDoubt, Unanswered, StorageError):
                await asyncio.sleep(BACKOFF_S * (0.5 + self._random.random()))
            except RequestError as refusal:
                self._world.violate("a transaction must end", f"{transaction}: {refusal}")
        self._transactions.over(transaction)
        if self._random.random() < 0.2:
            self._late.append(self._world.clients.create_task(self._end_again(transaction), name=self._name))

    async def _end_again(self, transaction: Transaction) -> None:
        """A copy that comes late: it ends nothing of what has begun since."""
        await asyncio.sleep(self._random.random() * 2)
        with contextlib.suppress(Elsewhere, InDoubt, Unanswered, StorageError, RequestError):
            await self._world.ask(self._finder.guess(), on_node(end, transaction, self._version), 2.0)

    async def finish(self) -> None:
        """Wait for what was not waited for."""
        for task in self._late:
            await task


class TransactionalAppends(Appends):
    """See the module."""

    name = "transactions"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.transactions = Transactions(world)

    def checks(self) -> Sequence[Check]:
        return *super().checks(), self.transactions

    async def _produce(self, number: int) -> None:
        random = self.world.random(f"client c{number}")
        if number % 3 == 2:
            plain = PlainProducer(self, f"c{number}")
            while await self._thinks(random.expovariate(1.0)):
                if self.numbers:
                    await plain.one(self.numbers[random.choice(sorted(self.numbers))])
            return
        producer = TransactionalProducer(self, f"c{number}", 1000 + number)
        while await self._thinks(random.expovariate(1.0)):
            if self.numbers:
                await producer.one()
        await producer.finish()

    async def _consume(self, number: int) -> None:
        random = self.world.random(f"consuming {number}")
        consumer, committed = Consumer(self, str(number)), CommittedConsumer(self, f"{number}, committed")
        while await self._thinks(random.expovariate(1.0)):
            await consumer.one()
            await committed.one()

    async def settle(self) -> None:
        """What is committed comes from every node, and all of it is."""
        await super().settle()
        for node in self.world.members():
            consumer = CommittedConsumer(self, f"last {node.node_id}, committed")
            for index in sorted(self.numbers):
                await consumer.read_to_the_end(node, self.numbers[index])
