"""A broker's network of peers: their addresses, Raft messages, notifications and requests.

Invariants: everything is called on the loop, and the listener always in an iteration of its own, so that a
lost link never interrupts a caller of `send`. Misbehaviour of a peer ends at most its own connections. A
request gets one response or error, or its link is lost, or it times out. Does not decide which nodes are
peers: the listener does, and sees every handshake.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Hashable
from typing import Protocol

from lockstep.protocol.fields import Struct
from lockstep.protocol.peer_messages import NotificationBody, PeerHandshake, RequestBody, ResponseBody
from lockstep.protocol.primitives import MalformedMessage
from lockstep.storage.peers.envelope import Frame, is_bulky, pack, pack_message
from lockstep.storage.peers.incoming import IncomingConnection
from lockstep.storage.peers.limits import (
    BACKLOG,
    MAX_ERROR_LENGTH,
    TOO_MANY_REQUESTS,
    PeerError,
    PeerLimits,
    PeerUnreachable,
)
from lockstep.storage.peers.outgoing import Link
from lockstep.storage.peers.peer_tls import PeerTls
from lockstep.storage.peers.tls_transport import TlsTransport
from lockstep.storage.raft.messages import Message
from lockstep.storage.rate_limited_log import RateLimitedLog

__all__ = ["PeerError", "PeerLimits", "PeerListener", "PeerNetwork", "PeerUnreachable"]

log_of_peers = logging.getLogger(__name__)


class PeerListener(Protocol):
    """The callbacks of the network, always on the loop."""

    def hello(self) -> bytes:
        """Returns the handshake's payload for every connection: small, opaque here."""

    def on_handshake(self, node_id: int, hello: bytes) -> str | None:
        """Called when a peer has dialed this node, for each of its two connections; a text rejects it."""

    def on_rejection(self, node_id: int, text: str) -> None:
        """Called when a peer rejects our handshake, once for the same text and not logged before. The
        network dials again."""

    def on_message(self, group_id: int, message: Message) -> None:
        """Called with a Raft message, whose sender is verified."""

    def on_notification(self, node_id: int, kind: int, body: bytes) -> None:
        """Called with a peer's notification."""

    def on_request(self, node_id: int, kind: int, body: bytes) -> Awaitable[bytes]:
        """Returns the response to a peer's request; PeerError(text) rejects it."""

    def on_process_stopped(self, node_id: int) -> None:
        """Called when the process of a peer has ended: its host rejects the connection, and no connection
        from there is open. Repeated at each attempt to dial."""

    def on_link(self, node_id: int, up: bool) -> None:
        """Called when both our links to a peer are up; or one is lost, and its messages in flight."""


class _Peer:
    """One other node."""

    __slots__ = ("_network", "address", "bulk", "control", "node_id", "pending_requests", "rejection", "up")

    def __init__(self, network: PeerNetwork, node_id: int, address: tuple[str, int]) -> None:
        self._network = network
        self.node_id = node_id
        self.address = address
        self.up = False
        """As the listener knows it."""
        self.rejection = ""
        self.pending_requests: dict[int, asyncio.Future[ResponseBody]] = {}
        loop, limits, tls = network.loop, network.limits, network.tls
        self.bulk = Link(f"bulk link to node {node_id}", address, True, self, loop, limits, tls, node_id)
        name = f"control link to node {node_id}"
        self.control = Link(name, address, False, self, loop, limits, tls, node_id)

    def handshake_frame(self, bulk: bool) -> Frame:
        return self._network.handshake_frame(self.node_id, bulk)

    def on_link(self, link: Link, up: bool) -> None:
        if up and not (self.control.up and self.bulk.up):
            return
        self.rejection = ""
        if not up:
            self.fail_requests(f"the link to node {self.node_id} is lost")
        if up != self.up:
            self.up = up
            self._network.on_link_change(self.node_id, up)

    def on_process_stopped(self) -> None:
        self._network.on_absence(self.node_id)

    def on_rejection(self, reason: str) -> None:
        if reason != self.rejection:
            self.rejection = reason
            self._network.on_peer_rejection(self.node_id, reason)

    def on_tls_failure(self, reason: str) -> None:
        host, port = self.address
        text = f"node {self.node_id} at {host}:{port} is not reached: {reason}"
        self._network.warn(text, (self.node_id, self.address, reason))

    def retry_now(self) -> None:
        self.control.retry_now()
        self.bulk.retry_now()

    def fail_requests(self, reason: str) -> None:
        """Fails the pending requests."""
        pending_requests, self.pending_requests = self.pending_requests, {}
        for future in pending_requests.values():
            if not future.done():
                future.set_exception(PeerUnreachable(reason))


