"""A broker with client quotas: throttle times, connections that are not read meanwhile, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import uvloop

from lockstep.broker.network.connection import Connection
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.api_versions import ApiVersionsRequest
from lockstep.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lockstep.protocol.messages.list_groups import ListGroupsRequest
from lockstep.protocol.messages.metadata import MetadataRequest
from tests.broker.conftest import StartBroker, small_settings
from tests.broker.fakes import open_connections
from tests.broker.quotas.served import ADMIN, alter, describe, stop_clock
from tests.broker.waiting import until
from tests.broker.wire import Client, batch, fetch_request, frame, produce_request, records_of
from tests.support.cases import each_case

CLIENT: dict[str, str | None] = {"client-id": "test"}
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
LARGE = b"x" * 30_000


def connection_of(broker: Broker, client: Client) -> Connection:
    host, port = client.writer.get_extra_info("sockname")
    (found,) = [
        each
        for each in open_connections(broker.assembly.connections)
        if each.context.peer == f"{host}:{port}"
    ]
    return found


def is_paused(broker: Broker, client: Client) -> bool:
    connection = connection_of(broker, client)
    return bool(connection._pauses) and not connection._reading


def produce_throttle_ms(request: Any, limit: int) -> int:
    """Kafka's figure for a first request: its bytes in the ten seconds of empty samples before it."""
    return round(((len(frame(request, 9)) - 4) / 10 - limit) / limit * 10_000)


async def test_a_producer_over_its_quota_is_answered_at_once_and_then_not_read(
    broker: Broker, client: Client
) -> None:
    stop_clock(broker)
    await client.create("t")
    small, large = produce_request("t", batch(b"v")), produce_request("t", batch(LARGE))
    for _ in range(3):
        assert (await client.call(small, 9)).throttle_time_ms == 0
    assert connection_of(broker, client)._fast_requests is not None
    await alter(broker.port, CLIENT, producer_byte_rate=1_000)
    response = await client.call(large, 9)
    assert response.throttle_time_ms == produce_throttle_ms(large, 1_000) > 20_000
    assert response.responses[0].partition_responses[0].base_offset == 3
    assert is_paused(broker, client)

    sent = client.send(small, 9)
    other = await Client.connect(broker.port)
    assert (await other.call(small, 9, "other")).throttle_time_ms == 0
    assert (await other.fetch("t", 0)).high_watermark == 5, "the second request was not served meanwhile"

    await alter(broker.port, CLIENT, producer_byte_rate=None)
    correlation_id, response = await client.receive(small, 9)
    assert (correlation_id, response.throttle_time_ms) == (sent, 0)  # type: ignore[attr-defined]
    assert not is_paused(broker, client)
    counted = {key: value for key, value in broker.assembly.quotas.throttled_ms.items() if value}
    assert counted == {"producer_byte_rate": produce_throttle_ms(large, 1_000)}
    await other.close()


async def test_the_pause_ends_by_itself(broker: Broker, client: Client) -> None:
    now_ms = stop_clock(broker)
    await client.create("t")
    request = produce_request("t", batch(b"v"))
    await alter(broker.port, CLIENT, producer_byte_rate=10)
    size = len(frame(request, 9)) - 4
    assert (await client.call(request, 9)).throttle_time_ms == max(0, size * 100 - 10_000)
    now_ms[0] += 9_990
    response = await client.call(request, 9)  # a second later by the loop's clock at most
    assert response.throttle_time_ms > 0
    now_ms[0] += 60_000
    assert (await client.call(request, 9)).throttle_time_ms == max(0, size * 100 - 10_000)


async def test_requests_behind_the_one_over_the_quota_wait(broker: Broker, client: Client) -> None:
    stop_clock(broker)
    await client.create("t")
    await alter(broker.port, CLIENT, producer_byte_rate=1_000)
    large = produce_request("t", batch(LARGE))
    client.send(large, 9)
    client.send(MetadataRequest(topics=[]), 9)
    client.send(large, 9)
    _, response = await client.receive(large, 9)
    assert response.throttle_time_ms == produce_throttle_ms(large, 1_000)  # type: ignore[attr-defined]
    await until(lambda: is_paused(broker, client))
    await alter(broker.port, CLIENT, producer_byte_rate=1_000_000)
    await client.receive(MetadataRequest(topics=[]), 9)
    _, response = await client.receive(large, 9)
    assert response.throttle_time_ms == 0  # type: ignore[attr-defined]


async def test_without_acknowledgement_the_connection_is_not_read_either(
    broker: Broker, client: Client
) -> None:
    stop_clock(broker)
    await client.create("t")
    await alter(broker.port, CLIENT, producer_byte_rate=1_000)
    client.send(produce_request("t", batch(LARGE), acks=0), 9)
    await until(lambda: is_paused(broker, client))
    assert (await _fetched(broker, "t")).high_watermark == 1


