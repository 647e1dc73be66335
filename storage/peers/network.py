"""What a broker uses of its peers: it knows them, sends them Raft's messages, tells and asks them things.

Invariants: everything is called on the loop, and the owner always in a turn of the loop's own, so that what
`send` finds out about a link never interrupts who sends. Whatever a peer does ends at most its own
connections. A question is answered once, refused, or its link is lost, or its time is over. Does not say
who is a peer: the owner does, and hears every greeting.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Hashable
from typing import Protocol

from protocol.fields import Struct
from protocol.peer_messages import NotificationBody, PeerHandshake, RequestBody, ResponseBody
from protocol.primitives import MalformedMessage
from storage.complaints import Complaints
from storage.peers.envelope import Frame, is_bulky, pack, pack_message
from storage.peers.incoming import Incoming
from storage.peers.limits import (
    BACKLOG,
    LONGEST_ERROR,
    TOO_MANY_QUESTIONS,
    PeerError,
    PeerLimits,
    PeerUnreachable,
)
from storage.peers.outgoing import Link
from storage.raft.messages import Message

__all__ = ["PeerError", "PeerLimits", "PeerNetwork", "PeerOwner", "PeerUnreachable"]

log_of_peers = logging.getLogger(__name__)


class PeerOwner(Protocol):
    """Who is told, always on the loop."""

    def hello(self) -> bytes:
        """What we say first on every connection: small, opaque here."""

    def on_greeted(self, node_id: int, hello: bytes) -> str | None:
        """A peer has dialed us; a text refuses it. Called for each of its two connections."""

    def on_refused(self, node_id: int, text: str) -> None:
        """A peer has refused our greeting; it will be tried again. Told once for the same words, and not
        logged before."""

    def on_message(self, group_id: int, message: Message) -> None:
        """A Raft message; who sent it is who it says."""

    def on_told(self, node_id: int, kind: int, body: bytes) -> None:
        """What a peer told us."""

    def on_asked(self, node_id: int, kind: int, body: bytes) -> Awaitable[bytes]:
        """The answer to a peer's question; PeerError(text) refuses."""

    def on_absent(self, node_id: int) -> None:
        """The process of a peer has ended: its host says that nobody listens there, and no connection from
        there is open. Told at each attempt to dial."""

    def on_link(self, node_id: int, up: bool) -> None:
        """Both our links to a peer are up; or one is lost, and what was on its way with it."""


class _Peer:
    """One other node."""

    __slots__ = ("_network", "address", "asks", "bulk", "control", "node_id", "refusal", "up")

    def __init__(self, network: PeerNetwork, node_id: int, address: tuple[str, int]) -> None:
        self._network = network
        self.node_id = node_id
        self.address = address
        self.up = False
        """As the owner was told."""
        self.refusal = ""
        self.asks: dict[int, asyncio.Future[ResponseBody]] = {}
        loop, limits = network.loop, network.limits
        self.bulk = Link(f"bulk link to node {node_id}", address, True, self, loop, limits)
        self.control = Link(f"control link to node {node_id}", address, False, self, loop, limits)

    def greeting(self, bulk: bool) -> Frame:
        return self._network.greeting(self.node_id, bulk)

    def on_link(self, link: Link, up: bool) -> None:
        if up and not (self.control.up and self.bulk.up):
            return
        self.refusal = ""
        if not up:
            self.unanswered(f"the link to node {self.node_id} is lost")
        if up != self.up:
            self.up = up
            self._network.linked(self.node_id, up)

    def on_absent(self) -> None:
        self._network.absent(self.node_id)

    def on_refused(self, reason: str) -> None:
        if reason != self.refusal:
            self.refusal = reason
            self._network.refused(self.node_id, reason)

    def hurry(self) -> None:
        self.control.hurry()
        self.bulk.hurry()

    def unanswered(self, reason: str) -> None:
        """No answers will come."""
        asks, self.asks = self.asks, {}
        for future in asks.values():
            if not future.done():
                future.set_exception(PeerUnreachable(reason))


