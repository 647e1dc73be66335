"""Frames of our own over a plain socket, on the player's side: a connection for each stream.

Invariants: a batch is written when less than a bound is unsent, mostly from within `write`; no task runs once
the connection is established. Does not: encrypt, retry, or detect failures (the player's heartbeats do).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from lockstep.player.core.messages import Batch
from lockstep.player.transport import frames
from lockstep.player.transport.addresses import parse_address
from lockstep.player.transport.interface import Handshake, Malformed, StreamEvents, too_large
from lockstep.player.transport.limits import MESSAGE_BYTES, UNSENT_BYTES
from lockstep.protocol.frame_reader import FrameReader, MalformedFrame

log = logging.getLogger("lockstep.player")


class RawStreams:
    """See the module; implements `Streams`. Addresses are `host:port` and `unix:/path`.

    Args:
        message_bytes: a larger batch ends its stream instead of being sent; a target has a limit of its own.
    """

    def __init__(self, message_bytes: int = MESSAGE_BYTES) -> None:
        self._message_bytes = message_bytes
        self._streams: set[RawStream] = set()

    def open(self, address: str, handshake: Handshake, events: StreamEvents) -> RawStream:
        stream = RawStream(address, handshake, events, self._message_bytes, self._streams.discard)
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        streams = list(self._streams)
        for stream in streams:
            stream.close()
        await asyncio.gather(*[stream.dialing for stream in streams], return_exceptions=True)


class RawStream(asyncio.BufferedProtocol):
    """One connection, from dialing on."""

    def __init__(
        self,
        address: str,
        handshake: Handshake,
        events: StreamEvents,
        message_bytes: int,
        on_close: Callable[[RawStream], None],
    ) -> None:
        self._events = events
        self._message_bytes = message_bytes
        self._on_close = on_close
        self._reader = FrameReader(message_bytes)
        self._transport: Any = None
        self._first = frames.hello_frame(handshake)
        """The handshake, to be sent once the connection is open."""
        self._is_paused = True
        """Whether too much waits to be sent, or there is no connection yet."""
        self._write_pending = False
        """Whether `on_written` is due for a batch."""
        self._heartbeat_pending = False
        self._is_closed = False
        self.dialing = asyncio.get_running_loop().create_task(self._dial(address))

    # --- Stream -------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        if self._is_closed:
            return
        frame = frames.batch_frame(batch)
        if len(frame) - 4 > self._message_bytes:
            self._end(too_large(batch, len(frame) - 4, self._message_bytes))
            return
        if self._transport is None:
            self._first += frame
        else:
            self._transport.write(frame)
        if self._is_paused:
            self._write_pending = True
        else:
            self._events.on_written()

    def heartbeat(self) -> None:
        if self._is_paused:
            self._heartbeat_pending = True
        elif not self._is_closed:
            self._transport.write(frames.HEARTBEAT_FRAME)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()
        self.dialing.cancel()
        self._on_close(self)

    # --- asyncio's calls ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._is_closed:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(UNSENT_BYTES)
        self._is_paused = False
        self._transport.write(self._first)
        self._first = b""
        if not self._is_paused:
            self.resume_writing()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._heartbeat_pending and not self._is_closed:
            self._heartbeat_pending = False
            self._transport.write(frames.HEARTBEAT_FRAME)
        if self._write_pending and not self._is_closed:
            self._write_pending = False
            self._notify(self._events.on_written)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        problem: Exception | None = None
        try:
            complete = self._reader.commit(nbytes)
        except MalformedFrame as error:
            complete, problem = error.frames, error
        for frame in complete:
            if self._is_closed:
                return
            try:
                reason = frames.dispatch(frame, self._events)
            except Malformed as error:
                problem = error
                break
            except Exception as error:
                self._fail(error)
                return
            if reason is not None:
                self._end(reason)
        if problem is not None:
            self._end(f"the target violates the protocol: {problem}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(_error_text(exc) if exc is not None else "the target has ended the stream")

    # --- internal -----------------------------------------------------------------------------------------

    async def _dial(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            parsed = parse_address(address)
            if isinstance(parsed, str):
                await loop.create_unix_connection(lambda: self, parsed)
            else:
                await loop.create_connection(lambda: self, *parsed)
        except (OSError, ValueError) as error:
            self._end(_error_text(error))

    def _notify(self, event: Callable[[], None]) -> None:
        try:
            event()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.exception("a target's message was not handled")
        self._end(f"the target's message was not handled: {error!r}")

    def _end(self, reason: str) -> None:
        """The stream broke: report it, once."""
        if not self._is_closed:
            self.close()
            self._events.on_closed(reason)


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:  # those of names are below
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