async def test_a_client_that_closes_while_it_is_throttled_holds_no_connection(broker: Broker) -> None:
    stop_clock(broker)
    throttled = await Client.connect(broker.port)
    await throttled.create("t")
    await alter(broker.port, CLIENT, producer_byte_rate=1)
    await throttled.call(produce_request("t", batch(LARGE)), 9)
    assert is_paused(broker, throttled)
    await throttled.close()
    await until(lambda: len(broker.assembly.connections) == 0)
    assert len(broker.assembly.connections.throttles) == 0


async def test_what_it_has_sent_without_acknowledgement_is_not_lost(broker: Broker) -> None:
    stop_clock(broker)
    throttled = await Client.connect(broker.port)
    await throttled.create("t")
    await alter(broker.port, CLIENT, producer_byte_rate=1)
    for _ in range(3):
        throttled.send(produce_request("t", batch(LARGE), acks=0), 9)
    connection = connection_of(broker, throttled)
    await until(lambda: not connection._reading)
    await throttled.close()
    broker.assembly.connections.throttles._watch()
    await alter(broker.port, CLIENT, producer_byte_rate=None)
    await until(lambda: len(broker.assembly.connections) == 0)
    assert (await _fetched(broker, "t")).high_watermark == 3


async def _fetched(broker: Broker, topic: str) -> Any:
    other = await Client.connect(broker.port)
    response = await other.call(fetch_request({topic: {0: 0}}), 12, ADMIN)
    await other.close()
    return response.responses[0].partitions[0]


async def test_a_consumer_over_its_quota_gets_nothing_and_then_is_not_read(
    broker: Broker, client: Client
) -> None:
    now_ms = stop_clock(broker)
    await client.create("t")
    await client.produce("t", batch(LARGE))
    request = fetch_request({"t": {0: 0}}, session_epoch=0)
    for _ in range(2):
        first = await client.call(request, 12)
        assert first.throttle_time_ms == 0 and first.session_id > 0
    size = len(records_of(first.responses[0].partitions[0])[0].value or b"")
    assert size == len(LARGE)
    await alter(broker.port, CLIENT, consumer_byte_rate=1_000)
    sessions = len(broker.assembly.fetch_sessions)
    throttled = await client.call(request, 12)
    assert (throttled.responses, throttled.session_id, throttled.error_code) == ([], 0, 0)
    assert 20_000 < throttled.throttle_time_ms < 21_000
    assert is_paused(broker, client) and len(broker.assembly.fetch_sessions) == sessions

    client.send(request, 12)
    assert (await _fetched(broker, "t")).records, "another client is not affected"
    await alter(broker.port, CLIENT, consumer_byte_rate=5_000)
    _, response = await client.receive(request, 12)
    assert response.responses and response.throttle_time_ms == 0  # type: ignore[attr-defined]
    again = await client.call(request, 12)
    assert again.responses == [] and again.throttle_time_ms > 0, "what was got counts, what was not does not"
    assert now_ms == [1_000_000]


async def test_a_session_goes_on_behind_an_empty_response(broker: Broker, client: Client) -> None:
    stop_clock(broker)
    await client.create("t", 2)
    opened = await client.call(fetch_request({"t": {0: 0, 1: 0}}, session_epoch=0), 12)
    await client.produce("t", batch(b"small"), 1)
    await client.produce("t", batch(LARGE), 0)
    await alter(broker.port, CLIENT, consumer_byte_rate=1_000)

    def next_request(epoch: int) -> Any:
        return fetch_request({}, session_id=opened.session_id, session_epoch=epoch)

    throttled = await client.call(next_request(1), 12)
    assert (throttled.responses, throttled.session_id) == ([], opened.session_id)
    assert throttled.throttle_time_ms > 0
    await alter(broker.port, CLIENT, consumer_byte_rate=None)
    response = await client.call(next_request(2), 12)
    found = {each.partition_index: each.high_watermark for each in response.responses[0].partitions}
    assert found == {0: 1, 1: 1}, "nothing of what was not sent counts as sent"


async def test_a_fetch_that_waits_counts_when_it_has_something(broker: Broker, client: Client) -> None:
    stop_clock(broker)
    await client.create("t")
    request = fetch_request({"t": {0: 0}}, max_wait_ms=60_000)
    client.send(request, 12)
    await until(lambda: broker.assembly.fetch_purgatory.count == 1)
    await alter(broker.port, CLIENT, consumer_byte_rate=1)
    connection = connection_of(broker, client)
    assert connection._fast_requests is not None
    waiting = await Client.connect(broker.port)
    waiting.send(request, 12)
    await until(lambda: broker.assembly.fetch_purgatory.count == 2)
    producer = await Client.connect(broker.port)
    await producer.call(produce_request("t", batch(LARGE)), 9, ADMIN)
    _, response = await waiting.receive(request, 12)
    assert response.responses == [] and response.throttle_time_ms > 0  # type: ignore[attr-defined]
    await until(lambda: is_paused(broker, waiting))
    await waiting.close()
    await producer.close()


