"""What a player, and a target, need of a transport: the seam that gRPC, raw frames and `memory_streams` fill.

A stream carries one log to one target. All calls and all events are on the one event loop; events come in the
order of the stream, one at a time, also from within `open` or `write`: who listens queues what it cannot take
at once. What is sent after a stream broke is dropped; the break itself is told once.
"""

from __future__ import annotations

from typing import Protocol

from player.core.messages import Batch, Hello


class Malformed(ValueError):
    """What came over a stream is no message, or not one that may come now: the stream is to end."""


class Greeting:
    """A Hello with what the log is of, in words: for targets that keep topics apart."""

    __slots__ = ("hello", "partition", "topic")

    def __init__(self, hello: Hello, topic: str, partition: int) -> None:
        self.hello = hello
        self.topic = topic
        self.partition = partition


class StreamEvents(Protocol):
    """What the player is told of one stream."""

    def greeted(self, position: int) -> None:
        """The target has stored everything up to `position`."""

    def stale(self, player_term: int) -> None:
        """The target serves a stream with higher terms."""

    def acknowledged(self, position: int) -> None:
        """The target has stored everything up to `position`; also the answer to a heartbeat."""

    def written(self) -> None:
        """The last batch has left, as far as the transport's own flow control says; once for each."""

    def closed(self, reason: str) -> None:
        """It could not be opened, broke, or was ended by the target. The last event."""


class Stream(Protocol):
    """The player's end of one stream."""

    def write(self, batch: Batch) -> None:
        """Send a batch; there is one at a time until `written`."""

    def heartbeat(self) -> None:
        """Ask for an acknowledgement."""

    def close(self) -> None:
        """For good; nothing is told of it afterwards."""


def too_large(batch: Batch, message_bytes: int, limit_bytes: int) -> str:
    """Why a stream ends instead of sending it."""
    entries = f"entries {batch.parts[0].position} to {batch.last_position}"
    return f"{entries} make a message of {message_bytes} bytes, and at most {limit_bytes} may be sent"


class Streams(Protocol):
    """A transport, on the player's side."""

    def open(self, address: str, greeting: Greeting, events: StreamEvents) -> Stream:
        """A stream of its own, with the greeting as its first message. Failures are told as `closed`."""

    async def close(self) -> None:
        """Close all streams and connections."""


class Answers(Protocol):
    """The target's end of one stream, as its session uses it."""

    def greeted(self, position: int) -> None: ...

    def stale(self, player_term: int, target_term: int) -> None:
        """Say so, and end the stream."""

    def acknowledge(self, position: int) -> None: ...

    def end(self, reason: str) -> None:
        """End the stream, with words for who reads the player's log."""


class Session(Protocol):
    """What a target makes of one stream. Everything that a transport tells it, in the stream's order."""

    def receive(self, batch: Batch) -> None:
        """A batch came; several may come while one is being stored."""

    def heartbeat(self) -> None:
        """The player asks whether it lives."""

    def closed(self) -> None:
        """The stream is gone; the last call."""

    @property
    def wants_more(self) -> bool:
        """Whether the transport should read on; if not, it waits for `wait_for_room`."""

    async def wait_for_room(self) -> None: ...


class Sessions(Protocol):
    """A target, as a transport's server needs it."""

    def greet(self, greeting: Greeting, answers: Answers) -> Session:
        """A stream has begun; it is answered when the terms are persisted."""


class Server(Protocol):
    """A transport, on the target's side: made with the Sessions that it tells of each stream."""

    async def start(self, address: str) -> str:
        """Listen at `host:port` (port 0: any) or `unix:/path`; the address to dial. Raises OSError."""

    async def close(self, grace_s: float = 5.0) -> None:
        """Take no more streams, end those there are (what they still have to say may take so long)."""
