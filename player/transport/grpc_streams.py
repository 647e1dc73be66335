"""gRPC on the player's side: a call for each stream, a connection for each address while it works.

Invariants: one write at a time; a batch is written when gRPC has taken it for sending, which its flow
control delays; a heartbeat goes between two batches. A stream that failed, or was aborted, takes its
connection out of use, so that the next one reconnects instead of waiting for a dead peer, and gRPC's own
backoff never delays a player. Does not: retry, or detect failures (the player's heartbeats do).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable
from typing import Any, cast

import grpc

from lockstep.player.core.messages import Batch
from lockstep.player.generated.player_pb2 import DESCRIPTOR
from lockstep.player.transport import wire
from lockstep.player.transport.interface import Handshake, Malformed, StreamEvents, too_large
from lockstep.player.transport.limits import MESSAGE_BYTES

log = logging.getLogger("lockstep.player")

SERVICE: str = DESCRIPTOR.services_by_name["Target"].full_name
METHOD = "Play"


class GrpcStreams:
    """See the module; implements `Streams`. Addresses are gRPC's: `host:port`, `unix:/path`.

    Args:
        message_bytes: a larger batch ends its stream instead of being sent; a target has a limit of its own.
        credentials: of TLS; None for none.
    """

    def __init__(
        self, message_bytes: int = MESSAGE_BYTES, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        self._message_bytes = message_bytes
        self._credentials = credentials
        self._connections: dict[str, _Connection] = {}
        """The connections for new streams."""
        self._streams: set[GrpcStream] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def open(self, address: str, handshake: Handshake, events: StreamEvents) -> GrpcStream:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = _Connection(
                address, self._message_bytes, self._credentials
            )
        stream = GrpcStream(connection.call(), handshake, events, self._message_bytes, self._on_close)
        stream.connection = connection
        connection.streams += 1
        self._streams.add(stream)
        return stream

    def _on_close(self, stream: GrpcStream) -> None:
        self._streams.discard(stream)
        connection = stream.connection
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
        connection.streams -= 1
        if not connection.streams:
            closing = asyncio.get_running_loop().create_task(connection.channel.close(None))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        tasks = [task for stream in self._streams for task in stream.tasks]
        for stream in list(self._streams):
            stream.close()
        await asyncio.gather(*tasks, *self._closing, return_exceptions=True)


class _Connection:
    """A gRPC channel, and the number of its streams."""

    __slots__ = ("_play", "address", "channel", "streams")

    def __init__(self, address: str, message_bytes: int, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.streams = 0
        options: list[tuple[str, int]] = [
            ("grpc.max_receive_message_length", message_bytes),
            ("grpc.enable_retries", 0),  # the player tries again, and each message would be kept for it
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),  # a channel of its own is a connection of its own
        ]
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options)
        else:
            self.channel = grpc.aio.secure_channel(address, credentials, options)
        self._play: Any = self.channel.stream_stream(f"/{SERVICE}/{METHOD}", None, None)

    def call(self) -> Any:
        return self._play()


class GrpcStream:
    """One call. Two tasks: one reads, one writes."""

    __slots__ = (
        "_batch",
        "_call",
        "_events",
        "_heartbeat_pending",
        "_hello",
        "_is_closed",
        "_message_bytes",
        "_on_close",
        "_wakeup",
        "connection",
        "tasks",
    )

    connection: _Connection

    def __init__(
        self,
        call: Any,
        handshake: Handshake,
        events: StreamEvents,
        message_bytes: int,
        on_close: Callable[[GrpcStream], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._call = call
        self._hello = wire.hello_bytes(handshake)
        self._events = events
        self._message_bytes = message_bytes
        self._on_close = on_close
        self._batch: bytes | None = None
        self._heartbeat_pending = False
        self._wakeup: asyncio.Future[None] | None = None
        """The writing task waits for something to write."""
        self._is_closed = False
        self.tasks = (loop.create_task(self._read()), loop.create_task(self._write()))

    # --- Stream -------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        if self._is_closed:
            return
        message = wire.batch_bytes(batch)
        if len(message) > self._message_bytes:
            self._end(too_large(batch, len(message), self._message_bytes))
            return
        self._batch = message
        self._wake()

    def heartbeat(self) -> None:
        self._heartbeat_pending = True
        self._wake()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._call.cancel()
        for task in self.tasks:
            task.cancel()
        self._on_close(self)

    # --- internal -----------------------------------------------------------------------------------------

    def _end(self, reason: str) -> None:
        """The stream broke: report it, once."""
        if self._is_closed:
            return
        self.close()
        self._events.on_closed(reason)

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def _write(self) -> None:
        call = self._call
        try:
            await call.write(self._hello)
            while not self._is_closed:
                if self._batch is not None:
                    message, self._batch = self._batch, None
                    await call.write(message)
                    if not self._is_closed:
                        self._events.on_written()
                elif self._heartbeat_pending:
                    self._heartbeat_pending = False
                    await call.write(wire.HEARTBEAT)
                else:
                    self._wakeup = asyncio.get_running_loop().create_future()
                    await self._wakeup
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass  # the reading task reports the reason
        except Exception as error:
            self._end(_log_failure(error))

    async def _read(self) -> None:
        reason = "the target has ended the stream"
        try:
            async for message in cast("AsyncIterable[bytes]", self._call):
                if self._is_closed:
                    return
                wire.dispatch(message, self._events)
        except grpc.RpcError as error:
            reason = _error_text(error)
        except Malformed as error:
            reason = f"the target violates the protocol: {error}"
        except Exception as error:
            reason = _log_failure(error)
        self._end(reason)


def _log_failure(error: Exception) -> str:
    log.exception("a target's message was not handled")
    return f"the target's message was not handled: {error!r}"


def _error_text(error: grpc.RpcError) -> str:
    """The reason why a call ended: the other side's text, or gRPC's, and the status."""
    status = cast("grpc.Call", error)
    code = status.code().name.lower().replace("_", " ")
    return f"{status.details() or 'no reason given'} ({code})"
