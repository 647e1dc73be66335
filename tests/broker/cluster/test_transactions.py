"""Transactions whose partitions lie in all log groups of a cluster, while leaders change hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer
from confluent_kafka import Producer as ConfluentProducer

from lockstep.broker.peers.peer_rpc import RequestKind
from lockstep.broker.transactions.transaction_records import TransactionState
from lockstep.broker.transactions.transaction_rules import LAST_EPOCH
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from lockstep.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.transactions.producers import Producer, committed, fetched

PARTITIONS = 3
"""One in each data group."""


class Gate:
    """Holds questions of one kind (or answers, `after`) back on every node until it is opened."""

    def __init__(self, cluster: BrokerCluster, kind: RequestKind, *, after: bool = False) -> None:
        self.held = 0
        """How many have come to it."""
        self.opened = asyncio.Event()
        self._after = after
        for broker in cluster.brokers.values():
            peer_rpc = broker.assembly.node._peer_rpc  # type: ignore[union-attr]
            peer_rpc.handlers[kind] = self._wrapped(peer_rpc.handlers[kind])

    def has_held(self, count: int) -> bool:
        """Whether so many have come to it."""
        return self.held == count

    def _wrapped(
        self, handler: Callable[[int, bytes], Awaitable[bytes]]
    ) -> Callable[[int, bytes], Awaitable[bytes]]:
        async def waiting(node_id: int, body: bytes) -> bytes:
            answer = await handler(node_id, body) if self._after else b""
            self.held += 1
            await self.opened.wait()
            return answer if self._after else await handler(node_id, body)

        return waiting


@pytest.fixture
async def cluster(start_cluster: StartCluster) -> BrokerCluster:
    """Three nodes; topic "t" has a partition in each data group."""
    return await three_nodes(start_cluster)


async def three_nodes(start_cluster: StartCluster, **settings: str) -> BrokerCluster:
    """The same, with settings."""
    made = await start_cluster(3, transaction_state_log_num_partitions="3", **settings)
    await made.settled()
    await (await made.client(1)).create("t", PARTITIONS)

    def everywhere() -> bool:
        found = [broker.assembly.cluster.topic("t") for broker in made.brokers.values()]
        return all(topic is not None and len(topic.partitions) == PARTITIONS for topic in found)

    await made.until(everywhere, "topic on every node")
    topic = made.brokers[1].assembly.cluster.topic("t")
    assert topic is not None and {each.group.group_id for each in topic.partitions} == {1, 2, 3}
    await made.until(lambda: {made.leader_of(group) for group in (1, 2, 3)} == {1, 2, 3}, "leader each")
    return made


@pytest.fixture
async def producer(cluster: BrokerCluster) -> AsyncIterator[Producer]:
    made = await Producer.of(cluster, "id")
    yield made
    await made.close()


async def seen(producer: Producer) -> list[list[bytes]]:
    """What readers of committed records see, by partition."""
    return [await committed(producer, "t", index) for index in range(PARTITIONS)]


async def comes_to_see(producer: Producer, *wanted: list[bytes]) -> None:
    """They come to see this, by partition."""

    async def holds() -> bool:
        return await seen(producer) == list(wanted)

    await producer.cluster.until(holds, f"{wanted} to be read")


def apart(producer: Producer) -> tuple[int, int]:
    """A partition outside the coordinator's log group, and that group's number."""
    image = producer.cluster.brokers[1].assembly.cluster
    own = producer.cluster.brokers[1].assembly.transactions.log_group_of(producer.name)
    topic = image.topic("t")
    assert topic is not None
    found = next(each for each in topic.partitions if each.group.group_id != own)
    return found.index, found.group.group_id


async def test_a_time_out_at_the_last_epoch_fences_whichever_nodes_lead(start_cluster: StartCluster) -> None:
    """KAFKA-20090, with the coordinator and the partitions' leaders on three nodes: the late abort brings
    another producer id, whose transaction is fenced by its time-out, too."""
    never = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "3600000"}
    cluster = await three_nodes(start_cluster, **never)
    producer = await Producer.of(cluster, "id", timeout_ms=1)
    node = cluster.brokers[await producer.coordinator()].assembly
    (coordinator,) = [
        each
        for each in node.transactions.coordinators()
        if each.group.group_id == node.transactions.log_group_of(producer.name)
    ]
    now = node.transactions.describe(producer.name)
    await coordinator._write(producer.name, now._replace(producer_epoch=LAST_EPOCH))
    producer.epoch = LAST_EPOCH

    async def is_aborted() -> bool:
        await node.transaction_expiration.abort_overdue()
        return node.transactions.describe(producer.name).state is TransactionState.COMPLETE_ABORT

    async def end(commit: bool) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=producer.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        response: EndTxnResponse = await producer.asked(request, 5)
        return response

    for index in range(PARTITIONS):
        await producer.write("t", index, b"first")
    await cluster.until(is_aborted, "abort by the coordinator")
    aborted = await end(False)
    assert (aborted.error_code, aborted.producer_epoch) == (ErrorCode.NONE, 0)
    assert aborted.producer_id != producer.producer_id
    assert (await end(True)).error_code == ErrorCode.PRODUCER_FENCED
    second = Producer(cluster, producer.name)
    second.producer_id, second.epoch = aborted.producer_id, aborted.producer_epoch
    await producer.close()
    producer = second
    for index in range(PARTITIONS):
        await producer.write("t", index, b"second")
    await cluster.until(is_aborted, "abort of the second")
    assert (await end(True)).error_code == ErrorCode.PRODUCER_FENCED
    await comes_to_see(producer, [], [], [])
    await producer.close()


async def test_commit_and_abort(producer: Producer) -> None:
    nothing: list[list[bytes]] = [[]] * PARTITIONS
    for index in range(PARTITIONS):
        await producer.write("t", index, b"c%d" % index)
    assert await seen(producer) == nothing
    for index in range(PARTITIONS):
        data = await fetched(producer, "t", index, committed=False)
        assert (data.high_watermark, data.last_stable_offset) == (1, 0)
    assert await producer.end(True) is ErrorCode.NONE
    await comes_to_see(producer, [b"c0"], [b"c1"], [b"c2"])
    for index in range(PARTITIONS):
        await producer.write("t", index, b"a%d" % index)
    assert await producer.end(False) is ErrorCode.NONE
    await producer.write("t", 1, b"d1")
    assert await producer.end(True) is ErrorCode.NONE
    await comes_to_see(producer, [b"c0"], [b"c1", b"d1"], [b"c2"])
    for index, end in enumerate((4, 6, 4)):
        data = await fetched(producer, "t", index, committed=True)
        assert (data.high_watermark, data.last_stable_offset) == (end, end)

    await refused(producer)
    producer.producer_id += 1_000_000
    told = await producer.send("t", 0, b"x")
    assert told.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.takes_back("t", 0, 3)  # another epoch begins at 0
    producer.producer_id -= 1_000_000
    producer.epoch += 1
    assert (await producer.send("t", 0, b"x")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def refused(producer: Producer) -> None:
    """A batch of no transaction, wherever its partition is led, in the words of its version."""
    for index in range(PARTITIONS):
        for version, error in ((11, ErrorCode.TRANSACTION_ABORTABLE), (9, ErrorCode.INVALID_TXN_STATE)):
            assert (await producer.send("t", index, b"late", version=version)).error_code == error
            producer.takes_back("t", index, 1)
        data = await fetched(producer, "t", index, committed=True)
        assert data.last_stable_offset == data.high_watermark


async def test_a_batch_after_the_end_of_its_transaction(producer: Producer) -> None:
    """KIP-890, part 1: it would begin one that nobody ends."""
    await refused(producer)
    for count, commit in enumerate((True, False, True)):
        for index in range(PARTITIONS):
            await producer.write("t", index, b"%d" % count)
        assert await producer.end(commit) is ErrorCode.NONE
        for index in range(PARTITIONS):
            await until_end(producer, index, 2 * count + 2)
        await refused(producer)
    await comes_to_see(producer, *([[b"0", b"2"]] * PARTITIONS))


async def test_a_batch_that_is_being_verified_when_its_transaction_ends(producer: Producer) -> None:
    """Its coordinator's yes is from before the end: the marker that came meanwhile counts.

    Transactions of the first version share an epoch: a marker is no repetition of the one before.
    """
    index, _ = apart(producer)
    answers = Gate(producer.cluster, RequestKind.VERIFY, after=True)
    end = 0
    for value in (b"one", b"two"):
        answers.opened.clear()
        assert await producer.add("t", index) == {0}
        late, held = producer.twin(), answers.held
        sending = asyncio.ensure_future(late.send("t", index, b"late", version=11))
        await producer.cluster.until(partial(answers.has_held, held + 1), "answer")
        assert await producer.end(False) is ErrorCode.NONE
        await until_end(producer, index, end := end + 1)
        assert not sending.done()
        answers.opened.set()
        assert (await sending).error_code == ErrorCode.INVALID_TXN_STATE
        data = await fetched(producer, "t", index, committed=True)
        assert data.last_stable_offset == data.high_watermark == end
        await late.close()
        await producer.write("t", index, value)
        assert await producer.end(False) is ErrorCode.NONE
        await until_end(producer, index, end := end + 2)


async def until_end(producer: Producer, index: int, end: int) -> None:
    """A partition of "t" comes to end there."""

    async def ended() -> bool:
        return (await fetched(producer, "t", index, committed=False)).high_watermark == end

    await producer.cluster.until(ended, f"end of {index} at {end}")


@pytest.mark.parametrize("how", ["transferred", "stopped"])
async def test_a_leader_goes_between_the_decision_and_the_markers(producer: Producer, how: str) -> None:
    cluster = producer.cluster
    for index in range(PARTITIONS):
        await producer.write("t", index, b"v%d" % index)
    index, group = apart(producer)
    leader, coordinator = cluster.leader_of(group), await producer.coordinator()
    assert leader is not None and leader != coordinator
    questions = Gate(cluster, RequestKind.MARKERS)
    assert await producer.end(True) is ErrorCode.NONE, "decided is decided"
    await cluster.until(lambda: questions.held > 0, "question about markers")
    assert await committed(producer, "t", index) == []
    if how == "stopped":
        await cluster.stop(leader)
    else:
        cluster.brokers[leader].groups[group].transfer_to_best()
        await cluster.until(lambda: cluster.leader_of(group) not in (None, leader), "other leader")
    questions.opened.set()
    await cluster.until(lambda: cluster.leader_of(group) is not None, "leader")
    await comes_to_see(producer, [b"v0"], [b"v1"], [b"v2"])
    await producer.write("t", index, b"next")
    assert await producer.end(True) is ErrorCode.NONE


async def test_a_coordinator_goes_between_the_decision_and_the_markers(producer: Producer) -> None:
    """The next one finishes what it finds."""
    cluster = producer.cluster
    for index in range(PARTITIONS):
        await producer.write("t", index, b"v%d" % index)
    own = cluster.brokers[1].assembly.transactions.log_group_of(producer.name)
    assert own is not None
    leader = cluster.leader_of(own)
    assert leader is not None
    questions = Gate(cluster, RequestKind.MARKERS)
    assert await producer.end(True) is ErrorCode.NONE
    await cluster.until(lambda: questions.held > 0, "question about markers")
    cluster.brokers[leader].groups[own].transfer_to_best()
    await cluster.until(lambda: cluster.leader_of(own) not in (None, leader), "other coordinator")
    questions.opened.set()
    await comes_to_see(producer, [b"v0"], [b"v1"], [b"v2"])
    await producer.write("t", 0, b"next")
    assert await producer.end(False) is ErrorCode.NONE
    await comes_to_see(producer, [b"v0"], [b"v1"], [b"v2"])


async def test_an_unacknowledged_identity_is_known_to_the_next_coordinator(producer: Producer) -> None:
    """KAFKA-20357, with a coordinator that is gone before its answer is heard."""
    cluster = producer.cluster
    own = cluster.brokers[1].assembly.transactions.log_group_of(producer.name)
    assert own is not None
    request = InitProducerIdRequest(
        transactional_id=producer.name,
        transaction_timeout_ms=60_000,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
    raised = await producer.asked(request, 4)
    assert (raised.error_code, raised.producer_epoch) == (0, producer.epoch + 1)
    leader = cluster.leader_of(own)
    assert leader is not None
    await cluster.stop(leader)
    again = await producer.asked(request, 4)
    assert (again.error_code, again.producer_epoch) == (0, producer.epoch + 1)
    assert await producer.coordinator() != leader


async def test_a_topic_is_deleted_between_the_decision_and_the_markers(producer: Producer) -> None:
    cluster = producer.cluster
    client = await cluster.client(1)
    await client.create("gone", PARTITIONS)
    await producer.write("t", 0, b"kept")
    for index in range(PARTITIONS):
        await producer.write("gone", index, b"gone")
    questions = Gate(cluster, RequestKind.MARKERS)
    assert await producer.end(True) is ErrorCode.NONE
    await cluster.until(lambda: questions.held > 0, "question about markers")
    await delete(cluster, "gone")
    questions.opened.set()
    await producer.write("t", 0, b"next")
    assert await producer.end(True) is ErrorCode.NONE
    await comes_to_see(producer, [b"kept", b"next"], [], [])


async def delete(cluster: BrokerCluster, name: str) -> None:
    client = await cluster.client(1)
    answer = await client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
    assert answer.responses[0].error_code == 0


async def test_leaders_change_all_the_time(cluster: BrokerCluster) -> None:
    """Producers that ask again as clients do notice nothing; each transaction is whole, or not there."""
    loop = asyncio.get_running_loop()
    until = loop.time() + 3.0
    ended: dict[bytes, bool] = {}

    async def work(number: int) -> None:
        producer = await Producer.of(cluster, f"worker {number}")
        count = 0
        while loop.time() < until:
            count += 1
            value = b"%d-%d" % (number, count)
            for index in range(PARTITIONS):
                await producer.write("t", index, value)
            ended[value] = count % 3 > 0
            assert await producer.end(ended[value]) is ErrorCode.NONE
        await producer.close()

    async def move() -> None:
        moves = 0
        while loop.time() < until:
            await asyncio.sleep(0.3)
            moves += 1
            leader = cluster.leader_of(1 + moves % 3)
            if leader is not None:
                cluster.brokers[leader].groups[1 + moves % 3].transfer_to_best()

    await asyncio.gather(move(), *(work(number) for number in range(4)))
    reader = Producer(cluster, "reader")
    wanted = sorted(value for value, commit in ended.items() if commit)
    assert wanted

    async def holds() -> bool:
        return [sorted(each) for each in await seen(reader)] == [wanted] * PARTITIONS

    await cluster.until(holds, "whole transactions")
    await reader.close()


# --- clients' own producers -----------------------------------------------------------------------------


async def test_producers_of_clients(cluster: BrokerCluster) -> None:
    await of_aiokafka(cluster)
    await (await cluster.client(1)).create("librdkafka", PARTITIONS)
    await of_confluent_kafka(cluster, "librdkafka")


async def of_confluent_kafka(cluster: BrokerCluster, topic: str) -> None:
    bootstrap = cluster.bootstrap_servers

    def produce() -> None:
        producer = ConfluentProducer({"bootstrap.servers": bootstrap, "transactional.id": "librdkafka"})
        producer.init_transactions(20)
        for round_, commit in enumerate((True, False, True)):
            producer.begin_transaction()
            for number in range(30):
                producer.produce(topic, b"%d-%d" % (round_, number), partition=number % PARTITIONS)
            if commit:
                producer.commit_transaction(20)
            else:
                producer.flush(20)
                producer.abort_transaction(20)

    def consume() -> set[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < 60:
            message = consumer.poll(20)
            assert message is not None and message.error() is None
            found.append(message.value() or b"")
        assert consumer.poll(0.3) is None
        consumer.close()
        assert len(found) == len(set(found))
        return set(found)

    await asyncio.to_thread(produce)
    expected = {b"%d-%d" % (round_, number) for round_ in (0, 2) for number in range(30)}
    assert await asyncio.to_thread(consume) == expected


async def of_aiokafka(cluster: BrokerCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="aiokafka")
    await producer.start()
    for round_, commit in enumerate((True, False, True)):
        await producer.begin_transaction()
        for number in range(30):
            await producer.send("t", b"%d-%d" % (round_, number), partition=number % PARTITIONS)
        if commit:
            await producer.commit_transaction()
        else:
            await producer.flush()
            await producer.abort_transaction()
    await producer.stop()
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    found = [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(60)]
    await consumer.stop()
    assert len(found) == len(set(found))
    assert set(found) == {b"%d-%d" % (round_, number) for round_ in (0, 2) for number in range(30)}
