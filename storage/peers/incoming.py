"""A connection of a peer to us: the greeting first, then whatever it sends, cut into frames and handed on.

Invariants: before the greeting is accepted a connection may hold a few KB and a few seconds; after it, one
unfinished frame. Bytes that are no message, or a message that is not from who greeted, end this connection
and nothing else. A message keeps nothing of the receive buffer. Does not send, but for the one answer
to the greeting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any, Protocol

from protocol.fields import Struct
from protocol.frame_reader import FrameReader, MalformedFrame
from protocol.peer_messages import HandshakeAccepted, HandshakeRejected, PeerHandshake
from protocol.primitives import MalformedMessage
from storage.group_options import node_of
from storage.peers.envelope import message_in, pack, unpack
from storage.peers.limits import PeerLimits, tune
from storage.raft.messages import Message

LONGEST_REASON = 1000
"""Characters of a refusal."""


class IncomingOwner(Protocol):
    """Who takes what arrives. It raises nothing."""

    node_id: int

    def on_stranger(self, incoming: Incoming) -> None:
        """Somebody has connected."""

    def on_greeting(self, incoming: Incoming, greeting: PeerHandshake) -> str | None:
        """Who it is; or why it is refused."""

    def on_message(self, group_id: int, message: Message) -> None:
        """A Raft message of a peer."""

    def on_words(self, node_id: int, words: Struct) -> None:
        """Something told, asked or answered; views of the receive buffer."""

    def on_closed(self, incoming: Incoming) -> None:
        """It is over."""

    def complain(self, text: str, same: Hashable = None) -> None:
        """One line for people; what is the same is not said again and again."""


class Incoming(asyncio.BufferedProtocol):
    """See the module."""

    def __init__(self, owner: IncomingOwner, loop: asyncio.AbstractEventLoop, limits: PeerLimits) -> None:
        self._owner = owner
        self._loop = loop
        self._limits = limits
        self._reader = FrameReader(limits.greeting_bytes)
        self._transport: Any = None
        self._patience: asyncio.TimerHandle | None = None
        self._over = False
        self.node_id = -1
        """Who greeted; -1 for a stranger."""
        self.bulk = False
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.peer = "{}:{}".format(*(transport.get_extra_info("peername") or ("?", 0))[:2])
        connected = transport.get_extra_info("socket")
        if connected is not None:
            tune(connected, self._limits.dead_ms)
        self._patience = self._loop.call_later(self._limits.dial_seconds, self._fail, "no greeting came")
        self._owner.on_stranger(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        failure: MalformedFrame | None = None
        try:
            frames = self._reader.commit(nbytes)
        except MalformedFrame as error:
            frames, failure = error.frames, error
        try:
            for frame in frames:
                if self._over:
                    return
                self._take(frame)
        except MalformedMessage as error:
            self._fail(str(error))
            return
        if failure is not None:
            self._fail(str(failure))

    def _take(self, frame: memoryview) -> None:
        table = unpack(frame)
        if self.node_id < 0:
            self._greeted(table)
            return
        found = message_in(table)
        if found is None:
            self._owner.on_words(self.node_id, table)
            return
        group_id, message = found
        if node_of(message.sender) != self.node_id or node_of(message.to) != self._owner.node_id:
            raise MalformedMessage(f"a message of member {message.sender} for member {message.to}")
        self._owner.on_message(group_id, message)

    def _greeted(self, greeting: Struct) -> None:
        if not isinstance(greeting, PeerHandshake):
            raise MalformedMessage(f"a {type(greeting).__name__} for a greeting")
        if greeting.node_id < 0:
            raise MalformedMessage(f"a greeting of node {greeting.node_id}")
        refusal: str | None
        if greeting.to_node_id != self._owner.node_id:
            refusal = f"this is node {self._owner.node_id}, not {greeting.to_node_id}"
        else:
            refusal = self._owner.on_greeting(self, greeting)
        if refusal is not None:
            self._say(HandshakeRejected(reason=refusal[:LONGEST_REASON]))
            text = f"node {greeting.node_id} at {self.peer} is refused: {refusal}"
            self._owner.complain(text, (greeting.node_id, refusal))
            self.close()
            return
        self.node_id = greeting.node_id
        self.bulk = greeting.bulk
        self._reader.max_frame_bytes = self._limits.frame_bytes
        self._calm()
        self._say(HandshakeAccepted())

    def _say(self, table: Struct) -> None:
        buffers, _ = pack(table)
        self._transport.write(b"".join(buffers))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._calm()
        self._owner.on_closed(self)

    def _calm(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _fail(self, text: str) -> None:
        if not self._over:
            who = self.peer if self.node_id < 0 else f"node {self.node_id} at {self.peer}"
            self._owner.complain(f"{who}: {text}")
            self.abort()

    def close(self) -> None:
        """Say what was said, then close."""
        self._over = True
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._over = True
        self._transport.abort()
