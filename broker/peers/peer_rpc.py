"""The messages between nodes beside Raft's: statuses, requests and their responses.

Owns: the kinds of messages on the peer network, the notification of this node's status, and requests to the
leader of a log group. Invariants: a node of another cluster is rejected, and one that does not support the
metadata version, which gets nothing of group 0; a request goes to the known leader,
and is retried until one responds or its deadline passes. Does not: know the meaning of requests: each kind
has its handler in `handlers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Final, Protocol

from lockstep.broker.membership.placement import MAX_DATA_VOTERS
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.metadata.metadata_version import parse_reported
from lockstep.broker.network.listeners import host_and_port
from lockstep.broker.peers.metadata_versions import TOO_OLD
from lockstep.broker.peers.node_registry import NOBODY, NodeRegistry
from lockstep.broker.peers.node_status import Status
from lockstep.storage.group_options import node_of
from lockstep.storage.peers.envelope import is_bulky
from lockstep.storage.peers.limits import TOO_MANY_REQUESTS, PeerError, PeerUnreachable
from lockstep.storage.peers.network import PeerNetwork
from lockstep.storage.peers.peer_tls import PeerTls
from lockstep.storage.raft.messages import Message
from lockstep.storage.types import NotLeader, StorageError

log = logging.getLogger("lockstep.peers")

STATUS_SECONDS: Final = 0.5
"""The status is sent this often, and whenever it changes."""
RETRY_SECONDS: Final = 0.05
"""Between two attempts: a new leader is known some milliseconds after its election."""
ATTEMPT_SECONDS: Final = 5.0
"""The timeout of one attempt; its response may wait for a commit."""
MAX_NEWCOMERS: Final = 16
"""LIMIT. Nodes that are not part of the cluster, and are known by their handshake only."""
NEWCOMER_SECONDS: Final = 60.0
"""A newcomer without a connection for this long is forgotten."""


class Notification(IntEnum):
    """The kinds of notifications, which have no response."""

    STATUS = 1


class RequestKind(IntEnum):
    """The kinds of requests, which have a response."""

    FORWARD = 1
    GROUP = 2
    PRODUCER_IDS = 3
    REGISTER = 4
    TRANSFER = 5
    REPORT = 6
    MARKERS = 7
    VERIFY = 8
    DAMAGE = 9


NOT_LEADER_HERE: Final = "not led here"
"""The text of `NotLeaderHere` on the wire, where an error is a text: the requester looks for the leader
again."""


class NotLeaderHere(PeerError):
    """The node does not lead the request's group: the caller retries at another node."""


class LocalNode(Protocol):
    """The node for which `PeerRpc` sends and receives."""

    def status(self) -> Status:
        """Returns the current status."""

    def founders(self) -> list[int]:
        """The nodes that were configured at its start."""

    def data_groups(self) -> int:
        """Returns the number of data log groups that the cluster has, or is to have."""

    def data_replicas(self) -> int:
        """Returns the most nodes of each of them."""

    def cluster_id(self) -> str | None:
        """The cluster that it is, or was, part of; None for none yet."""

    def receive(self, group_id: int, message: Message) -> None:
        """Raft's message of a peer to a group."""

    def on_link_change(self, node_id: int, up: bool) -> None:
        """The connection to a node came up or went down."""

    def on_process_stopped(self, node_id: int) -> None:
        """The process of a node has ended."""

    def on_too_old(self, text: str) -> None:
        """A node rejects this one, which does not support the cluster's metadata version."""


class _NoNode:
    """The placeholder before `serve`."""

    def status(self) -> Status:
        return Status()

    def founders(self) -> list[int]:
        return []

    def data_groups(self) -> int:
        return 0

    def data_replicas(self) -> int:
        return MAX_DATA_VOTERS

    def cluster_id(self) -> str | None:
        return None

    def receive(self, group_id: int, message: Message) -> None:
        """Drop it."""

    def on_link_change(self, node_id: int, up: bool) -> None:
        """Nothing depends on it yet."""

    def on_process_stopped(self, node_id: int) -> None:
        """Nothing depends on it yet."""

    def on_too_old(self, text: str) -> None:
        """Nothing depends on it yet."""


