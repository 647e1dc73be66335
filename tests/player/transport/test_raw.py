"""What is the raw transport's alone: bytes that are no frames, and connections that are nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lockstep.player.transport import frames, raw_server
from lockstep.player.transport.raw_server import RawServer
from lockstep.player.transport.raw_streams import RawStreams
from tests.player.transport.ends import PATIENCE_S, Heard, Target, batch, handshake
from tests.support.cases import each_case

HELLO = frames.hello_frame(handshake())
BATCH = frames.batch_frame(batch(0, b"one"))
MiB = 1 << 20


@asynccontextmanager
async def served(target: Target, **options: float) -> AsyncIterator[str]:
    server = RawServer(target, **options)  # type: ignore[arg-type]
    try:
        yield await server.start("127.0.0.1:0")
    finally:
        await server.close(0)


async def dialed(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def last_words(reader: asyncio.StreamReader) -> str:
    """What comes until the other side closes ends with why."""
    async with asyncio.timeout(PATIENCE_S):
        data = await reader.read()
    heard = Heard()
    while data:
        length = int.from_bytes(data[:4], "big")
        reason = frames.dispatch(memoryview(data)[4 : 4 + length], heard)
        data = data[4 + length :]
        if reason is not None:
            assert not data
            return reason
    return ""


@each_case(
    "sent, words",
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\n", "HTTP"),  # a player that speaks gRPC
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"\xff\xff\xff\xff", "negative"),
        (b"\x00\x00\x00\x00", "kind 0"),
        (b"\x00\x00\x00\x01\x63", "kind 99"),
        (HELLO[:4] + HELLO[4:].replace(b"lockstep", b"lockstop"), "no known version"),
        (BATCH, "the first message"),
        (frames.HEARTBEAT_FRAME, "the first message"),
        (HELLO + HELLO, "a second Hello"),
        (HELLO + frames.acknowledged_frame(1), "kind 6"),
        (HELLO + (5 * MiB).to_bytes(4, "big") + b"too much", "over the limit"),
    ],
)
async def test_garbage_ends_its_connection_alone(sent: bytes, words: str) -> None:
    target, heard = Target(), Heard()
    async with served(target) as address:
        streams = RawStreams()
        good = streams.open(address, handshake(), heard)
        await heard.told("greeted")
        reader, writer = await dialed(address)
        writer.write(sent)
        assert words in await last_words(reader)
        writer.close()
        good.write(batch(0, b"one"))
        assert await heard.told("acknowledged") == 1
        for each in target.served[1:]:
            await each.until_closed()
        await streams.close()


async def test_frames_that_come_whole_before_garbage_count() -> None:
    target = Target()
    async with served(target) as address:
        reader, writer = await dialed(address)
        writer.write(HELLO + BATCH + b"\xff\xff\xff\xff")
        assert "negative" in await last_words(reader)
        assert len((await target.serving()).batches) == 1
        writer.close()


async def test_no_hello() -> None:
    """Who has greeted may be silent for as long as it likes."""
    heard, streams = Heard(), RawStreams()
    async with served(Target(), hello_timeout_s=0.5) as address:
        stream = streams.open(address, handshake(), heard)
        await heard.told("greeted")
        reader, writer = await dialed(address)
        assert await last_words(reader) == "no Hello came"
        writer.close()
        stream.heartbeat()
        await heard.told("acknowledged")
        await streams.close()


async def test_a_frame_that_comes_byte_by_byte() -> None:
    target = Target()
    async with served(target) as address:
        _, writer = await dialed(address)
        for byte in HELLO + BATCH:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        session = await target.serving()
        await session.until(lambda: bool(session.batches))
        assert session.batches[0].parts[0].payload == b"one"
        writer.close()
        await session.until_closed()


async def test_what_follows_a_full_session_waits_for_room() -> None:
    """Also where all of it had come in one read."""
    target = Target()
    async with served(target) as address:
        _, writer = await dialed(address)
        writer.write(HELLO)
        session = await target.serving()
        session.room.clear()
        writer.write(b"".join(frames.batch_frame(batch(number, b"x")) for number in range(10)))
        writer.write(frames.HEARTBEAT_FRAME)
        await asyncio.sleep(0.05)
        assert not session.batches
        session.room.set()
        await session.until(lambda: session.heartbeats == 1)
        assert [each.last_position for each in session.batches] == list(range(1, 11))
        writer.close()


async def test_of_acknowledgements_that_cannot_be_sent_the_newest_is_kept() -> None:
    target = Target(acknowledges=False)
    async with served(target) as address:
        reader, writer = await dialed(address)
        writer.write(HELLO)
        session = await target.serving()
        count = 0
        responder = session.responder
        while not responder._is_paused:  # type: ignore[attr-defined]
            responder.acknowledge(count)
            count += 1
        for _ in range(1000):
            responder.acknowledge(count)
            count += 1
        last, came_bytes, end = frames.acknowledged_frame(count - 1), 0, b""
        async with asyncio.timeout(PATIENCE_S):
            while not end.endswith(last):
                data = await reader.read(1 << 20)
                came_bytes += len(data)
                end = (end + data)[-len(last) :]
        assert came_bytes // len(last) < count - 900
        writer.close()


async def test_more_streams_than_a_target_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_server, "MAX_STREAMS", 1)
    heard, more = Heard(), Heard()
    async with served(Target()) as address:
        streams = RawStreams()
        streams.open(address, handshake(1), heard)
        await heard.told("greeted")
        streams.open(address, handshake(2), more)
        assert "1 streams already" in str(await more.told("closed"))
        await streams.close()


@asynccontextmanager
async def saying(data: bytes) -> AsyncIterator[str]:
    """A listener that says so to whoever comes, and closes."""

    def said(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        writer.close()

    server = await asyncio.start_server(said, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@each_case("data", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\x63", b"HTTP/1.1 400 Bad Request\r\n"])
async def test_an_answer_that_is_none(data: bytes) -> None:
    heard, streams = Heard(), RawStreams()
    async with saying(data) as address:
        streams.open(address, handshake(), heard)
        assert "violates the protocol" in str(await heard.told("closed"))
    assert [kind for kind, _ in heard.all] == ["closed"]


async def test_a_failure_of_the_listener_is_reported_as_the_end() -> None:
    class Failing(Heard):
        def on_greeted(self, position: int) -> None:
            raise ZeroDivisionError

    heard, streams = Failing(), RawStreams()
    async with served(Target()) as address:
        streams.open(address, handshake(), heard)
        assert "ZeroDivisionError" in str(await heard.told("closed"))
        await streams.close()


async def test_an_address_that_is_none() -> None:
    heard, streams = Heard(), RawStreams()
    streams.open("nowhere", handshake(), heard)
    assert "neither host:port nor unix:/path" in str(await heard.told("closed"))
    await streams.close()