class PeerNetwork:
    """See the module. `loop` is the running one, or the one that will run; `tls` is None for plaintext."""

    def __init__(
        self,
        node_id: int,
        owner: PeerListener,
        loop: asyncio.AbstractEventLoop,
        *,
        limits: PeerLimits | None = None,
        tls: PeerTls | None = None,
    ) -> None:
        self.node_id = node_id
        self.loop = loop
        self.tls = tls
        self.limits = PeerLimits() if limits is None else limits
        self._listener = owner
        self._peers: dict[int, _Peer] = {}
        self._servers: list[asyncio.Server] = []
        self._unidentified: dict[IncomingConnection, None] = {}
        self._incoming: dict[tuple[int, bool], IncomingConnection] = {}
        self._handling: dict[asyncio.Task[None], tuple[int, int]] = {}
        """Requests that are being handled: node and kind of each."""
        self._ending: set[asyncio.Task[None]] = set()
        # Not from 0: a response to an earlier process with our node id must not be taken for ours.
        self._next_request_id = random.getrandbits(48)
        self._limited_log = RateLimitedLog(loop.time, log_of_peers)
        self._closed = False

    # --- the API ------------------------------------------------------------------------------------------

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Take connections of peers on bound sockets, which are closed with us. Raises OSError."""
        for bound in sockets:
            bound.listen(BACKLOG)  # uvloop does so too, but does not report a failure
            server = await self.loop.create_server(self._accept, sock=bound, backlog=BACKLOG)
            self._servers.append(server)

    def _accept(self) -> asyncio.BaseProtocol:
        incoming = IncomingConnection(self, self.loop, self.limits)
        return incoming if self.tls is None else TlsTransport(incoming, self.tls)

    def add_node(self, node_id: int, host: str, port: int) -> None:
        """Dials a node until it is forgotten; a new address replaces the old one."""
        peer = self._peers.get(node_id)
        if node_id == self.node_id or self._closed or (peer and peer.address == (host, port)):
            return
        self._drop(node_id)
        self._peers[node_id] = _Peer(self, node_id, (host, port))

    def forget(self, node_id: int) -> None:
        """Stops dialing a node, and ends its connections to us. The owner rejects it if it connects again."""
        self._drop(node_id)
        for bulk in (False, True):
            incoming = self._incoming.pop((node_id, bulk), None)
            if incoming is not None:
                incoming.abort()

    def send(self, node_id: int, group_id: int, message: Message) -> None:
        """Send it at once; what finds no link, or too much before it, is dropped. Never blocks or raises.

        Buffers of frames must not change any more.
        """
        peer = self._peers.get(node_id)
        if peer is None:
            return
        link = peer.bulk if is_bulky(message) else peer.control
        if not link.up:
            return
        try:
            frame = pack_message(group_id, message)
        except MalformedMessage:
            log_of_peers.exception("log group %d: a message cannot be sent: %.200r", group_id, message)
            return
        self._put(link, frame)

    def notify(self, node_id: int, kind: int, body: bytes) -> None:
        """Sends a notification; one that is not sent yet, also without a link, is replaced by a newer one."""
        peer = self._peers.get(node_id)
        if peer is not None:
            peer.control.notify(kind, pack(NotificationBody(topic=kind, body=body)))

    async def request(self, node_id: int, kind: int, body: bytes, timeout_s: float) -> bytes:
        """Returns the peer's response. Without one the peer may have handled the request.

        Raises PeerError with its message, PeerUnreachable, TimeoutError.
        """
        peer = self._peers.get(node_id)
        if peer is None:
            raise PeerUnreachable(f"node {node_id} is not known")
        request_id = self._next_request_id
        self._next_request_id += 1
        future: asyncio.Future[ResponseBody] = self.loop.create_future()
        peer.pending_requests[request_id] = future
        try:
            if not self._put_rpc(peer, RequestBody(request_id=request_id, topic=kind, body=body)):
                raise PeerUnreachable(f"no link to node {node_id}")
            async with asyncio.timeout(timeout_s):
                response = await future
        finally:
            peer.pending_requests.pop(request_id, None)
        if response.error is not None:
            raise PeerError(response.error)
        return bytes(response.body)

    def has_connection_from(self, node_id: int) -> bool:
        """Returns whether a connection of this node to us is open."""
        return (node_id, False) in self._incoming or (node_id, True) in self._incoming

    def is_up(self, node_id: int) -> bool:
        """Returns whether both links to a node are up."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.control.up and peer.bulk.up

    def address(self, node_id: int) -> tuple[str, int] | None:
        """Returns the address at which a node is dialed; None where it is not."""
        peer = self._peers.get(node_id)
        return None if peer is None else peer.address

    def problem(self, node_id: int) -> str:
        """Returns why a node is not reached; "" where it is, or where no attempt has ended yet."""
        peer = self._peers.get(node_id)
        if peer is None or self.is_up(node_id):
            return ""
        return peer.control.problem or peer.bulk.problem

    async def close(self) -> None:
        """Closes every connection; the listener is not called any more."""
        self._closed = True
        for server in self._servers:
            server.close()
        for incoming in [*self._unidentified, *self._incoming.values()]:
            incoming.abort()
        for node_id in list(self._peers):
            self._drop(node_id)
        for task in self._handling:
            task.cancel()
        pending = {*self._ending, *self._handling}
        if pending:
            await asyncio.wait(pending)
        for server in self._servers:
            await server.wait_closed()

    # --- links --------------------------------------------------------------------------------------------

    def _drop(self, node_id: int) -> None:
        peer = self._peers.pop(node_id, None)
        if peer is None:
            return
        for link in (peer.control, peer.bulk):
            task = link.stop()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        peer.fail_requests(f"node {node_id} is not dialed any more")
        if peer.up:
            self.loop.call_soon(self.on_link_change, node_id, False)

    def _put(self, link: Link, frame: Frame) -> bool:
        if frame[1] > self.limits.frame_bytes:
            self.warn(f"a message of {frame[1]} bytes is too large to be sent")
            return False
        return link.send(frame)

    def _put_rpc(self, peer: _Peer, message: Struct) -> bool:
        frame = pack(message)
        return self._put(peer.bulk if frame[1] > self.limits.large_bytes else peer.control, frame)

    def handshake_frame(self, to_node_id: int, bulk: bool) -> Frame:
        """Returns the handshake of a link."""
        hello = self._listener.hello()
        return pack(PeerHandshake(node_id=self.node_id, to_node_id=to_node_id, bulk=bulk, hello=hello))

    def on_link_change(self, node_id: int, up: bool) -> None:
        """Reports that a peer's links are up, or not any more."""
        if not self._closed:
            log_of_peers.info("node %d is %s", node_id, "reached" if up else "not reached any more")
            self._call_listener(self._listener.on_link, node_id, up)

    def on_absence(self, node_id: int) -> None:
        """Reports a peer whose address rejects connections: its process, or a firewall of a host that lives.
        A process that has ended holds no connection to us; where that is seen later, `on_closed` calls
        this."""
        if not self.has_connection_from(node_id):
            self._call_listener(self._listener.on_process_stopped, node_id)

    def on_peer_rejection(self, node_id: int, reason: str) -> None:
        """Reports a peer that rejects our handshake."""
        self._call_listener(self._listener.on_rejection, node_id, reason)

    # --- connections to us --------------------------------------------------------------------------------

    def on_connect(self, incoming: IncomingConnection) -> None:
        """Registers a connection; of too many without a handshake the oldest is closed."""
        if self._closed:
            incoming.abort()
            return
        self._unidentified[incoming] = None
        if len(self._unidentified) > self.limits.unidentified:
            oldest = next(iter(self._unidentified))
            self.warn(f"{oldest.peer}: closed, {self.limits.unidentified} connections have sent no handshake")
            del self._unidentified[oldest]
            oldest.abort()

    def on_handshake(self, incoming: IncomingConnection, handshake: PeerHandshake) -> str | None:
        """Checks a peer's handshake; a text rejects it."""
        node_id = handshake.node_id
        if node_id == self.node_id:
            return f"node {node_id} is here"
        try:
            rejection = self._listener.on_handshake(node_id, bytes(handshake.hello))
        except Exception:
            log_of_peers.exception("a handshake of node %d failed", node_id)
            rejection = "the handshake could not be handled"
        if rejection is not None:
            return rejection
        self._unidentified.pop(incoming, None)
        older = self._incoming.get((node_id, handshake.bulk))
        self._incoming[node_id, handshake.bulk] = incoming
        if older is not None:
            older.abort()
        peer = self._peers.get(node_id)
        if peer is not None:
            peer.retry_now()
        return None

    def on_closed(self, incoming: IncomingConnection) -> None:
        """Handles the end of a connection to us: responses on it will not come."""
        self._unidentified.pop(incoming, None)
        key = (incoming.node_id, incoming.bulk)
        if self._incoming.get(key) is incoming:
            del self._incoming[key]
            peer = self._peers.get(incoming.node_id)
            if peer is not None:
                peer.fail_requests(f"node {incoming.node_id} has closed its link")
                if peer.control.absent:
                    self.on_absence(incoming.node_id)

    def on_message(self, group_id: int, message: Message) -> None:
        """Passes on a Raft message of a peer."""
        try:
            self._listener.on_message(group_id, message)
        except Exception:
            log_of_peers.exception("a message failed: %.200r", message)

    def on_rpc_message(self, node_id: int, message: Struct) -> None:
        """Handles a notification, request or response. Raises MalformedMessage for anything else."""
        if isinstance(message, NotificationBody):
            self._call_listener(self._listener.on_notification, node_id, message.topic, bytes(message.body))
        elif isinstance(message, RequestBody):
            self._on_request(node_id, message)
        elif isinstance(message, ResponseBody):
            peer = self._peers.get(node_id)
            future = peer.pending_requests.get(message.request_id) if peer is not None else None
            if future is not None and not future.done():
                message.body = bytes(message.body)
                future.set_result(message)
        else:
            raise MalformedMessage(f"a {type(message).__name__} after the handshake")

    def _on_request(self, node_id: int, request: RequestBody) -> None:
        slot = node_id, request.topic
        if sum(each == slot for each in self._handling.values()) >= self.limits.max_requests:
            self._send_response(node_id, ResponseBody(request_id=request.request_id, error=TOO_MANY_REQUESTS))
            return
        task = self.loop.create_task(
            self._handle_request(node_id, request.request_id, request.topic, bytes(request.body))
        )
        self._handling[task] = slot
        task.add_done_callback(self._handling.pop)

    async def _handle_request(self, node_id: int, request_id: int, kind: int, body: bytes) -> None:
        try:
            response = ResponseBody(
                request_id=request_id, body=await self._listener.on_request(node_id, kind, body)
            )
        except PeerError as error:
            response = ResponseBody(request_id=request_id, error=str(error)[:MAX_ERROR_LENGTH])
        except Exception as error:
            log_of_peers.exception("a request of node %d failed", node_id)
            response = ResponseBody(
                request_id=request_id, error=f"{type(error).__name__} at node {self.node_id}"
            )
        self._send_response(node_id, response)

    def _send_response(self, node_id: int, response: ResponseBody) -> None:
        peer = self._peers.get(node_id)
        if peer is None or self._put_rpc(peer, response) or not peer.control.up:
            return
        # A response that is too large, or finds too many bytes before it.
        self._put_rpc(
            peer, ResponseBody(request_id=response.request_id, error="the response could not be sent")
        )

    # --- the listener -------------------------------------------------------------------------------------

    def _call_listener(self, call: object, *arguments: object) -> None:
        try:
            call(*arguments)  # type: ignore[operator]
        except Exception:
            log_of_peers.exception("a callback about a peer failed")

    def warn(self, text: str, same: Hashable = None) -> None:
        """See `RateLimitedLog.warning`."""
        self._limited_log.warning(text, same)
