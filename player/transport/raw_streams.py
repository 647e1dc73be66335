"""Frames of our own over a plain socket, on the player's side: a connection for each stream.

Invariants: a batch is `written` when less than a bound waits for the kernel to take it, mostly from within
`write`; no task runs once the connection stands. Does not: encrypt, try again, or look whether anybody is
alive (the player's heartbeats do).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from player.core.messages import Batch
from player.transport import frames
from player.transport.addresses import split
from player.transport.limits import MESSAGE_BYTES, UNSENT_BYTES
from player.transport.seam import Greeting, Malformed, StreamEvents, too_large
from protocol.frame_reader import FrameReader, MalformedFrame

log = logging.getLogger("lockstep.player")


class RawStreams:
    """See the module; the seam is `Streams`. Addresses are `host:port` and `unix:/path`.

    Args:
        message_bytes: a larger batch ends its stream instead of being sent; a target has a limit of its own.
    """

    def __init__(self, message_bytes: int = MESSAGE_BYTES) -> None:
        self._message_bytes = message_bytes
        self._streams: set[RawStream] = set()

    def open(self, address: str, greeting: Greeting, events: StreamEvents) -> RawStream:
        stream = RawStream(address, greeting, events, self._message_bytes, self._streams.discard)
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
        greeting: Greeting,
        events: StreamEvents,
        message_bytes: int,
        ended: Callable[[RawStream], None],
    ) -> None:
        self._events = events
        self._message_bytes = message_bytes
        self._ended = ended
        self._reader = FrameReader(message_bytes)
        self._transport: Any = None
        self._first = frames.greeting_frame(greeting)
        """What is to be sent when the connection stands."""
        self._full = True
        """Too much waits to be sent, or there is no connection yet."""
        self._owes = False
        """A batch waits to be `written`."""
        self._beat = False
        self._over = False
        self.dialing = asyncio.get_running_loop().create_task(self._dial(address))

    # --- the seam -----------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        if self._over:
            return
        frame = frames.batch_frame(batch)
        if len(frame) - 4 > self._message_bytes:
            self._end(too_large(batch, len(frame) - 4, self._message_bytes))
            return
        if self._transport is None:
            self._first += frame
        else:
            self._transport.write(frame)
        if self._full:
            self._owes = True
        else:
            self._events.written()

    def heartbeat(self) -> None:
        if self._full:
            self._beat = True
        elif not self._over:
            self._transport.write(frames.HEARTBEAT)

    def close(self) -> None:
        if self._over:
            return
        self._over = True
        if self._transport is not None:
            self._transport.abort()
        self.dialing.cancel()
        self._ended(self)

    # --- asyncio's calls ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._over:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(UNSENT_BYTES)
        self._full = False
        self._transport.write(self._first)
        self._first = b""
        if not self._full:
            self.resume_writing()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._beat and not self._over:
            self._beat = False
            self._transport.write(frames.HEARTBEAT)
        if self._owes and not self._over:
            self._owes = False
            self._told(self._events.written)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        problem: Exception | None = None
        try:
            complete = self._reader.commit(nbytes)
        except MalformedFrame as error:
            complete, problem = error.frames, error
        for frame in complete:
            if self._over:
                return
            try:
                reason = frames.tell(frame, self._events)
            except Malformed as error:
                problem = error
                break
            except Exception as error:
                self._failed(error)
                return
            if reason is not None:
                self._end(reason)
        if problem is not None:
            self._end(f"the target does not keep to the protocol: {problem}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(_words(exc) if exc is not None else "the target has ended the stream")

    # --- within -------------------------------------------------------------------------------------------

    async def _dial(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            where = split(address)
            if isinstance(where, str):
                await loop.create_unix_connection(lambda: self, where)
            else:
                await loop.create_connection(lambda: self, *where)
        except (OSError, ValueError) as error:
            self._end(_words(error))

    def _told(self, event: Callable[[], None]) -> None:
        try:
            event()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        log.exception("what a target said was not dealt with")
        self._end(f"what the target said was not dealt with: {error!r}")

    def _end(self, reason: str) -> None:
        """It broke: tell so, once."""
        if not self._over:
            self.close()
            self._events.closed(reason)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:  # those of names are below
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
