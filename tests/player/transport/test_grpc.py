"""What is gRPC's alone: statuses, and clients and servers that are not ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from lockstep.player.generated.player_pb2 import (
    Acknowledged,
    Batch,
    FromPlayer,
    FromTarget,
    Greeted,
    Heartbeat,
    Part,
)
from lockstep.player.generated.player_pb2 import Hello as WireHello
from lockstep.player.transport import wire
from lockstep.player.transport.grpc_server import GrpcServer
from lockstep.player.transport.grpc_streams import METHOD, SERVICE, GrpcStreams
from lockstep.player.transport.interface import Handshake, Responder
from tests.player.transport.ends import PATIENCE_S, Heard, Served, Target, batch, handshake
from tests.support.cases import each_case

PATH = "/lockstep.player.v1.Target/Play"
HELLO = FromPlayer(hello=WireHello(log_id="a", player_term=1, target_term=1, first_position=1))


@asynccontextmanager
async def called(target: Target, **options: float) -> AsyncIterator[Any]:
    """A call as a client in another language makes it, to a server of ours."""
    server = GrpcServer(target, **options)  # type: ignore[arg-type]
    address = await server.start("localhost:0")
    try:
        async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(PATIENCE_S):
            play: Any = channel.stream_stream(PATH, None, None)
            yield play()
    finally:
        await server.close(0)


async def status(call: Any) -> tuple[grpc.StatusCode, str]:
    """What the call ended with; it comes behind all answers."""
    with contextlib.suppress(grpc.RpcError):
        async for _ in call:
            pass
    return await call.code(), await call.details()


async def test_the_name_of_the_method_is_that_of_the_proto() -> None:
    assert f"/{SERVICE}/{METHOD}" == PATH


@each_case(
    "messages, words",
    [
        ([FromPlayer(heartbeat=Heartbeat())], "the first message"),
        ([FromPlayer(batch=Batch(parts=[Part(position=1)]))], "the first message"),
        ([FromPlayer()], "empty, or of a kind"),
        ([HELLO, HELLO], "a second Hello"),
        ([HELLO, FromPlayer(batch=Batch(previous_position=0))], "a batch without parts"),
    ],
)
async def test_a_message_out_of_its_place(messages: list[FromPlayer], words: str) -> None:
    target = Target()
    async with called(target) as call:
        for message in messages:
            await call.write(message.SerializeToString())
        code, details = await status(call)
        assert (code, words in details) == (grpc.StatusCode.INVALID_ARGUMENT, True), details
        for served in target.served:
            await served.until_closed()
            assert not served.batches


async def test_bytes_that_are_no_message() -> None:
    async with called(Target()) as call:
        await call.write(b"\xff\xff\xff\xff")
        code, details = await status(call)
        assert (code, details) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "4 bytes that are no message of a player",
        )


async def test_no_hello() -> None:
    """Who has greeted may be silent for as long as it likes."""
    heard = Heard()
    server = GrpcServer(Target(), hello_timeout_s=0.5)
    address = await server.start("localhost:0")
    streams = GrpcStreams()
    stream = streams.open(address, handshake(), heard)
    await heard.told("greeted")
    async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(PATIENCE_S):
        play: Any = channel.stream_stream(PATH, None, None)
        assert (await status(play()))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    stream.heartbeat()
    await heard.told("acknowledged")
    await streams.close()
    await server.close(0)


async def test_a_client_that_sends_no_more_is_done() -> None:
    target = Target()
    async with called(target) as call:
        await call.write(HELLO.SerializeToString())
        await call.done_writing()
        assert (await status(call))[0] is grpc.StatusCode.OK
        await (await target.serving()).until_closed()


async def test_a_client_that_sends_nothing_at_all() -> None:
    async with called(Target()) as call:
        await call.done_writing()
        assert (await status(call))[0] is grpc.StatusCode.OK


class Lingering(Served):
    """A session that takes its time when its wait for room is given up."""

    lingers = False

    async def wait_for_room(self) -> None:
        try:
            await super().wait_for_room()
        finally:
            self.lingers = True
            self.changed()
            await self.until(lambda: not self.lingers)


async def test_a_session_gets_the_end_though_the_call_is_cancelled_meanwhile() -> None:
    class Slow(Target):
        def open_session(self, handshake: Handshake, responder: Responder) -> Served:
            responder.accept(0)
            self.served.append(Lingering(handshake, responder, acknowledges=False))
            self.changed()
            return self.served[-1]

    target = Slow()
    async with called(target) as call:
        await call.write(HELLO.SerializeToString())
        served = await target.serving()
        assert isinstance(served, Lingering)
        served.room.clear()
        await call.write(wire.batch_bytes(batch(0, b"one")))
        await served.until(lambda: bool(served.batches))
        served.responder.end("enough")
        await served.until(lambda: served.lingers)
        call.cancel()
        await served.until_closed()
        served.lingers = False
        served.changed()


@asynccontextmanager
async def foreign(play: Any) -> AsyncIterator[str]:
    """A server as another language has it; its address."""
    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(play, FromPlayer.FromString, FromTarget.SerializeToString)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    port = server.add_insecure_port("localhost:0")
    await server.start()
    try:
        yield f"localhost:{port}"
    finally:
        await server.stop(0)


async def test_a_target_of_others() -> None:
    async def play(requests: AsyncIterator[FromPlayer], _: object) -> AsyncIterator[FromTarget]:
        async for request in requests:
            if request.HasField("hello"):
                yield FromTarget(greeted=Greeted(position=request.hello.first_position - 1))
            elif request.HasField("batch"):
                yield FromTarget(acknowledged=Acknowledged(position=request.batch.parts[-1].position))

    streams, heard = GrpcStreams(), Heard()
    async with foreign(play) as address:
        stream = streams.open(address, handshake(first_position=5), heard)
        assert await heard.told("greeted") == 4
        stream.write(batch(4, b"five", None))
        assert await heard.told("acknowledged") == 6
        await streams.close()


async def test_an_answer_that_is_none() -> None:
    async def play(requests: AsyncIterator[FromPlayer], _: object) -> AsyncIterator[FromTarget]:
        yield FromTarget()

    streams, heard = GrpcStreams(), Heard()
    async with foreign(play) as address:
        streams.open(address, handshake(), heard)
        assert "violates the protocol" in str(await heard.told("closed"))
        await streams.close()


async def test_a_failure_of_the_listener_is_reported_as_the_end() -> None:
    class Failing(Heard):
        def on_greeted(self, position: int) -> None:
            raise ZeroDivisionError

    target, heard = Target(), Failing()
    server = GrpcServer(target)
    address = await server.start("localhost:0")
    streams = GrpcStreams()
    streams.open(address, handshake(), heard)
    assert "ZeroDivisionError" in str(await heard.told("closed"))
    await streams.close()
    await server.close(0)


async def test_streams_share_a_connection_until_one_of_them_ends() -> None:
    target = Target()
    server = GrpcServer(target)
    address = await server.start("localhost:0")
    streams = GrpcStreams()
    ends = [Heard() for _ in range(3)]
    one, two = (streams.open(address, handshake(number), ends[number]) for number in range(2))
    assert one.connection is two.connection
    one.close()
    three = streams.open(address, handshake(3), ends[2])
    assert three.connection is not two.connection
    await ends[2].told("greeted")
    two.heartbeat()
    await ends[1].told("acknowledged")
    await streams.close()
    await server.close(0)


async def test_a_heartbeat_goes_between_two_batches_and_once() -> None:
    """However many were asked for while something else was being written."""
    seen: list[str | None] = []

    async def play(requests: AsyncIterator[FromPlayer], _: object) -> AsyncIterator[FromTarget]:
        async for request in requests:
            seen.append(request.WhichOneof("message"))
            if request.HasField("heartbeat"):
                yield FromTarget(acknowledged=Acknowledged(position=0))

    streams, heard = GrpcStreams(), Heard()
    async with foreign(play) as address:
        stream = streams.open(address, handshake(), heard)
        stream.heartbeat()
        stream.heartbeat()
        stream.write(batch(0, b"one"))
        stream.heartbeat()
        await heard.told("acknowledged")
        assert seen == ["hello", "batch", "heartbeat"]
        await streams.close()


def test_a_heartbeat_is_not_nothing() -> None:
    """An empty message in a oneof is there, or not."""
    assert wire.from_player(wire.HEARTBEAT) is None


@each_case("address", ["localhost", "localhost:99999"])
async def test_what_grpc_alone_would_take_for_an_address(address: str) -> None:
    """It would listen at the port 443, or at 99999 modulo 65536."""
    with pytest.raises(ValueError, match="neither host:port"):
        await GrpcServer(Target()).start(address)


async def test_where_nobody_can_listen_and_why() -> None:
    with pytest.raises(OSError, match=r"^cannot listen at no\.such\.host\.invalid:1: \w"):
        await GrpcServer(Target()).start("no.such.host.invalid:1")
