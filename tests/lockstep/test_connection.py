"""One connection: versions agreed on, answers matched, and peers that misbehave told in words."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from lockstep.kafka_client.connection import (
    BrokerConnection,
    ClientError,
    ConnectionFailed,
    TimedOut,
    Unsupported,
    _format_seconds,
)
from lockstep.protocol.api import ApiKey, read_request_header, response_header
from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import FetchRequest, FetchResponse
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from lockstep.testing import RunningBroker
from tests.protocol.peers import Answer, api_versions
from tests.support.cases import each_case


@asynccontextmanager
async def peer(answer: Answer) -> AsyncIterator[int]:
    """A server that frames requests and answers each as told; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                header, _ = read_request_header(memoryview(await reader.readexactly(size)))
                frame = answer(header.api_key, header.api_version, header.correlation_id)
                if frame == b"":
                    break
                if frame is not None:
                    writer.write(struct.pack(">i", len(frame)) + frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.sockets[0].setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16
    )  # the kernel enlarges it no more
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def raw_peer(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def agreeing(key: int, version: int, correlation_id: int) -> bytes | None:
    if key == ApiKey.API_VERSIONS:
        return response_header(key, version, correlation_id) + encode_bytes(api_versions(), version)
    return None


async def agreed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the first request as `agreeing` says."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    header, _ = read_request_header(memoryview(await reader.readexactly(size)))
    frame = agreeing(header.api_key, header.api_version, header.correlation_id)
    assert frame is not None
    writer.write(struct.pack(">i", len(frame)) + frame)


async def test_versions_with_a_real_broker(running: RunningBroker) -> None:
    connection = await BrokerConnection.open("localhost", running.port)
    assert connection.versions[ApiKey.METADATA] == (0, 13)
    assert connection.version_of(MetadataRequest) == 13
    answers = await asyncio.gather(
        *(connection.call(MetadataRequest(topics=[]), MetadataResponse) for _ in range(50))
    )
    assert all(answer == answers[0] for answer in answers)
    connection.close()
    assert not connection.is_open
    with pytest.raises(ConnectionFailed, match="is closed"):
        await connection.call(MetadataRequest(topics=[]), MetadataResponse)


async def test_an_older_broker_gets_requests_in_its_version() -> None:
    seen = []

    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        seen.append(version)
        if version > 2:
            refusal = api_versions(key_18_max=2, error=ErrorCode.UNSUPPORTED_VERSION)
            return struct.pack(">i", correlation_id) + encode_bytes(refusal, 0)
        return struct.pack(">i", correlation_id) + encode_bytes(api_versions(2, (0, 5)), version)

    async with peer(answer) as port:
        connection = await BrokerConnection.open("127.0.0.1", port)
        assert seen == [4, 2]
        assert connection.version_of(MetadataRequest) == 5
        with pytest.raises(Unsupported, match="speaks nothing of FETCH"):
            await connection.call(FetchRequest(), FetchResponse)
        connection.close()


async def test_a_broker_that_refuses_every_version() -> None:
    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        refusal = api_versions(key_18_max=4, error=ErrorCode.UNSUPPORTED_VERSION)
        return struct.pack(">i", correlation_id) + encode_bytes(refusal, 0)

    async with peer(answer) as port:
        with pytest.raises(Unsupported, match="API_VERSIONS"):
            await BrokerConnection.open("127.0.0.1", port)


async def test_an_api_whose_versions_do_not_meet() -> None:
    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        return struct.pack(">i", correlation_id) + encode_bytes(api_versions(metadata=(14, 20)), version)

    async with peer(answer) as port:
        connection = await BrokerConnection.open("127.0.0.1", port)
        with pytest.raises(Unsupported, match="speaks versions 14 to 20 of METADATA, this client 0 to 13"):
            await connection.call(MetadataRequest(topics=[]), MetadataResponse)
        connection.close()


async def test_nobody_there() -> None:
    with pytest.raises(
        ConnectionFailed, match=r"localhost:1: connection refused; is a broker running there\?"
    ):
        await BrokerConnection.open("localhost", 1)
    with pytest.raises(ConnectionFailed, match=r"cannot connect to no-such-host\.invalid:9092"):
        await BrokerConnection.open("no-such-host.invalid", 9092)


async def test_no_answer_closes_the_connection_and_fails_all_that_wait() -> None:
    async with peer(agreeing) as port:
        connection = await BrokerConnection.open("127.0.0.1", port)
        request = MetadataRequest(topics=[])
        patient = asyncio.ensure_future(connection.call(request, MetadataResponse, timeout_s=60))
        with pytest.raises(TimedOut, match=r"did not respond in 0\.05 s"):
            await connection.call(request, MetadataResponse, timeout_s=0.05)
        with pytest.raises(TimedOut):
            await patient
        assert not connection.is_open


async def test_a_broker_that_hangs_up() -> None:
    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        return agreeing(key, version, correlation_id) or b""

    async with peer(answer) as port:
        connection = await BrokerConnection.open("127.0.0.1", port)
        with pytest.raises(ConnectionFailed, match="closed the connection"):
            await connection.call(MetadataRequest(topics=[]), MetadataResponse)


@each_case(
    ("said", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol: HTTP"),
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"\x7f\xff\xff\xff", "over the limit"),
        (b"\xff\xff\xff\xff", "negative"),
        (b"\0\0\0\x01x", "1 byte response"),
        (b"\0\0\0\x05\0\0\0\0x", "cannot be read"),
        (b"\0\0\0\x04\0\0\0\0", "cannot be read"),
    ],
)
async def test_peers_that_are_no_brokers(said: bytes, words: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(said)
        await reader.read()
        writer.close()

    async with raw_peer(serve) as port:
        with pytest.raises(ClientError, match=words):
            await BrokerConnection.open("127.0.0.1", port)


async def test_an_answer_to_nothing_ends_the_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        header, _ = read_request_header(memoryview(await reader.readexactly(size)))
        stray = struct.pack(">i", header.correlation_id + 1000) + b"stray"
        writer.write(struct.pack(">i", len(stray)) + stray)
        await reader.read()
        writer.close()

    async with raw_peer(serve) as port:
        with pytest.raises(ClientError, match="which no pending request has"):
            await BrokerConnection.open("127.0.0.1", port)


async def test_a_cancelled_call_harms_no_other(running: RunningBroker) -> None:
    connection = await BrokerConnection.open("localhost", running.port)
    calls = [
        asyncio.ensure_future(connection.call(MetadataRequest(topics=[]), MetadataResponse))
        for _ in range(10)
    ]
    await asyncio.sleep(0)
    calls[3].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[3], asyncio.CancelledError)
    assert all(isinstance(result, MetadataResponse) for number, result in enumerate(results) if number != 3)
    connection.close()


