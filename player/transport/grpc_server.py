"""gRPC on a target's side: the service of `player/player.proto`, over any `Sessions`.

Invariants: a stream's messages are handed to its session in order; nothing is read while the session has no
room; of the pending acknowledgements only the newest is sent. A message that is malformed, or out of its
place, ends its stream with INVALID_ARGUMENT, and no other. `on_closed` is the last call to a session.
Does not: encrypt, know terms, or store anything.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

import grpc

from lockstep.player.core.messages import Batch
from lockstep.player.transport import wire
from lockstep.player.transport.addresses import parse_address, with_port
from lockstep.player.transport.grpc_streams import METHOD, SERVICE
from lockstep.player.transport.interface import Handshake, Malformed, Session, Sessions
from lockstep.player.transport.limits import (
    HELLO_TIMEOUT_S,
    KEEPALIVE_S,
    MAX_REASON_CHARS,
    MAX_STREAMS,
    MESSAGE_BYTES,
)
from lockstep.player.transport.sockets import bind_all, describe_bind_error, literal_addresses

logger = logging.getLogger(__name__)

Status = tuple[grpc.StatusCode, str]
COMPLETED = (grpc.StatusCode.OK, "")
END_OF_STREAM: object = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs
STOPPING = (grpc.StatusCode.UNAVAILABLE, "the target is stopping")


class GrpcServer:
    """See the module; implements `Server`.

    Args:
        message_bytes: a larger message ends its stream (RESOURCE_EXHAUSTED).
        hello_timeout_s: a stream without a Hello by then is ended.
        credentials: of TLS; None for none.
    """

    def __init__(
        self,
        sessions: Sessions,
        message_bytes: int = MESSAGE_BYTES,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self._credentials = credentials
        self.sessions = sessions
        self.hello_timeout_s = hello_timeout_s
        self._message_bytes = message_bytes
        self._streams: set[_Stream] = set()
        self._server: Any = None

    async def start(self, address: str) -> str:
        parsed = parse_address(address)  # gRPC takes more: a host alone, and a port modulo 65536
        options = [
            ("grpc.max_receive_message_length", self._message_bytes),
            ("grpc.so_reuseport", 0),  # two targets at one address would share the players between them
            ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_S * 1000),
            ("grpc.http2.max_pings_without_data", 0),  # no limit
        ]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_STREAMS)
        play = grpc.stream_stream_rpc_method_handler(self._play)  # bytes both ways
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: play}),))
        try:
            found = _bind(server, address, parsed, self._credentials)
        except OSError as error:
            await server.stop(None)
            raise describe_bind_error(address, error) from error
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
            await context.abort(code, words[:MAX_REASON_CHARS])


def _bind(
    server: Any,
    address: str,
    parsed: str | tuple[str, int],
    credentials: grpc.ServerCredentials | None,
) -> str:
    """Makes gRPC bind every address of the host at one port; returns the address with it. Raises OSError.

    By itself gRPC is content with one of them, and only its own log has the error of the others.
    """
    addresses = [address] if isinstance(parsed, str) else literal_addresses(bind_all(*parsed))
    if len(addresses) == 1:
        addresses = [address]  # a port 0 is gRPC's to choose then
    for each in addresses:
        try:
            port: int = (
                server.add_insecure_port(each)
                if credentials is None
                else server.add_secure_port(each, credentials)
            )
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, "gRPC cannot bind it") from error
    return with_port(address, port)


class _Stream:
    """One call: this task writes, another one reads. Implements `Responder`."""

    __slots__ = (
        "_acknowledged",
        "_context",
        "_final_message",
        "_response",
        "_server",
        "_session",
        "_status",
        "_wakeup",
    )

    def __init__(self, server: GrpcServer, context: Any) -> None:
        self._server = server
        self._context = context
        self._session: Session | None = None
        # Pending messages, sent in this order.
        self._response: bytes | None = None
        self._acknowledged: int | None = None
        self._final_message: bytes | None = None
        self._status: Status | None = None
        self._wakeup: asyncio.Future[None] | None = None
        """Set while nothing is to be sent."""

    # --- Responder ----------------------------------------------------------------------------------------

    def accept(self, position: int) -> None:
        self._response = wire.greeted_bytes(position)
        self._wake()

    def reject(self, player_term: int, target_term: int) -> None:
        if self._status is None:
            self._final_message = wire.stale_bytes(player_term, target_term)
            self.finish(COMPLETED)

    def acknowledge(self, position: int) -> None:
        self._acknowledged = position
        self._wake()

    def end(self, reason: str) -> None:
        self.finish((grpc.StatusCode.ABORTED, reason))

    # --- internal -----------------------------------------------------------------------------------------

    def finish(self, status: Status) -> None:
        """Send the pending messages, then this status; the first one counts."""
        if self._status is None:
            self._status = status
            self._wake()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def run(self) -> Status:
        """Run until there is a status to end the call with. Cancelled where the player has disconnected."""
        reading = asyncio.get_running_loop().create_task(self._read())
        try:
            return await self._write()
        except grpc.aio.BaseError:
            return COMPLETED  # the player has disconnected
        finally:
            reading.cancel()  # from here on the session gets no message
            try:
                await asyncio.wait((reading,))
            finally:  # the player's end may be noticed, and cancel this, while it waits
                if self._session is not None:
                    self._session.on_closed()

    async def _write(self) -> Status:
        write = self._context.write
        while True:
            if self._response is not None:
                message, self._response = self._response, None
                await write(message)
            elif self._acknowledged is not None:
                position, self._acknowledged = self._acknowledged, None
                await write(wire.acknowledged_bytes(position))
            elif self._final_message is not None:
                message, self._final_message = self._final_message, None
                await write(message)
            elif self._status is not None:
                return self._status
            else:
                self._wakeup = asyncio.get_running_loop().create_future()
                await self._wakeup

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
        """Receive until the player ends the stream. Raises Malformed, TimeoutError."""
        read = self._context.read
        async with asyncio.timeout(self._server.hello_timeout_s):
            data = await read()
        if data is END_OF_STREAM:
            return COMPLETED
        handshake = wire.from_player(data)
        if not isinstance(handshake, Handshake):
            raise Malformed("the first message of a stream is a Hello")
        session = self._session = self._server.sessions.open_session(handshake, self)
        while self._status is None:
            if not session.has_room:
                await session.wait_for_room()
                continue
            data = await read()
            if data is END_OF_STREAM:
                return COMPLETED
            if self._status is not None:
                break
            message = wire.from_player(data)
            if isinstance(message, Batch):
                session.receive(message)
            elif message is None:
                session.heartbeat()
            else:
                raise Malformed("a second Hello on one stream")
        return COMPLETED
