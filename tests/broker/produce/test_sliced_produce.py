"""Produce requests whose batches take more than one turn of the loop."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lockstep.broker.metadata.metadata_cache import MetadataCache, Topic
from lockstep.broker.produce import sliced_produce
from lockstep.broker.produce.append_result import AppendResult
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.sliced_produce import SlicedProduce
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import PendingResponse
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.protocol.records.compression import Codec
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import NotLeader
from tests.broker.waiting import until
from tests.broker.wire import Client, batch
from tests.support import handmade_frames as handmade

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
VALUE = batch(b"value")


def request(*indexes: int, records: bytes = VALUE, acks: int = -1) -> ProduceRequest:
    parts = [PartitionProduceData(index=index, records=records) for index in indexes]
    topics = [TopicProduceData(name="t", partition_data=parts)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def outcomes(response: ProduceResponse) -> list[tuple[int, int]]:
    """Error and offset of each partition."""
    return [(each.error_code, each.base_offset) for each in response.responses[0].partition_responses]


async def answer(client: Client, wanted: ProduceRequest) -> list[tuple[int, int]]:
    _, response = await asyncio.wait_for(client.receive(wanted, 9), 10)
    assert isinstance(response, ProduceResponse)
    return outcomes(response)


async def watch(holds: list[float]) -> None:
    """Note how long each turn of the loop takes, in seconds of the process."""
    last = time.process_time()
    while True:
        await asyncio.sleep(0)
        now = time.process_time()
        holds.append(now - last)
        last = now


async def test_batches_that_must_be_opened_leave_others_their_turn(client: Client) -> None:
    """Each is small and honest; together they held the loop until the last of them was appended."""
    await client.create("t", 2, cleanup_policy="compact")
    count, batches = 10_000, 40
    records = gzip.compress(handmade.record(0, b"", b"") * count)
    data = handmade.batch(records, count, attributes=int(Codec.GZIP))
    assert len(data) < 1_000
    holds: list[float] = []
    watching = asyncio.ensure_future(watch(holds))
    response = await client.call(request(*[0, 1] * (batches // 2), records=data), 9)
    watching.cancel()
    assert outcomes(response) == [(0, number // 2 * count) for number in range(batches)]
    assert len([each for each in holds if each > 0.005]) > 10, "it was one, or two"


@pytest.mark.usefixtures("one_a_turn")
async def test_what_is_sent_behind_it_comes_behind_it(client: Client) -> None:
    await client.create("t", 2)
    first, second = (
        request(0, 1, 7, records=batch(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence))
        for sequence in (0, 1)
    )
    for each in (first, second):
        client.send(each, 9)
    assert await answer(client, first) == [(0, 0), (0, 0), (UNKNOWN, -1)]
    assert await answer(client, second) == [(0, 1), (0, 1), (UNKNOWN, -1)]
    assert (await client.produce("t", batch(b"next"))).base_offset == 2


@pytest.mark.usefixtures("one_a_turn")
async def test_of_a_client_that_has_gone_all_is_appended(broker: Broker, client: Client) -> None:
    """With acks=0 it had nothing to wait for."""
    await client.create("t", 20)
    gone = await Client.connect(broker.port)
    gone.send(request(*range(20), acks=0), 9)
    await gone.close()
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    await until(lambda: all(each.log.high_watermark == 1 for each in topic.partitions))
    connections = broker.assembly.connections
    assert connections is not None
    await until(lambda: len(connections) == 1 and connections.in_flight_bytes == 0)


@pytest.mark.usefixtures("one_a_turn")
async def test_an_unanswered_one_that_is_refused(broker: Broker, client: Client) -> None:
    await client.create("t", 2)
    unanswered = await Client.connect(broker.port)
    unanswered.send(request(0, 7, 1, acks=0), 9)
    assert await unanswered.is_closed()
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    assert [each.log.high_watermark for each in topic.partitions] == [1, 1], "as in one turn"


@pytest.mark.usefixtures("one_a_turn")
async def test_each_turn_is_waited_for(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leadership goes and comes back between two turns: only what was appended before is lost."""
    await client.create("t", 2, lockstep_group="1")
    waiters: list[Callable[[BaseException | None], None]] = []
    monkeypatch.setattr(broker.groups[1], "when_committed", waiters.append)
    wanted = request(0, 1)
    client.send(wanted, 9)
    await until(lambda: len(waiters) == 2)
    waiters[0](NotLeader("lost"))
    waiters[1](None)
    lost = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
    assert await answer(client, wanted) == [lost, (0, 0)], "what is committed is not sent again"
    monkeypatch.undo()  # the broker's end waits for commits