async def test_a_call_that_is_cancelled_when_its_answer_is_there(running: RunningBroker) -> None:
    connection = await BrokerConnection.open("localhost", running.port)
    call = asyncio.create_task(connection.call(MetadataRequest(topics=[]), MetadataResponse))
    await asyncio.sleep(0)
    assert connection._protocol.pending
    while connection._protocol.pending:  # noqa: ASYNC110
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await connection.call(MetadataRequest(topics=[]), MetadataResponse)).brokers
    connection.close()


async def test_a_peer_that_takes_nothing_is_given_up() -> None:
    over = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await agreed(reader, writer)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await over.wait()
        writer.close()

    async with raw_peer(deaf) as port:
        connection = await BrokerConnection.open("127.0.0.1", port, timeout_s=0.3)
        wire = connection._open_wire()
        large = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 30_000)])
        while wire._paused is None:
            connection.send(large)
        with pytest.raises(TimedOut, match=r"taken nothing for 0\.3 s"):
            await connection.drain()
        with pytest.raises(ClientError):
            await connection.drain()
        over.set()


async def test_drained_is_when_nothing_is_left_to_be_sent() -> None:
    read_on, over, received = asyncio.Event(), asyncio.Event(), 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await agreed(reader, writer)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await read_on.wait()
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        while some := await reader.read(1 << 20):
            received += len(some)
        over.set()
        writer.close()

    async with raw_peer(slow) as port:
        connection = await BrokerConnection.open("127.0.0.1", port)
        wire = connection._open_wire()
        large = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 30_000)])
        count = 0
        while not wire.transport.get_write_buffer_size():  # what the kernel takes
            connection.send(large)
            count += 1
        draining = asyncio.ensure_future(connection.drain())
        await asyncio.sleep(0.05)
        assert 0 < wire.transport.get_write_buffer_size() < 1 << 16 and not draining.done()
        read_on.set()
        await draining
        assert wire.transport.get_write_buffer_size() == 0
        connection.close()
        await asyncio.wait_for(over.wait(), 10)
        assert received > count * 30_000


@each_case(
    ("timeout_s", "text"), [(0.05, "0.05"), (1.25, "1.2"), (29.998, "30"), (99.6, "100"), (120.0, "120")]
)
def test_a_timeout_is_printed_with_two_digits_or_in_whole_seconds(timeout_s: float, text: str) -> None:
    assert _format_seconds(timeout_s) == text