class PeerRpc:
    """One node's requests, handlers and notifications; the owner of its `PeerNetwork`.

    Args: tls: the certificates of nodes; None for nodes without.
    """

    def __init__(
        self, nodes: NodeRegistry, loop: asyncio.AbstractEventLoop, tls: PeerTls | None = None
    ) -> None:
        self._nodes = nodes
        self._loop = loop
        self._node: LocalNode = _NoNode()
        self._certified_cluster_id = None if tls is None else tls.identity.cluster_id
        self.network = PeerNetwork(nodes.node_id, self, loop, tls=tls)
        self._versions = nodes.metadata_versions
        self._versions.is_connected = self.network.has_connection_from
        self.handlers: dict[RequestKind, Callable[[int, bytes], Awaitable[bytes]]] = {}
        """The handler of each kind of request, given the requesting node and the body. They raise
        NotLeaderHere, PeerError or StorageError."""
        self.open = False
        """Whether Raft's messages pass: not before this node knows its part in the cluster."""
        self._notifying = False
        self._known: set[int] = set()
        self._newcomers: dict[int, float] = {}
        """Nodes known by their handshake only, and the time of their last connection."""
        self._moved: dict[int, tuple[str, int]] = {}
        """The addresses that nodes reported themselves, which precede the recorded ones."""
        self.address: tuple[str, int] | None = None
        """The address of this node."""
        self.direct = True
        """This process itself listens there: a rejected connection proves that it has ended."""
        self._indirect: set[int] = set()
        """Nodes behind a proxy."""
        self._run = secrets.token_hex(8)
        """The id of this process, which distinguishes two processes with one node id."""
        self._runs: dict[int, object] = {}

    def serve(self, node: LocalNode) -> None:
        """Sends and receives for this node from now on."""
        self._node = node

    def add_node(self, node_id: int, host: str, port: int) -> None:
        """Adds another node, or changes its address."""
        if node_id != self._nodes.node_id:
            self._known.add(node_id)
            self._newcomers.pop(node_id, None)
            self.network.add_node(node_id, *self._moved.get(node_id, (host, port)))

    def forget(self, node_id: int) -> None:
        """Removes a node that is no longer part of the cluster."""
        self._known.discard(node_id)
        self._newcomers.pop(node_id, None)
        self._moved.pop(node_id, None)
        self.network.forget(node_id)

    def problem(self, node_id: int) -> str:
        """Returns a node's address, and why it is not reached."""
        at = self.network.address(node_id)
        where = "" if at is None else f"at {host_and_port(*at)}"
        why = self.network.problem(node_id)
        if not why:
            why = "no response yet"
            if self.network.is_up(node_id):
                here = "this node" if self.address is None else f"this node at {host_and_port(*self.address)}"
                why = f"it responds, but sends nothing: does it reach {here}?"
        return f"{where} ({why})".lstrip()

    # --- the status -----------------------------------------------------------------------------------------

    def notify_status_soon(self) -> None:
        """The status has changed: sends it once in this iteration of the loop."""
        if not self._notifying:
            self._notifying = True
            self._loop.call_soon(self._notify_status)

    def _notify_status(self) -> None:
        self._notifying = False
        body = self._node.status().encode()
        for node_id in self._known:
            self.network.notify(node_id, Notification.STATUS, body)

    async def run(self) -> None:
        """Sends the status at intervals, until cancelled."""
        while True:
            try:
                self._notify_status()
            except Exception:  # a node that sends no status is dead for the others
                log.exception("the status could not be sent")
            self._forget_newcomers()
            await asyncio.sleep(STATUS_SECONDS)

    def _forget_newcomers(self) -> None:
        """Forgets nodes without a connection: a removed node connects once more before it ends."""
        now = self._loop.time()
        for node_id, heard in tuple(self._newcomers.items()):
            if self.network.has_connection_from(node_id):
                self._newcomers[node_id] = now
            elif now - heard > NEWCOMER_SECONDS:
                self.forget(node_id)

    # --- requests -------------------------------------------------------------------------------------------

    async def request_from_leader(
        self,
        group: int,
        kind: RequestKind,
        body: bytes,
        seconds: float,
        attempt_seconds: float = ATTEMPT_SECONDS,
    ) -> bytes:
        """Sends a request to the leader of a group, for up to `seconds`; one attempt takes `attempt_seconds`.

        Where this node leads, its own handler is called, whose StorageError is passed on.

        Raises NotLeader where no leader responded in time, PeerError where the request is rejected.
        """
        problem = f"group {group} has no known leader"
        deadline = self._loop.time() + seconds
        while True:
            leader = self._nodes.live_leader_of(group)
            left = deadline - self._loop.time()
            if leader != NOBODY and left > 0:
                try:
                    if leader == self._nodes.node_id:
                        return await self.handlers[kind](leader, body)
                    return await self._request_from(leader, group, kind, body, attempt_seconds)
                except NotLeaderHere as error:
                    problem = str(error)
                except (PeerUnreachable, TimeoutError) as error:
                    problem = str(error) or f"node {leader} does not respond"
                except PeerError as error:
                    if str(error) not in (NOT_LEADER_HERE, TOO_MANY_REQUESTS):
                        raise
                    problem = f"node {leader} does not lead group {group} any more"
                    if str(error) == TOO_MANY_REQUESTS:
                        problem = f"node {leader} has too many requests"
            if self._loop.time() + RETRY_SECONDS >= deadline:
                raise NotLeader(problem)
            await asyncio.sleep(RETRY_SECONDS)

    async def _request_from(
        self, leader: int, group: int, kind: RequestKind, body: bytes, seconds: float
    ) -> bytes:
        """Sends a request, and abandons it where that node is silent and another one leads the group by now:
        a hanging process keeps its connection. A live node responds by itself."""
        pending = self._loop.create_task(self.network.request(leader, kind, body, seconds))
        try:
            while not (await asyncio.wait((pending,), timeout=STATUS_SECONDS))[0]:
                successor = self._nodes.live_leader_of(group)
                if successor not in (NOBODY, leader) and not self._nodes.is_alive(leader):
                    raise PeerUnreachable(
                        f"node {leader} does not respond, and leads group {group} no longer"
                    )
            return pending.result()
        finally:
            pending.cancel()

    # --- PeerListener ---------------------------------------------------------------------------------------

    def hello(self) -> bytes:
        """See `PeerListener`."""
        status = self._node.status()
        founders = [] if status.joined else self._node.founders()
        fields = {
            "cluster": self._node.cluster_id(),
            "founders": founders,
            "told": self._node.founders(),
            "groups": self._node.data_groups(),
            "at": self.address,
            "direct": self.direct,
            "run": self._run,
            "metadata_version": self._versions.supported_by(self._nodes.node_id),
        }
        if (replicas := self._node.data_replicas()) != MAX_DATA_VOTERS:
            fields["replicas"] = replicas
        return json.dumps(fields).encode()

    def on_handshake(self, node_id: int, hello: bytes) -> str | None:
        """See `PeerListener`."""
        try:
            fields = json.loads(hello)
            cluster_id, theirs, at, run = (
                fields["cluster"],
                fields["founders"],
                fields.get("at"),
                fields.get("run"),
            )
            groups, direct, configured = (
                fields.get("groups"),
                fields.get("direct", True),
                fields.get("told", theirs),
            )
            address = None if at is None else (str(at[0]), int(at[1]))
            supported = parse_reported(fields.get("metadata_version"))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            return "a malformed handshake"
        status, ours = self._node.status(), self._node.founders()
        here = self._node.cluster_id() or self._certified_cluster_id
        if None not in (cluster_id, here) and cluster_id != here:
            return f"this is cluster {here}, not {cluster_id}"
        if self._runs.get(node_id, run) != run and self.network.has_connection_from(node_id):
            return f"another node {node_id} is running"
        # One that has taken part already, in a cluster that is not recorded yet, counts as a founder for us.
        founding = cluster_id is None and not status.joined
        if founding and configured and configured != ours:
            return f"--peers names nodes {ours} here and {configured} there: founders must agree"
        # A founder that starts late has its vote recorded; one that was removed and comes back has none.
        has_vote = not status.voters or node_id in status.voters
        is_late = theirs and node_id in ours and node_id not in status.registered and has_vote
        begins = founding or is_late
        own = self._node.data_groups()
        if begins and groups not in (None, own):
            return f"lockstep.data.groups is {own} here and {groups} there: founders must agree"
        replicas = self._node.data_replicas()
        if begins and fields.get("replicas", MAX_DATA_VOTERS) != replicas:
            there = fields.get("replicas", MAX_DATA_VOTERS)
            return f"lockstep.data.replicas is {replicas} here and {there} there: founders must agree"
        if too_old := self._versions.report(node_id, supported):
            return too_old
        self._runs[node_id] = run
        (self._indirect.discard if direct else self._indirect.add)(node_id)
        if address is not None:
            self._add_newcomer(node_id, address)
        return None

    def _add_newcomer(self, node_id: int, address: tuple[str, int]) -> None:
        """Records the address of a node that is not part of the cluster yet, or that has a new address."""
        if node_id not in self._known:
            if len(self._newcomers) >= MAX_NEWCOMERS:
                return
            self._known.add(node_id)
            self._newcomers[node_id] = self._loop.time()
        self._moved[node_id] = address
        self.network.add_node(node_id, *address)

    def on_rejection(self, node_id: int, text: str) -> None:
        """See `PeerListener`."""
        if TOO_OLD in text:
            self._node.on_too_old(text)
        else:
            log.error("node %d rejects this one: %s", node_id, text)

    def on_message(self, group_id: int, message: Message) -> None:
        """See `PeerListener`."""
        if self.open:
            self._node.receive(group_id, message)

    def send(self, group_id: int, member_id: int, message: Message) -> None:
        """Sends a message of Raft's."""
        node_id = node_of(member_id)
        if self.open and (
            group_id != METADATA_GROUP or not is_bulky(message) or self._versions.may_get_entries(node_id)
        ):
            self.network.send(node_id, group_id, message)

    def on_notification(self, node_id: int, kind: int, body: bytes) -> None:
        """See `PeerListener`."""
        if kind == Notification.STATUS:
            try:
                self._nodes.on_status(node_id, Status.decode(body))
            except ValueError as error:
                log.warning("node %d: %s", node_id, error)

    async def on_request(self, node_id: int, kind: int, body: bytes) -> bytes:
        """See `PeerListener`."""
        handler = None
        with contextlib.suppress(ValueError):
            handler = self.handlers.get(RequestKind(kind))
        if handler is None:
            raise PeerError(f"request {kind} is unknown to this version")
        try:
            return await handler(node_id, body)
        except (NotLeaderHere, NotLeader):
            raise PeerError(NOT_LEADER_HERE) from None
        except StorageError as error:
            raise PeerError(str(error)) from error

    def on_process_stopped(self, node_id: int) -> None:
        """See `PeerListener`. It proves nothing for a node behind a proxy."""
        if node_id not in self._indirect:
            self._nodes.on_process_stopped(node_id)
            self._node.on_process_stopped(node_id)

    def on_link(self, node_id: int, up: bool) -> None:
        """See `PeerListener`."""
        if up:
            self.network.notify(node_id, Notification.STATUS, self._node.status().encode())
        else:
            self._nodes.on_connection_lost(node_id)
        self._node.on_link_change(node_id, up)
