"""gRPC on a target's side: the service of `player/player.proto`, for whatever takes the streams.

Invariants: what a stream brings is told in its order; nothing is read while its session wants no more; of the
acknowledgements that wait to be sent only the newest is. A message that is malformed, or out of its place,
ends its stream with INVALID_ARGUMENT, and no other. `closed` is the last a session hears, whoever ended it.
Does not: encrypt, know terms, or store anything.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

import grpc

from player.core.messages import Batch
from player.transport import wire
from player.transport.addresses import bound, split
from player.transport.grpc_streams import METHOD, SERVICE
from player.transport.limits import DEAD_S, HELLO_TIMEOUT_S, LONGEST_REASON, MESSAGE_BYTES, MOST_STREAMS
from player.transport.seam import Greeting, Malformed, Session, Sessions
from player.transport.sockets import bind_all, in_words, literal_addresses

logger = logging.getLogger(__name__)

Status = tuple[grpc.StatusCode, str]
OVER = (grpc.StatusCode.OK, "")
END_OF_STREAM: object = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs forgot it
STOPPING = (grpc.StatusCode.UNAVAILABLE, "the target is stopping")


class GrpcServer:
    """See the module; the seam is `Server`.

    Args:
        message_bytes: a larger message ends its stream (RESOURCE_EXHAUSTED).
        hello_timeout_s: a stream that has not greeted by then is ended.
    """

    def __init__(
        self,
        sessions: Sessions,
        message_bytes: int = MESSAGE_BYTES,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
    ) -> None:
        self.sessions = sessions
        self.hello_timeout_s = hello_timeout_s
        self._message_bytes = message_bytes
        self._streams: set[_Stream] = set()
        self._server: Any = None

    async def start(self, address: str) -> str:
        where = split(address)  # gRPC takes more: a host alone, and a port modulo 65536
        options = [
            ("grpc.max_receive_message_length", self._message_bytes),
            ("grpc.so_reuseport", 0),  # two targets at one address would share the players between them
            ("grpc.keepalive_time_ms", DEAD_S * 1000),
            ("grpc.keepalive_timeout_ms", DEAD_S * 1000),
            ("grpc.http2.max_pings_without_data", 0),  # as many as it takes
        ]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_STREAMS)
        play = grpc.stream_stream_rpc_method_handler(self._play)  # bytes both ways
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: play}),))
        try:
            found = _bind(server, address, where)
        except OSError as error:
            await server.stop(None)
            raise in_words(address, error) from error
        await server.start()
        self._server = server
        return found

    async def close(self, grace_s: float = 5.0) -> None:
        for stream in list(self._streams):
            stream.finish(STOPPING)
        if self._server is not None:
            await self._server.stop(grace_s)

    async def _play(self, _: object, context: Any) -> None:
        stream = _Stream(self, context)
        self._streams.add(stream)
        try:
            status = await stream.run()
        finally:
            self._streams.discard(stream)
        code, words = status
        if code is not grpc.StatusCode.OK:
            await context.abort(code, words[:LONGEST_REASON])


def _bind(server: Any, address: str, where: str | tuple[str, int]) -> str:
    """Have gRPC bind every address of the host at one port; the address with that port. Raises OSError.

    By itself gRPC is content with one of them, and tells its own log alone why it has not the others.
    """
    addresses = [address] if isinstance(where, str) else literal_addresses(bind_all(*where))
    if len(addresses) == 1:
        addresses = [address]  # a port 0 is gRPC's to choose then
    for each in addresses:
        try:
            port: int = server.add_insecure_port(each)
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, "gRPC cannot bind it") from error
    return bound(address, port)


class _Stream:
    """One call: this task writes, another one reads. The seam is `Answers`."""

    __slots__ = ("_acknowledged", "_context", "_first", "_last", "_room", "_server", "_session", "_status")

    def __init__(self, server: GrpcServer, context: Any) -> None:
        self._server = server
        self._context = context
        self._session: Session | None = None
        # What is to be sent, in this order.
        self._first: bytes | None = None
        self._acknowledged: int | None = None
        self._last: bytes | None = None
        self._status: Status | None = None
        self._room: asyncio.Future[None] | None = None
        """Nothing is to be sent."""

    # --- the seam -----------------------------------------------------------------------------------------

    def greeted(self, position: int) -> None:
        self._first = wire.greeted_bytes(position)
        self._wake()

    def stale(self, player_term: int, target_term: int) -> None:
        if self._status is None:
            self._last = wire.stale_bytes(player_term, target_term)
            self.finish(OVER)

    def acknowledge(self, position: int) -> None:
        self._acknowledged = position
        self._wake()

    def end(self, reason: str) -> None:
        self.finish((grpc.StatusCode.ABORTED, reason))

    # --- within -------------------------------------------------------------------------------------------

    def finish(self, status: Status) -> None:
        """Send what is to be sent, then this; the first one counts."""
        if self._status is None:
            self._status = status
            self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def run(self) -> Status:
        """Until there is a status to end the call with. Cancelled where the player is gone."""
        reading = asyncio.get_running_loop().create_task(self._read())
        try:
            return await self._write()
        except grpc.aio.BaseError:
            return OVER  # nobody is there to be told anything
        finally:
            reading.cancel()  # from here on it tells the session nothing
            try:
                await asyncio.wait((reading,))
            finally:  # the player's end may be noticed, and cancel this, while it waits
                if self._session is not None:
                    self._session.closed()

    async def _write(self) -> Status:
        write = self._context.write
        while True:
            if self._first is not None:
                message, self._first = self._first, None
                await write(message)
            elif self._acknowledged is not None:
                position, self._acknowledged = self._acknowledged, None
                await write(wire.acknowledged_bytes(position))
            elif self._last is not None:
                message, self._last = self._last, None
                await write(message)
            elif self._status is not None:
                return self._status
            else:
                self._room = asyncio.get_running_loop().create_future()
                await self._room

    async def _read(self) -> None:
        try:
            status = await self._receive()
        except Malformed as error:
            status = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        except TimeoutError:
            status = grpc.StatusCode.DEADLINE_EXCEEDED, "no Hello came"
        except Exception as error:
            logger.exception("a target's session failed")
            status = grpc.StatusCode.INTERNAL, f"the target failed: {error!r}"
        self.finish(status)

    async def _receive(self) -> Status:
        """Until the player sends no more. Raises Malformed, TimeoutError."""
        read = self._context.read
        async with asyncio.timeout(self._server.hello_timeout_s):
            data = await read()
        if data is END_OF_STREAM:
            return OVER
        greeting = wire.from_player(data)
        if not isinstance(greeting, Greeting):
            raise Malformed("the first message of a stream is a Hello")
        session = self._session = self._server.sessions.greet(greeting, self)
        while self._status is None:
            if not session.wants_more:
                await session.wait_for_room()
                continue
            data = await read()
            if data is END_OF_STREAM:
                return OVER
            if self._status is not None:
                break
            message = wire.from_player(data)
            if isinstance(message, Batch):
                session.receive(message)
            elif message is None:
                session.heartbeat()
            else:
                raise Malformed("a second Hello on one stream")
        return OVER
