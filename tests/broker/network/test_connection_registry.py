"""All of a broker's connections: limits, a stop, failures that stay with one, few complaints."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from lockstep.broker.network.connection import Connection
from lockstep.broker.network.connection_registry import PRODUCE
from lockstep.broker.server import Broker
from lockstep.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.conftest import StartBroker
from tests.broker.network.rig import Rig, Transport, ask, large_ask
from tests.broker.waiting import until
from tests.broker.wire import Client, fetch_request


async def test_bytes_in_flight_over_all_connections(broker: Broker) -> None:
    rig = Rig(broker, max_in_flight_bytes=20)
    other = Connection(rig.shared, "PLAINTEXT")
    other.connection_made(Transport())  # type: ignore[arg-type]
    rig.receive(ask(1), ask(2), ask(3))
    assert rig.asked() == [1, 2]  # the second one goes over the limit, the third one waits
    request = ask(4)
    other.get_buffer(-1)[: len(request)] = request
    other.buffer_updated(len(request))
    assert rig.asked() == [1, 2]
    rig.answer(1)
    rig.answer(2)
    await asyncio.sleep(0)
    assert rig.asked() == [1, 2, 3, 4]


async def test_small_requests_do_not_wait_for_the_large_ones_of_others(broker: Broker) -> None:
    """Heartbeats and fetches did, for as long as producers of megabytes had all the room."""
    rig = Rig(broker, max_in_flight_bytes=10_000)
    other = Connection(rig.shared, "PLAINTEXT")
    other.connection_made(Transport())  # type: ignore[arg-type]

    def receive(request: bytes) -> None:
        other.get_buffer(-1)[: len(request)] = request
        other.buffer_updated(len(request))

    rig.receive(large_ask(1))
    rig.receive(large_ask(2))
    rig.receive(large_ask(3), ask(4))
    assert rig.asked() == [1, 2]  # what is behind a large one on its own connection stays there
    assert other._must_wait(memoryview(PRODUCE + bytes(100))), "what is written takes the room"
    receive(ask(5))
    assert rig.asked() == [1, 2, 5]
    rig.shared.on_request_start(2_500)
    receive(ask(6))
    assert rig.asked() == [1, 2, 5], "their room has an end, too"
    rig.shared.on_request_end(2_500)
    rig.answer(1)
    await asyncio.sleep(0)
    assert rig.asked() == [1, 2, 5, 3, 4, 6]


async def test_a_stop_takes_no_more_requests(broker: Broker) -> None:
    rig = Rig(broker)
    rig.receive(ask(1))

    async def stopped() -> None:
        await rig.shared.drain(2)
        await rig.shared.close(2)

    stop = asyncio.ensure_future(stopped())
    await asyncio.sleep(0)
    rig.connection.pause_writing()
    rig.connection.resume_writing()
    assert not rig.transport.reading
    rig.answer(1)
    assert await rig.sent() == [1]
    rig.connection.connection_lost(None)
    await stop


async def test_a_stop_waits_by_the_clock_and_not_by_turns_of_the_loop(broker: Broker) -> None:
    """Which take long while it works for many: it took eight times as long as it may."""
    rig = Rig(broker)
    rig.receive(ask(1))
    turns = 0

    async def busy() -> None:
        nonlocal turns
        while True:
            time.sleep(0.02)  # noqa: ASYNC251
            turns += 1
            await asyncio.sleep(0)

    work = asyncio.ensure_future(busy())
    await rig.shared.drain(0.2)
    work.cancel()
    assert turns <= 12, "of 40 looks"
    rig.connection.connection_lost(None)


async def test_an_answer_of_the_last_turn_is_sent_before_the_close(broker: Broker) -> None:
    rig = Rig(broker)
    rig.receive(ask(1), ask(2))
    rig.answer(1)
    stop = asyncio.ensure_future(rig.shared.close(60))
    assert await rig.sent() == [1] and rig.transport.closed
    rig.connection.connection_lost(None)
    await asyncio.wait_for(stop, 1)


async def test_a_slow_reader_of_responses_delays_no_other(broker: Broker) -> None:
    rig = Rig(broker)
    rig.receive(ask(1))
    rig.answer(1)
    assert await rig.sent() == [1]
    quick, rig.transport.unsent = Connection(rig.shared, "PLAINTEXT"), 1000
    transport = Transport()
    quick.connection_made(transport)  # type: ignore[arg-type]
    await asyncio.wait_for(rig.shared.drain(60), 1)
    stop = asyncio.ensure_future(rig.shared.close(60))
    await asyncio.sleep(0)
    assert transport.closed and not rig.transport.closed
    quick.connection_lost(None)
    rig.transport.unsent = 0
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert rig.transport.closed
    rig.connection.connection_lost(None)
    await asyncio.wait_for(stop, 1)


async def test_a_write_that_fails_is_its_connections_own(broker: Broker) -> None:
    rig = Rig(broker)
    other = Transport()
    healthy = Connection(rig.shared, "PLAINTEXT")
    healthy.connection_made(other)  # type: ignore[arg-type]
    rig.versions.now = ApiVersionsResponse()

    def broken(data: bytes) -> None:
        raise RuntimeError("planted: the transport is closed already")

    rig.transport.write = broken  # type: ignore[method-assign]
    rig.receive(ask(1))
    healthy.get_buffer(-1)[: len(ask(2))] = ask(2)
    healthy.buffer_updated(len(ask(2)))
    rig.shared.send_now()
    assert rig.transport.closed
    assert len(other.writes) == 1


async def test_complaints_are_few(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            rig = Rig(broker)
            rig.shared.log_client_error("someone", "again")
        for _ in range(200):
            rig.shared.log_client_error("someone", "and again")
    assert caplog.text.count("and again") <= 10


TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(190)


async def test_signs_of_another_protocol_are_logged_once_a_minute(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    peers = []
    for _ in range(3):
        client = await Client.connect(broker.port)
        peers.append("{}:{}".format(*client.writer.get_extra_info("sockname")))
        client.writer.write(TLS_HELLO)
        assert await client.is_closed()
    (line,) = [each for each in caplog.messages if "a TLS handshake on a plaintext port" in each]
    assert line.startswith(f"{peers[0]}: ")


async def test_idle_connections_are_closed(start_broker: StartBroker) -> None:
    broker = await start_broker(connections_max_idle_ms="300")
    idle = await Client.connect(broker.port)
    waiting = await Client.connect(broker.port)
    await waiting.create("t")
    waiting.send(fetch_request({"t": {0: 0}}, max_wait_ms=1500), 12)
    assert await idle.is_closed()
    _, response = await waiting.receive(fetch_request({}), 12)
    assert response.responses[0].partitions[0].error_code == 0  # type: ignore[attr-defined]


async def test_max_connections(start_broker: StartBroker) -> None:
    broker = await start_broker(max_connections="2")
    held = [await Client.connect(broker.port) for _ in range(2)]
    for each in held:
        await each.call(ApiVersionsRequest(), 0)
    one_more = await Client.connect(broker.port)
    assert await one_more.is_closed()
    assert len(broker.assembly.connections) == 2
    await held[0].close()
    await until(lambda: len(broker.assembly.connections) == 1, 60)
    again = await Client.connect(broker.port)
    await again.call(ApiVersionsRequest(), 0)


async def test_max_connections_per_ip(start_broker: StartBroker) -> None:
    broker = await start_broker(max_connections_per_ip="1")
    first = await Client.connect(broker.port)
    await first.call(ApiVersionsRequest(), 0)
    assert await (await Client.connect(broker.port)).is_closed()
