"""The client against a real broker."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lockstep.kafka_client.client import EARLIEST, LATEST, Client
from lockstep.kafka_client.connection import BrokerConnection, BrokerError, ConnectionFailed
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import iter_headers
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.testing import RunningBroker


def batch(*values: bytes, timestamp_ms: int | None = None, codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec)
    for value in values:
        builder.append(value, timestamp_ms=int(time.time() * 1000) if timestamp_ms is None else timestamp_ms)
    return builder.build()


async def test_produce_and_fetch(running: RunningBroker, topic: str) -> None:
    async with Client(running.bootstrap_servers) as client:
        made = await client.create_topic(topic, partitions=2)
        assert [partition.index for partition in made.partitions] == [0, 1]
        assert await client.produce(made, 0, batch(b"a", b"b")) == 0
        assert await client.produce(made, 0, batch(b"c", codec=Codec.ZSTD), acks=1) == 2
        assert await client.produce(made, 1, batch(b"d")) == 0
        found = {part.index: part for part in await client.fetch(made, {0: 1, 1: 0})}
        assert (found[0].high_watermark, found[1].high_watermark) == (3, 1)
        records = [
            (record.offset, record.value)
            for pos, _ in iter_headers(found[0].records)
            for record in iter_records(found[0].records, pos)
        ]
        assert records[-2:] == [(1, b"b"), (2, b"c")]


async def test_fetched_records_outlive_later_answers(running: RunningBroker, topic: str) -> None:
    async with Client(running.bootstrap_servers) as client:
        made = await client.create_topic(topic)
        for number in range(3):
            await client.produce(made, 0, batch(b"%d" % number * 20_000))
        kept = [(await client.fetch(made, {0: offset}))[0] for offset in range(3)]
        await client.topics()
        for offset, part in enumerate(kept):
            assert next(iter_records(part.records)).value == b"%d" % offset * 20_000


async def test_offsets_by_time(running: RunningBroker, topic: str) -> None:
    now = int(time.time() * 1000)
    async with Client(running.bootstrap_servers) as client:
        made = await client.create_topic(topic)
        for number in range(5):
            await client.produce(made, 0, batch(b"x", timestamp_ms=now - 5000 + number * 1000))
        assert await client.offsets(made, [0], EARLIEST) == {0: 0}
        assert await client.offsets(made, [0], LATEST) == {0: 5}
        assert await client.offsets(made, [0], now - 3500) == {0: 2}
        assert await client.offsets(made, [0], now + 60_000) == {0: -1}


async def test_an_empty_fetch_waits_and_returns(running: RunningBroker, topic: str) -> None:
    async with Client(running.bootstrap_servers) as client:
        made = await client.create_topic(topic)
        began = time.perf_counter()
        (part,) = await client.fetch(made, {0: 0}, max_wait_ms=100)
        assert bytes(part.records) == b"" and part.high_watermark == 0
        assert 0.05 < time.perf_counter() - began < 5


async def test_refusals(running: RunningBroker, topic: str) -> None:
    async with Client(running.bootstrap_servers) as client:
        made = await client.create_topic(topic)
        with pytest.raises(BrokerError) as caught:
            await client.fetch(made, {0: 17})
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        with pytest.raises(BrokerError) as caught:
            await client.produce(made, 0, batch(b"x")[:-1] + b"!")
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
        with pytest.raises(BrokerError) as caught:
            await client.produce(made, 5, batch(b"x"))
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await client.delete_topic(topic)
        with pytest.raises(BrokerError, match="there is no such topic"):
            await client.topic(topic)


async def test_a_broker_that_failed_is_tried_last(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be there and hang."""
    port = running.bootstrap_servers.rpartition(":")[2]
    asked: list[str] = []
    real = Client._connect

    async def connect(client: Client, host: str, port: int, within_s: float) -> BrokerConnection:
        asked.append(host)
        return await real(client, host, port, within_s)

    monkeypatch.setattr(Client, "_connect", connect)
    async with Client(f"localhost:{port},127.0.0.1:{port}") as client:
        for _ in range(3):
            (await client.any_broker()).close()
    assert asked == ["localhost", "127.0.0.1", "localhost"]


async def test_brokers_are_tried_in_turn(running: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    real, names = BrokerConnection.open, ("a:1", "a:2", "b:1", "c:1")
    asked: list[str] = []

    async def opened(host: str, port: int, **more: Any) -> BrokerConnection:
        asked.append(f"{host}:{port}")
        connection = await real("localhost", running.port, **more)
        connection.host, connection.port = host, port
        return connection

    monkeypatch.setattr(BrokerConnection, "open", opened)
    async with Client(",".join(names)) as client:
        for _ in range(5):
            await client.any_broker()
            await client.any_broker()
            client.suspect()
    assert asked == [*names, "a:1"]


async def test_a_newly_chosen_broker_is_not_suspected_with_its_predecessor(
    running: RunningBroker,
) -> None:
    async with Client(f"localhost:{running.port},127.0.0.1:{running.port}") as client:
        first = await client.any_broker()
        client.suspect(60.0)
        assert await client.any_broker() is first
        client.suspect()
        assert await client.any_broker() is not first


async def test_all_topics_are_requested_from_another_broker_on_an_error(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = BrokerConnection.call, 0

    async def call(connection: BrokerConnection, request: Any, *more: Any, **named: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            connection.close()
        return await real(connection, request, *more, **named)

    monkeypatch.setattr(BrokerConnection, "call", call)
    async with Client(f"localhost:{running.port},127.0.0.1:{running.port}") as client:
        await client.topics()
    assert asked == 2


async def test_the_first_broker_of_a_list_that_answers(running: RunningBroker) -> None:
    async with Client(f"localhost:1, {running.bootstrap_servers}") as client:
        await client.topics()
    async with Client("localhost:1,localhost:2") as client:
        with pytest.raises(ConnectionFailed, match="localhost:1"):
            await client.topics()