class PeerNetwork:
    """See the module. `loop` is the running one, or the one that will run."""

    def __init__(
        self,
        node_id: int,
        owner: PeerOwner,
        loop: asyncio.AbstractEventLoop,
        *,
        limits: PeerLimits | None = None,
    ) -> None:
        self.node_id = node_id
        self.loop = loop
        self.limits = PeerLimits() if limits is None else limits
        self._owner = owner
        self._peers: dict[int, _Peer] = {}
        self._servers: list[asyncio.Server] = []
        self._strangers: dict[Incoming, None] = {}
        self._incoming: dict[tuple[int, bool], Incoming] = {}
        self._answering: dict[asyncio.Task[None], tuple[int, int]] = {}
        """Questions that are being answered: whose, and of which kind."""
        self._ending: set[asyncio.Task[None]] = set()
        # Not from 0: an answer to who had our node id before us must not be taken for ours.
        self._next_ask = random.getrandbits(48)
        self._complaints = Complaints(loop.time, log_of_peers)
        self._closed = False

    # --- what the owner asks ------------------------------------------------------------------------------

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Take connections of peers on bound sockets, which are closed with us. Raises OSError."""
        for bound in sockets:
            bound.listen(BACKLOG)  # uvloop does so too, but keeps a failure to itself
            server = await self.loop.create_server(
                lambda: Incoming(self, self.loop, self.limits), sock=bound, backlog=BACKLOG
            )
            self._servers.append(server)

    def know(self, node_id: int, host: str, port: int) -> None:
        """Dial this node from now on, for ever; a new address takes the place of the old one."""
        peer = self._peers.get(node_id)
        if node_id == self.node_id or self._closed or (peer and peer.address == (host, port)):
            return
        self._drop(node_id)
        self._peers[node_id] = _Peer(self, node_id, (host, port))

    def forget(self, node_id: int) -> None:
        """Dial this node no more, and end its connections to us. It is the owner's to refuse it."""
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

    def tell(self, node_id: int, kind: int, body: bytes) -> None:
        """Let a peer know; what is not sent yet, also for want of a link, is replaced by a newer one."""
        peer = self._peers.get(node_id)
        if peer is not None:
            peer.control.tell(kind, pack(NotificationBody(topic=kind, body=body)))

    async def ask(self, node_id: int, kind: int, body: bytes, timeout_s: float) -> bytes:
        """The peer's answer. A question may have been heard where no answer comes.

        Raises PeerError with its words, PeerUnreachable, TimeoutError.
        """
        peer = self._peers.get(node_id)
        if peer is None:
            raise PeerUnreachable(f"node {node_id} is not known")
        request_id = self._next_ask
        self._next_ask += 1
        future: asyncio.Future[ResponseBody] = self.loop.create_future()
        peer.asks[request_id] = future
        try:
            if not self._put_words(peer, RequestBody(request_id=request_id, topic=kind, body=body)):
                raise PeerUnreachable(f"no link to node {node_id}")
            async with asyncio.timeout(timeout_s):
                answer = await future
        finally:
            peer.asks.pop(request_id, None)
        if answer.error is not None:
            raise PeerError(answer.error)
        return bytes(answer.body)

    def hears(self, node_id: int) -> bool:
        """Whether a connection of this node to us is open."""
        return (node_id, False) in self._incoming or (node_id, True) in self._incoming

    def is_up(self, node_id: int) -> bool:
        """Whether what is sent has a chance to arrive."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.control.up and peer.bulk.up

    def address(self, node_id: int) -> tuple[str, int] | None:
        """Where a node is dialed; None where it is not."""
        peer = self._peers.get(node_id)
        return None if peer is None else peer.address

    def problem(self, node_id: int) -> str:
        """Why a node is not reached, in words; "" where it is, or where no attempt has ended yet."""
        peer = self._peers.get(node_id)
        if peer is None or self.is_up(node_id):
            return ""
        return peer.control.problem or peer.bulk.problem

    async def close(self) -> None:
        """End every connection; nobody is told anything any more."""
        self._closed = True
        for server in self._servers:
            server.close()
        for incoming in [*self._strangers, *self._incoming.values()]:
            incoming.abort()
        for node_id in list(self._peers):
            self._drop(node_id)
        for task in self._answering:
            task.cancel()
        pending = {*self._ending, *self._answering}
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
        peer.unanswered(f"node {node_id} is dialed no more")
        if peer.up:
            self.loop.call_soon(self.linked, node_id, False)

    def _put(self, link: Link, frame: Frame) -> bool:
        if frame[1] > self.limits.frame_bytes:
            self.complain(f"a message of {frame[1]} bytes is too large to be sent")
            return False
        return link.send(frame)

    def _put_words(self, peer: _Peer, words: Struct) -> bool:
        frame = pack(words)
        return self._put(peer.bulk if frame[1] > self.limits.large_bytes else peer.control, frame)

    def greeting(self, to_node_id: int, bulk: bool) -> Frame:
        """What a link says first."""
        hello = self._owner.hello()
        return pack(PeerHandshake(node_id=self.node_id, to_node_id=to_node_id, bulk=bulk, hello=hello))

    def linked(self, node_id: int, up: bool) -> None:
        """A peer's links are up, or not any more."""
        if not self._closed:
            log_of_peers.info("node %d is %s", node_id, "reached" if up else "not reached any more")
            self._told_owner(self._owner.on_link, node_id, up)

    def absent(self, node_id: int) -> None:
        """Nobody listens where a peer should, or a firewall says so for a host that lives. A process that has
        ended holds no connection to us; where that is seen later than the refusal, `on_closed` comes here."""
        if not self.hears(node_id):
            self._told_owner(self._owner.on_absent, node_id)

    def refused(self, node_id: int, reason: str) -> None:
        """A peer wants nothing of us."""
        self._told_owner(self._owner.on_refused, node_id, reason)

    # --- connections to us --------------------------------------------------------------------------------

    def on_stranger(self, incoming: Incoming) -> None:
        """Somebody has connected; of too many strangers the oldest goes."""
        if self._closed:
            incoming.abort()
            return
        self._strangers[incoming] = None
        if len(self._strangers) > self.limits.strangers:
            oldest = next(iter(self._strangers))
            self.complain(f"{oldest.peer}: makes way, {self.limits.strangers} have not greeted")
            del self._strangers[oldest]
            oldest.abort()

    def on_greeting(self, incoming: Incoming, greeting: PeerHandshake) -> str | None:
        """Who it is; or why it is refused."""
        node_id = greeting.node_id
        if node_id == self.node_id:
            return f"node {node_id} is here"
        try:
            refusal = self._owner.on_greeted(node_id, bytes(greeting.hello))
        except Exception:
            log_of_peers.exception("a greeting of node %d failed", node_id)
            refusal = "the greeting could not be handled"
        if refusal is not None:
            return refusal
        self._strangers.pop(incoming, None)
        older = self._incoming.get((node_id, greeting.bulk))
        self._incoming[node_id, greeting.bulk] = incoming
        if older is not None:
            older.abort()
        peer = self._peers.get(node_id)
        if peer is not None:
            peer.hurry()
        return None

    def on_closed(self, incoming: Incoming) -> None:
        """A connection to us is over: answers that were to come on it will not."""
        self._strangers.pop(incoming, None)
        key = (incoming.node_id, incoming.bulk)
        if self._incoming.get(key) is incoming:
            del self._incoming[key]
            peer = self._peers.get(incoming.node_id)
            if peer is not None:
                peer.unanswered(f"node {incoming.node_id} has closed its link")
                if peer.control.absent:
                    self.absent(incoming.node_id)

    def on_message(self, group_id: int, message: Message) -> None:
        """A Raft message of a peer."""
        try:
            self._owner.on_message(group_id, message)
        except Exception:
            log_of_peers.exception("a message failed: %.200r", message)

    def on_words(self, node_id: int, words: Struct) -> None:
        """Something told, asked or answered. Raises MalformedMessage for anything else."""
        if isinstance(words, NotificationBody):
            self._told_owner(self._owner.on_told, node_id, words.topic, bytes(words.body))
        elif isinstance(words, RequestBody):
            self._asked(node_id, words)
        elif isinstance(words, ResponseBody):
            peer = self._peers.get(node_id)
            future = peer.asks.get(words.request_id) if peer is not None else None
            if future is not None and not future.done():
                words.body = bytes(words.body)
                future.set_result(words)
        else:
            raise MalformedMessage(f"a {type(words).__name__} in the midst of a conversation")

    def _asked(self, node_id: int, asked: RequestBody) -> None:
        slot = node_id, asked.topic
        if sum(each == slot for each in self._answering.values()) >= self.limits.asks:
            self._answer(node_id, ResponseBody(request_id=asked.request_id, error=TOO_MANY_QUESTIONS))
            return
        task = self.loop.create_task(
            self._answered(node_id, asked.request_id, asked.topic, bytes(asked.body))
        )
        self._answering[task] = slot
        task.add_done_callback(self._answering.pop)

    async def _answered(self, node_id: int, request_id: int, kind: int, body: bytes) -> None:
        try:
            answer = ResponseBody(request_id=request_id, body=await self._owner.on_asked(node_id, kind, body))
        except PeerError as error:
            answer = ResponseBody(request_id=request_id, error=str(error)[:LONGEST_ERROR])
        except Exception as error:
            log_of_peers.exception("a question of node %d failed", node_id)
            answer = ResponseBody(
                request_id=request_id, error=f"{type(error).__name__} at node {self.node_id}"
            )
        self._answer(node_id, answer)

    def _answer(self, node_id: int, answer: ResponseBody) -> None:
        peer = self._peers.get(node_id)
        if peer is None or self._put_words(peer, answer) or not peer.control.up:
            return
        # An answer that is too large, or finds too much before it.
        self._put_words(
            peer, ResponseBody(request_id=answer.request_id, error="the answer could not be sent")
        )

    # --- people -------------------------------------------------------------------------------------------

    def _told_owner(self, call: object, *arguments: object) -> None:
        try:
            call(*arguments)  # type: ignore[operator]
        except Exception:
            log_of_peers.exception("what a peer did could not be handled")

    def complain(self, text: str, same: Hashable = None) -> None:
        """As `Complaints.say`."""
        self._complaints.say(text, same)
