"""A peer's connection to this node: the handshake first, then frames, which are parsed and passed on.

Invariants: before the handshake a connection may hold a few KB for a few seconds; after it, one
unfinished frame. Bytes that are no message, or a message of another node than the handshake's, end this
connection and nothing else. A message keeps nothing of the receive buffer. Does not send, but for the one
response to the handshake. With TLS, `tls_transport` is between it and the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any, Protocol

from lockstep.protocol.fields import Struct
from lockstep.protocol.frame_reader import FrameReader, MalformedFrame
from lockstep.protocol.peer_messages import HandshakeAccepted, HandshakeRejected, PeerHandshake
from lockstep.protocol.primitives import MalformedMessage
from lockstep.storage.group_options import node_of
from lockstep.storage.peers.envelope import message_in, pack, unpack
from lockstep.storage.peers.limits import PeerLimits, tune
from lockstep.storage.peers.peer_identity import PeerIdentity
from lockstep.storage.raft.messages import Message

MAX_REASON_LENGTH = 1000
"""Characters of a rejection's reason."""


class IncomingConnectionListener(Protocol):
    """The receiver of messages. It raises nothing."""

    node_id: int

    def on_connect(self, incoming: IncomingConnection) -> None:
        """Called when a connection is open."""

    def on_handshake(self, incoming: IncomingConnection, handshake: PeerHandshake) -> str | None:
        """Called with the handshake; a text rejects it."""

    def on_message(self, group_id: int, message: Message) -> None:
        """Called with a Raft message of a peer."""

    def on_rpc_message(self, node_id: int, message: Struct) -> None:
        """Called with a notification, request or response; views of the receive buffer."""

    def on_closed(self, incoming: IncomingConnection) -> None:
        """Called when the connection is closed."""

    def warn(self, text: str, same: Hashable = None) -> None:
        """Logs a warning, at a limited rate for the same key."""


class IncomingConnection(asyncio.BufferedProtocol):
    """See the module."""

    def __init__(
        self, owner: IncomingConnectionListener, loop: asyncio.AbstractEventLoop, limits: PeerLimits
    ) -> None:
        self._listener = owner
        self._loop = loop
        self._limits = limits
        self._reader = FrameReader(limits.handshake_bytes)
        self.transport: Any = None
        self.identity: PeerIdentity | None = None
        """The peer as its certificate names it, a node of this cluster; None without TLS."""
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._over = False
        self.node_id = -1
        """The peer's node; -1 before the handshake."""
        self.bulk = False
        self.peer = self._host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        self.peer = f"{self._host}:{port}"
        connected = transport.get_extra_info("socket")
        if connected is not None:
            tune(connected, self._limits.dead_ms)
        self._handshake_timer = self._loop.call_later(
            self._limits.dial_seconds, self._fail, "no handshake in time"
        )
        self._listener.on_connect(self)

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
            self._take_handshake(table)
            return
        found = message_in(table)
        if found is None:
            self._listener.on_rpc_message(self.node_id, table)
            return
        group_id, message = found
        if node_of(message.sender) != self.node_id or node_of(message.to) != self._listener.node_id:
            raise MalformedMessage(f"a message of member {message.sender} for member {message.to}")
        self._listener.on_message(group_id, message)

    def _take_handshake(self, handshake: Struct) -> None:
        if not isinstance(handshake, PeerHandshake):
            raise MalformedMessage(f"a {type(handshake).__name__} for a handshake")
        if handshake.node_id < 0:
            raise MalformedMessage(f"a handshake of node {handshake.node_id}")
        rejection: str | None
        if self.identity is not None and handshake.node_id != self.identity.node_id:
            rejection = f"its certificate is of {self.identity}"
        elif handshake.to_node_id != self._listener.node_id:
            rejection = f"this is node {self._listener.node_id}, not {handshake.to_node_id}"
        else:
            rejection = self._listener.on_handshake(self, handshake)
        if rejection is not None:
            self._reject(f"node {handshake.node_id} at {self.peer}", rejection, handshake.node_id)
            return
        self.node_id = handshake.node_id
        self.bulk = handshake.bulk
        self._reader.max_frame_bytes = self._limits.frame_bytes
        self._cancel_timer()
        self._write(HandshakeAccepted())

    def reject(self, reason: str) -> None:
        """Rejects a peer before its handshake: its certificate, or none."""
        self._reject(f"a connection from {self.peer}", reason, self._host)

    def _reject(self, peer: str, reason: str, key: Hashable) -> None:
        """Sends the peer the reason, logs it, and closes. `key` identifies a peer that connects again."""
        self._write(HandshakeRejected(reason=reason[:MAX_REASON_LENGTH]))
        self._listener.warn(f"{peer} is rejected: {reason}", (key, reason))
        self.close()

    def _write(self, table: Struct) -> None:
        buffers, _ = pack(table)
        self.transport.write(b"".join(buffers))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._cancel_timer()
        self._listener.on_closed(self)

    def _cancel_timer(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def warn(self, text: str) -> None:
        """Logs a failure of this connection."""
        if self.node_id >= 0:
            self._listener.warn(f"node {self.node_id} at {self.peer}: {text}")
        else:  # it comes again every second
            self._listener.warn(f"{self.peer}: {text}", (self._host, text))

    def _fail(self, text: str) -> None:
        if not self._over:
            self.warn(text)
            self.abort()

    def close(self) -> None:
        """Sends pending bytes, then closes."""
        self._over = True
        self.transport.close()

    def abort(self) -> None:
        """Closes now."""
        self._over = True
        self.transport.abort()
