"""Frames of our own over a plain socket, on a target's side, over any `Sessions`.

Invariants: a stream's messages are handed to its session in order; nothing is read while the session has no
room (so a player's disconnect is noticed only afterwards); of the pending acknowledgements only the newest is
sent. A frame that is malformed, or out of order, ends its own connection with a reason, and no other.
`on_closed` is the last call to a session. Does not: encrypt, know terms, or store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from typing import Any

from lockstep.player.core.messages import Batch
from lockstep.player.transport import frames
from lockstep.player.transport.addresses import parse_address, with_port
from lockstep.player.transport.interface import Handshake, Malformed, Session, Sessions
from lockstep.player.transport.limits import (
    HELLO_TIMEOUT_S,
    KEEPALIVE_S,
    LINGER_S,
    MAX_REASON_CHARS,
    MAX_STREAMS,
    MESSAGE_BYTES,
)
from lockstep.player.transport.sockets import bind_all, describe_bind_error
from lockstep.protocol.frame_reader import FrameReader, MalformedFrame

logger = logging.getLogger(__name__)


class RawServer:
    """See the module; implements `Server`.

    Args:
        message_bytes: a larger message ends its stream.
        hello_timeout_s: a stream without a Hello by then is ended.
    """

    def __init__(
        self,
        sessions: Sessions,
        message_bytes: int = MESSAGE_BYTES,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
    ) -> None:
        self.sessions = sessions
        self.message_bytes = message_bytes
        self.hello_timeout_s = hello_timeout_s
        self.streams: set[_Stream] = set()
        self.is_closed = False
        self._servers: list[asyncio.Server] = []

    async def start(self, address: str) -> str:
        loop = asyncio.get_running_loop()
        parsed = parse_address(address)
        if isinstance(parsed, str):
            self._servers.append(await loop.create_unix_server(lambda: _Stream(self), parsed))
            return address
        sockets: list[socket.socket] = []
        try:
            sockets = bind_all(*parsed)
            for each in sockets:
                each.listen()  # uvloop does so too, but does not report a failure
        except OSError as error:
            for each in sockets:
                each.close()
            raise describe_bind_error(address, error) from error
        port: int = sockets[0].getsockname()[1]
        for each in sockets:
            self._servers.append(await loop.create_server(lambda: _Stream(self), sock=each))
        return with_port(address, port)

    async def close(self, grace_s: float = 5.0) -> None:
        self.is_closed = True
        for server in self._servers:
            server.close()
        streams = list(self.streams)
        for stream in streams:
            stream.end("the target is stopping")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await asyncio.gather(*[stream.has_ended.wait() for stream in streams])
        for stream in streams:
            stream.abort()
        await asyncio.gather(*[stream.has_ended.wait() for stream in streams])


class _Stream(asyncio.BufferedProtocol):
    """One connection. Implements `Responder`."""

    def __init__(self, server: RawServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(server.message_bytes)
        self._transport: Any = None
        self._session: Session | None = None
        self._frames: deque[memoryview] = deque()
        """Received frames; they stay valid, since nothing is read until they are processed."""
        self._malformed: MalformedFrame | None = None
        """The error behind them."""
        self._waiting: asyncio.Task[None] | None = None
        """The wait for room in the session."""
        self._is_paused = False
        """The player does not read, and the write buffer is full."""
        self._acknowledged: int | None = None
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self.has_ended = asyncio.Event()

    # --- Responder ----------------------------------------------------------------------------------------

    def accept(self, position: int) -> None:
        self._send(frames.greeted_frame(position))

    def acknowledge(self, position: int) -> None:
        if self._is_paused:
            self._acknowledged = position
        else:
            self._send(frames.acknowledged_frame(position))

    def reject(self, player_term: int, target_term: int) -> None:
        self._finish(frames.stale_frame(player_term, target_term))

    def end(self, reason: str) -> None:
        self._finish(frames.end_frame(reason[:MAX_REASON_CHARS]))

    # --- asyncio's calls ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._server.is_closed:
            self.abort()  # it was accepted before the listener was closed
        streams = self._server.streams
        streams.add(self)
        _tune(transport.get_extra_info("socket"))
        self._timer = self._loop.call_later(self._server.hello_timeout_s, self.end, "no Hello came")
        if len(streams) > MAX_STREAMS:
            self.end(f"the target serves {MAX_STREAMS} streams already")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._frames.extend(self._reader.commit(nbytes))
        except MalformedFrame as error:
            self._frames.extend(error.frames)
            self._malformed = error
        self._process_frames()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._send_acknowledged()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._server.streams.discard(self)
        for each in (self._timer, self._waiting):
            if each is not None:
                each.cancel()
        if self._session is not None:
            self._session.on_closed()
        self.has_ended.set()

    # --- receiving ----------------------------------------------------------------------------------------

    def _process_frames(self) -> None:
        """Hand received frames to the session, as long as it has room."""
        try:
            while self._frames and not self._is_closed:
                if self._session is not None and not self._session.has_room:
                    self._transport.pause_reading()
                    self._waiting = self._loop.create_task(self._wait_for_room(self._session))
                    return
                self._receive(self._frames.popleft())
            if self._malformed is not None:
                raise Malformed(str(self._malformed))
        except Malformed as error:
            self.end(str(error))
        except Exception as error:
            self._fail(error)

    def _receive(self, frame: memoryview) -> None:
        message = frames.from_player(frame)
        session = self._session
        if session is None:
            if not isinstance(message, Handshake):
                raise Malformed("the first message of a stream is a Hello")
            if self._timer is not None:
                self._timer.cancel()
            self._session = self._server.sessions.open_session(message, self)
        elif isinstance(message, Batch):
            session.receive(message)
        elif message is None:
            session.heartbeat()
        else:
            raise Malformed("a second Hello on one stream")

    async def _wait_for_room(self, session: Session) -> None:
        try:
            while not session.has_room:
                await session.wait_for_room()
        except Exception as error:
            self._fail(error)
        if not self._is_closed:
            self._transport.resume_reading()
            self._process_frames()

    def _fail(self, error: Exception) -> None:
        logger.exception("a target's session failed")
        self.end(f"the target failed: {error!r}")

    # --- sending ------------------------------------------------------------------------------------------

    def _send(self, frame: bytes) -> None:
        if not self._is_closed:
            self._transport.write(frame)

    def _send_acknowledged(self) -> None:
        if self._acknowledged is not None:
            position, self._acknowledged = self._acknowledged, None
            self._send(frames.acknowledged_frame(position))

    def _finish(self, frame: bytes) -> None:
        """Send the last frame, and close; the first call counts."""
        if self._is_closed:
            return
        self._send_acknowledged()
        self._send(frame)
        self._is_closed = True
        self._frames.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()
        self._timer = self._loop.call_later(LINGER_S, self.abort)

    def abort(self) -> None:
        """Close without waiting for the player to read."""
        self._transport.abort()


def _tune(connected: socket.socket) -> None:
    """Set keepalive options, to detect a dead player, as far as the platform has them."""
    settings = [
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", KEEPALIVE_S),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", KEEPALIVE_S // 3),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", KEEPALIVE_S * 1000),
    ]
    if connected.family == socket.AF_UNIX:
        return
    for level, name, value in settings:
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                connected.setsockopt(level, option, value)
