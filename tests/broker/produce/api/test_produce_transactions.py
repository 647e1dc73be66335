"""Produce of transactional batches: some wait for a coordinator, and the response for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from lockstep.broker.server import Broker
from lockstep.broker.transactions.verification_client import Codes, TopicPartition, VerificationRequest
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.storage.types import NotLeader
from tests.broker.waiting import until
from tests.broker.wire import Client, batch

PRODUCER = 7


class Coordinator:
    """Stands in the way to coordinators: nothing is known at once, until `answers` say so."""

    def __init__(self) -> None:
        self.at_once: set[TopicPartition] = set()
        self.answers: dict[TopicPartition, asyncio.Future[ErrorCode]] = {}
        self.asked: list[TopicPartition] = []

    def verify_now(self, request: VerificationRequest, places: Sequence[TopicPartition]) -> Codes | None:
        if set(places) <= self.at_once:
            return dict.fromkeys(places, ErrorCode.NONE)
        return None

    async def verify(self, request: VerificationRequest, places: Sequence[TopicPartition]) -> Codes:
        self.asked += places
        return {each: await self.answers[each] for each in places}


@pytest.fixture
async def coordinator(broker: Broker, client: Client) -> AsyncIterator[Coordinator]:
    await client.create("t", 3)
    made = Coordinator()
    loop = asyncio.get_running_loop()
    made.answers = {("t", index): loop.create_future() for index in range(3)}
    broker.assembly.verification_queue._verification = made  # type: ignore[assignment]
    yield made


def request(*indexes: int, sequence: int = 0, acks: int = -1) -> ProduceRequest:
    data = batch(b"value", producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, transactional=True)
    parts = [PartitionProduceData(index=index, records=data) for index in indexes]
    return ProduceRequest(
        transactional_id="id",
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=parts)],
    )


async def answer(client: Client, wanted: ProduceRequest) -> list[tuple[int, int]]:
    """Error and offset of each partition."""
    _, response = await asyncio.wait_for(client.receive(wanted, 11), 10)
    assert isinstance(response, ProduceResponse)
    return [(each.error_code, each.base_offset) for each in response.responses[0].partition_responses]


async def test_the_response_waits_for_all(client: Client, coordinator: Coordinator) -> None:
    coordinator.at_once = {("t", 0)}
    wanted = request(0, 1, 2, 9)
    client.send(wanted, 11)
    await until(lambda: len(coordinator.asked) == 2)
    coordinator.answers["t", 1].set_result(ErrorCode.NONE)
    coordinator.answers["t", 2].set_result(ErrorCode.TRANSACTION_ABORTABLE)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await answer(client, wanted) == [
        (0, 0),
        (0, 0),
        (ErrorCode.TRANSACTION_ABORTABLE, -1),
        (unknown, -1),
    ]


async def test_answers_are_in_order_and_other_requests_go_on(
    broker: Broker, client: Client, coordinator: Coordinator
) -> None:
    first, second, plain = request(0), request(0, sequence=1), request(1)
    plain.topic_data[0].partition_data[0].records = batch(b"plain")
    plain.transactional_id = None
    for each in (first, second, plain):
        client.send(each, 11)
    plain_log = broker.assembly.cluster.partition("t", 1)
    assert plain_log is not None
    await until(lambda: plain_log.log.high_watermark == 1)
    coordinator.answers["t", 0].set_result(ErrorCode.NONE)
    assert [await answer(client, each) for each in (first, second, plain)] == [[(0, 0)], [(0, 1)], [(0, 0)]]


async def test_a_connection_that_closes_meanwhile(
    broker: Broker, client: Client, coordinator: Coordinator
) -> None:
    """What waits is appended all the same, as what a client did not wait for always is."""
    gone = await Client.connect(broker.port)
    gone.send(request(0), 11)
    await until(lambda: coordinator.asked)
    await gone.close()
    before = broker.assembly.verification_queue.waiting_bytes
    await asyncio.sleep(0.05)
    coordinator.answers["t", 0].set_result(ErrorCode.NONE)
    partition = broker.assembly.cluster.partition("t", 0)
    assert partition is not None
    await until(lambda: partition.log.high_watermark == 1)
    assert before > 0 and broker.assembly.verification_queue.waiting_bytes == 0
    assert (await client.produce("t", batch(b"next"), 1)).error_code == 0


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE])
async def test_acks_0(broker: Broker, client: Client, coordinator: Coordinator, code: ErrorCode) -> None:
    unanswered = await Client.connect(broker.port)
    unanswered.send(request(0, 1, acks=0), 11)
    await until(lambda: coordinator.asked)
    coordinator.answers["t", 0].set_result(ErrorCode.NONE)
    coordinator.answers["t", 1].set_result(code)
    if code is ErrorCode.NONE:
        assert (await unanswered.produce("t", batch(b"next"), 2)).base_offset == 0, "nothing came before"
    else:
        assert await unanswered.is_closed(), "as Kafka says it where there is no response"
    await unanswered.close()


async def test_a_commit_counts_from_its_append(
    broker: Broker, client: Client, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leadership goes and comes back while a coordinator is asked: what was appended before is lost."""
    coordinator.at_once = {("t", 0)}
    wanted = request(0, 1)
    waiters: list[Callable[[BaseException | None], None]] = []
    monkeypatch.setattr(broker.groups[1], "when_committed", waiters.append)
    client.send(wanted, 11)
    await until(lambda: coordinator.asked and waiters)
    waiters.pop()(NotLeader("lost"))
    coordinator.answers["t", 1].set_result(ErrorCode.NONE)
    await until(lambda: waiters)
    waiters.pop()(None)
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await answer(client, wanted) == [(moved, -1), (0, 0)]


async def test_a_stop_completes_waiting_requests(
    broker: Broker, client: Client, coordinator: Coordinator
) -> None:
    wanted = request(0)
    client.send(wanted, 11)
    await until(lambda: coordinator.asked)
    await asyncio.wait_for(broker.stop(), 10)
    assert await answer(client, wanted) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