@pytest.mark.usefixtures("one_a_turn")
async def test_a_topic_that_goes_between_two_turns(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.create("t", 4)
    find, asked = MetadataCache.topic, itertools.count()

    def gone(cluster: MetadataCache, name: str) -> Topic | None:
        return find(cluster, name) if name != "t" or next(asked) < 2 else None

    monkeypatch.setattr(MetadataCache, "topic", gone)
    response = await client.call(request(0, 1, 2, 3), 9)
    assert outcomes(response) == [(0, 0), (0, 0), (UNKNOWN, -1), (UNKNOWN, -1)]


@pytest.mark.usefixtures("one_a_turn")
async def test_what_takes_too_long_is_refused_in_the_end(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sliced_produce, "MAX_SECONDS", 0.5)
    await client.create("t", 20)
    first, second = (
        batch(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in (0, 1)
    )
    codes = [code for code, _ in outcomes(await client.call(request(*range(20), records=first), 9))]
    appended = codes.count(0)
    assert codes == [0] * appended + [ErrorCode.REQUEST_TIMED_OUT] * (20 - appended)
    assert 0 < appended < 20
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await client.produce("t", second, 19)).error_code == out_of_order, "not in place of the first"
    assert (await client.produce("t", first, 19)).base_offset == 0


class Turned:
    """A request of which it is noted how it goes on."""

    def __init__(self) -> None:
        self.turns: list[bool] = []
        self.failure: Exception | None = None
        self.given_up: list[str] = []

    def on_slice_end(self, is_done: bool) -> None:
        self.turns.append(is_done)
        if self.failure is not None:
            raise self.failure

    def abort(self, why: str) -> None:
        self.given_up.append(why)


def shared_turns() -> TimeSlicer:
    return TimeSlicer(asyncio.get_running_loop().call_soon)


async def turns_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("one_a_turn")
async def test_a_connection_that_breaks_ends_the_work() -> None:
    taken: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(9):
            yield
            taken.append(number)

    work = Turned()
    later = SlicedProduce(shared_turns(), steps(), work, PendingResponse())
    await turns_of_the_loop(4)
    assert later.on_disconnect is not None
    assert 0 < len(taken) < 9
    seen = len(taken)
    later.on_disconnect()
    await turns_of_the_loop(4)
    assert len(taken) == seen
    assert not later.done and not any(work.turns)


async def test_done_and_failed() -> None:
    shared, inner = shared_turns(), PendingResponse()
    work = Turned()
    later = SlicedProduce(shared, iter([None, None]), work, inner)
    assert not later.done
    await turns_of_the_loop(1)
    assert (later.response, work.turns) == (inner, [True])
    work.failure = ZeroDivisionError("planted")
    later = SlicedProduce(shared, iter([None]), work, inner)
    await turns_of_the_loop(1)
    assert later.failure is work.failure
    assert work.given_up == []
    later.on_shutdown()
    assert work.given_up == ["this node is about to end"]


@pytest.mark.usefixtures("one_a_turn")
async def test_a_lost_leadership_ends_the_work(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request must come while its leader knows that it is new: a sequence that was refused must not
    be missing unnoticed (`broker/produce/appender.py`)."""
    await client.create("t", 6)
    append = Appender.append

    def refusing(appender: Appender, partition: PartitionLog, *rest: Any) -> AppendResult:
        if partition.index == 2:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "lost")
        return append(appender, partition, *rest)

    monkeypatch.setattr(Appender, "append", refusing)
    codes = [code for code, _ in outcomes(await client.call(request(*range(6)), 9))]
    late = ErrorCode.REQUEST_TIMED_OUT
    assert codes == [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, late, late, late]