@each_case(
    ("request_", "version"),
    [
        (MetadataRequest(topics=[]), 9),
        (MetadataRequest(topics=None), 9),
        (ApiVersionsRequest(), 2),
        (ListGroupsRequest(), 4),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_the_time_of_any_request_counts(broker: Broker, request_: Any, version: int) -> None:
    stop_clock(broker)
    client = await Client.connect(broker.port)
    ticks = iter(range(1_000_000))
    broker.assembly.connections.throttles.clock = lambda: float(next(ticks))
    await alter(broker.port, CLIENT, request_percentage=5)
    assert (await client.call(request_, version)).throttle_time_ms == 1_000  # 10 % of the time, bounded
    assert is_paused(broker, client)
    await alter(broker.port, CLIENT, request_percentage=None)
    assert (await client.call(request_, version)).throttle_time_ms == 0
    await client.close()


def creation(*names: str, partitions: int = 1, validate_only: bool = False) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=each, num_partitions=partitions, replication_factor=1) for each in names]
    return CreateTopicsRequest(topics=topics, validate_only=validate_only)


async def test_partitions_beyond_the_quota_are_rejected_with_the_time_to_wait(
    broker: Broker, client: Client
) -> None:
    now_ms = stop_clock(broker)
    await alter(broker.port, CLIENT, controller_mutation_rate=1)  # eleven partitions at once
    response = await client.call(creation("a", "b", "c", partitions=8), 7)
    codes = [each.error_code for each in response.topics]
    assert (codes, response.throttle_time_ms) == ([0, 0, EXCEEDED], 5_000)
    assert response.topics[2].error_message is None
    assert is_paused(broker, client)
    other = await Client.connect(broker.port)
    older = await other.call(creation("d"), 5)
    assert ([each.error_code for each in older.topics], older.throttle_time_ms) == ([0], 6_000)
    await other.close()

    await alter(broker.port, CLIENT, controller_mutation_rate=1.5)
    now_ms[0] += 2_000  # three tokens: a debt of three is left
    growing = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=9, assignments=None)], timeout_ms=1_000
    )
    second = await Client.connect(broker.port)
    response = await second.call(growing, 3)
    assert ([each.error_code for each in response.results], response.throttle_time_ms) == ([EXCEEDED], 2_000)
    third = await Client.connect(broker.port)
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1_000)
    response = await third.call(deletion, 6)
    assert ([each.error_code for each in response.responses], response.throttle_time_ms) == (
        [EXCEEDED],
        2_000,
    )
    now_ms[0] += 2_000
    for each in (second, third):
        await each.close()
    fourth = await Client.connect(broker.port)
    assert (await fourth.call(growing, 3)).results[0].error_code == 0
    await fourth.close()


async def test_connections_above_the_rate_of_their_address_are_closed(broker: Broker) -> None:
    stop_clock(broker)
    await alter(broker.port, {"ip": "127.0.0.1"}, connection_creation_rate=1)
    accepted = [await Client.connect(broker.port) for _ in range(10)]
    for each in accepted:
        await each.call(ApiVersionsRequest(), 0)
    refused = await Client.connect(broker.port)
    await asyncio.sleep(0)
    assert await refused.is_closed()
    await accepted[0].call(ApiVersionsRequest(), 0)
    for each in (*accepted, refused):
        await each.close()


def served_at_once(port: int, connections: int) -> int:
    """How many new connections get a response to the request that they begin with."""
    served = 0
    for _ in range(connections):
        with socket.create_connection(("127.0.0.1", port)) as connected:
            connected.sendall(frame(ApiVersionsRequest(), 0))
            connected.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                served += bool(connected.recv(1))
    return served


def test_a_connection_too_many_is_not_served_what_it_sends_at_once(tmp_path: Path) -> None:
    """On the loop of `lockstep serve`, which reads before it calls what a new connection has scheduled."""

    async def run() -> int:
        broker = Broker(small_settings(tmp_path))
        await broker.start()
        try:
            stop_clock(broker)
            await alter(broker.port, {"ip": "127.0.0.1"}, connection_creation_rate=1)
            return await asyncio.to_thread(served_at_once, broker.port, 12)
        finally:
            await broker.stop()

    assert uvloop.run(run()) == 10


async def test_quotas_survive_a_restart(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker()
    await alter(broker.port, {"user": "ANONYMOUS"}, producer_byte_rate=1_000, consumer_byte_rate=5)
    await alter(broker.port, {"user": "ANONYMOUS"}, consumer_byte_rate=None)
    await alter(broker.port, {"ip": None}, connection_creation_rate=50)
    await broker.stop()
    again = await start_broker()
    stop_clock(again)
    client = await Client.connect(again.port)
    assert await describe(client) == {
        (("user", "ANONYMOUS"),): {"producer_byte_rate": 1_000},
        (("ip", None),): {"connection_creation_rate": 50},
    }
    await client.create("t")
    large = produce_request("t", batch(LARGE))
    assert (await client.call(large, 9)).throttle_time_ms == produce_throttle_ms(large, 1_000)
    await client.close()
