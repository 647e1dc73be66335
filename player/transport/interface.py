"""The interface of a transport, for a player and for a target: gRPC and raw frames have it, and the tests'
streams in memory.

A stream carries one log to one target. All calls and all events are on the one event loop; events come in the
order of the stream, one at a time, also from within `open` or `write`: a listener queues an event that it
cannot handle at once. Messages sent after a stream broke are dropped; the break is reported once.
"""

from __future__ import annotations

from typing import Protocol

from lockstep.player.core.messages import Batch, Hello


class Malformed(ValueError):
    """A received message cannot be parsed, or may not come now: the stream is to end."""


class Handshake:
    """A Hello with the log's topic and partition, for targets that treat topics differently."""

    __slots__ = ("hello", "partition", "topic")

    def __init__(self, hello: Hello, topic: str, partition: int) -> None:
        self.hello = hello
        self.topic = topic
        self.partition = partition


class StreamEvents(Protocol):
    """The events of one stream, on the player's side."""

    def on_greeted(self, position: int) -> None:
        """The target has stored everything up to `position`."""

    def on_stale(self, player_term: int) -> None:
        """The target serves a stream with higher terms."""

    def on_acknowledged(self, position: int) -> None:
        """The target has stored everything up to `position`; also the response to a heartbeat."""

    def on_written(self) -> None:
        """The last batch is sent, by the transport's own flow control; called once for each."""

    def on_closed(self, reason: str) -> None:
        """The stream could not be opened, broke, or was ended by the target. The last event."""


class Stream(Protocol):
    """The player's end of one stream."""

    def write(self, batch: Batch) -> None:
        """Send a batch; there is one at a time until `on_written`."""

    def heartbeat(self) -> None:
        """Requests an acknowledgement."""

    def close(self) -> None:
        """Closes it; no event follows."""


def too_large(batch: Batch, message_bytes: int, limit_bytes: int) -> str:
    """The reason with which a stream ends instead of sending the batch."""
    entries = f"entries {batch.parts[0].position} to {batch.last_position}"
    return f"{entries} make a message of {message_bytes} bytes, and at most {limit_bytes} may be sent"


class Streams(Protocol):
    """A transport, on the player's side."""

    def open(self, address: str, handshake: Handshake, events: StreamEvents) -> Stream:
        """Open a new stream with the handshake as its first message; `on_closed` reports a failure."""

    async def close(self) -> None:
        """Close all streams and connections."""


class Responder(Protocol):
    """The target's end of one stream, as its session uses it."""

    def accept(self, position: int) -> None: ...

    def reject(self, player_term: int, target_term: int) -> None:
        """Send Stale, and end the stream."""

    def acknowledge(self, position: int) -> None: ...

    def end(self, reason: str) -> None:
        """End the stream, with a reason for the player's log."""


class Session(Protocol):
    """A target's side of one stream: a transport reports its events here, in the stream's order."""

    def receive(self, batch: Batch) -> None:
        """A batch came; several may come while one is being stored."""

    def heartbeat(self) -> None:
        """A heartbeat came."""

    def on_closed(self) -> None:
        """The stream is closed; the last call."""

    @property
    def has_room(self) -> bool:
        """True while the transport may read on; otherwise it waits for `wait_for_room`."""

    async def wait_for_room(self) -> None: ...


class Sessions(Protocol):
    """A target's interface for a transport's server."""

    def open_session(self, handshake: Handshake, responder: Responder) -> Session:
        """A stream has begun; the target responds when the terms are persisted."""


class Server(Protocol):
    """A transport, on the target's side: made with the Sessions that take its streams."""

    async def start(self, address: str) -> str:
        """Listen at `host:port` (port 0: any) or `unix:/path`; the address to dial. Raises OSError."""

    async def close(self, grace_s: float = 5.0) -> None:
        """Stops accepting streams and ends the open ones; sending their last messages may take `grace_s`."""
