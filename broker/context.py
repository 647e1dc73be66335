"""What a handler is given, and how it may answer.

Owns: `Services` (the broker as handlers see it), `ClientContext` (one per connection) and
`PendingResponse` (an answer that comes later, without a task).
Invariants: memoryviews inside a decoded request point into the connection's receive buffer and are
valid only until `handle` returns; a handler that needs the bytes later copies them (Produce does, once,
into the group's frame).
Does not: read sockets, encode, or order replies (`connection.py` does).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from broker.endpoint import Endpoint
from broker.time_slices import TimeSlicer
from protocol.api import RequestHeader
from protocol.primitives import Buffer
from storage.complaints import Complaints

if TYPE_CHECKING:
    from broker.append import Appender
    from broker.cluster.controller import Controller
    from broker.cluster.node import ClusterNode
    from broker.cluster.nodes import Nodes
    from broker.config_changes import ConfigChanges
    from broker.fetch_purgatory import FetchPurgatory
    from broker.fetch_session import FetchSessions
    from broker.groups.groups import Groups
    from broker.metadata import Cluster
    from broker.producer_ids import ProducerIds
    from broker.settings.config import Settings
    from broker.staging.ending import StagedEnds
    from broker.topics import Topics
    from broker.transactions.gate import ProduceGate
    from broker.transactions.markers import Markers
    from broker.transactions.transactions import Transactions
    from broker.transactions.verification import Verification


class ConnectionRejected(Exception):
    """A request whose only answer is the end of its connection; the text says why. No fault of ours."""

    is_same_for_all_clients = True
    """Does the text hold for all who ask so? It is in the log once a minute then, whoever asks."""


class PendingResponse:
    """A response completed later by a callback: the cheap way to answer after a commit.

    A handler returns it unfinished and calls `complete` (or `fail`) exactly once, on the loop's
    thread. Completing before the handler returns is allowed. `None` completes a request that has no
    response (Produce with acks=0).
    """

    __slots__ = ("_listener", "done", "failure", "on_disconnect", "response")

    holds_request = True
    """Does its size count as in flight until the answer? Not where little of it is kept, for minutes."""
    blocks_connection = False
    """Is the request worked on until then? So long nothing else of its connection is, and nothing is read."""

    def __init__(self) -> None:
        self.on_disconnect: Callable[[], None] | None = None
        """Called if the client goes away before the answer: the handler may stop waiting."""
        self.done = False
        self.response: object | None = None
        self.failure: BaseException | None = None
        self._listener: Callable[[PendingResponse], None] | None = None

    @property
    def is_long_poll(self) -> bool:
        """Does it do nothing but wait, so that who asks may just as well ask again?"""
        return self.on_disconnect is not None and not self.blocks_connection

    def on_shutdown(self) -> None:
        """This node is about to end: let what it works on be answered soon."""

    def complete(self, response: object | None) -> None:
        """Answer with a response message, or with nothing."""
        if self.done:
            raise RuntimeError("a request was answered twice")
        self.response = response
        self.done = True
        listener = self._listener
        if listener is not None:
            self._listener = None
            listener(self)

    def fail(self, failure: BaseException) -> None:
        """Give up on this request: its connection is closed, with a log line."""
        self.failure = failure
        self.complete(None)

    def complete_from(self, task: asyncio.Future[Any]) -> None:
        """Complete with what a task came to; a done callback. Does nothing if answered already."""
        if self.done:
            return
        if task.cancelled():
            self.fail(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.fail(error)
        else:
            self.complete(task.result())

    @staticmethod
    def from_awaitable(response: Awaitable[object | None]) -> PendingResponse:
        """What a coroutine comes to, in a task of its own."""
        pending = PendingResponse()
        asyncio.ensure_future(response).add_done_callback(pending.complete_from)
        return pending

    def listen(self, listener: Callable[[PendingResponse], None]) -> None:
        """Call `listener` once it is done; the connection's own use."""
        if self.done:
            listener(self)
        else:
            self._listener = listener


class EncodedResponse:
    """An answer whose body is encoded already, in the version asked: one that many clients get."""

    __slots__ = ("body",)

    def __init__(self, body: list[Buffer]) -> None:
        self.body = body


HandlerResponse = object | PendingResponse | Awaitable[object | None] | None
"""A response at once, a `PendingResponse`, a coroutine (run as a task: cold paths only), or None: no
response."""


async def await_response(response: HandlerResponse) -> object | None:
    """What a handler answers, at whatever time."""
    if isinstance(response, PendingResponse):
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_done(pending: PendingResponse) -> None:
            if not done.done():
                done.set_result(None)

        response.listen(on_done)
        await done
        if response.failure is not None:
            raise response.failure
        return response.response
    if isinstance(response, Awaitable):
        return await response
    return response


class Handler(Protocol):
    """What a module in `broker/handlers` is: its declaration is its version range.

    `API_KEY` (an `ApiKey`), `VERSIONS` (first and last version served) and `handle`. ApiVersions is
    computed from these; nothing else says what the broker serves.
    """

    API_KEY: int
    VERSIONS: tuple[int, int]

    def handle(self, context: ClientContext, header: RequestHeader, request: object) -> HandlerResponse:
        """Serve one decoded request."""


class Services:
    """The broker as handlers see it; one per broker, filled by `server.Broker.start`."""

    __slots__ = (
        "advertised",
        "appenders",
        "clock_ms",
        "cluster",
        "config_changes",
        "consumer_groups",
        "controller",
        "fetch_purgatory",
        "fetch_sessions",
        "loop",
        "markers",
        "node",
        "nodes",
        "producer_ids",
        "rate_limited_log",
        "staged_ends",
        "time_slicer",
        "topics",
        "transactions",
        "unsent_bytes",
        "verification",
        "verification_queue",
        "versions",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cluster: Cluster,
        nodes: Nodes,
        controller: Controller,
        topics: Topics,
        config_changes: ConfigChanges,
        appenders: Mapping[int, Appender],
        producer_ids: ProducerIds,
        consumer_groups: Groups,
        transactions: Transactions,
        fetch_sessions: FetchSessions,
        fetch_purgatory: FetchPurgatory,
        clock_ms: Callable[[], int],
    ) -> None:
        self.loop = loop
        self.time_slicer = TimeSlicer(loop.call_soon)
        """For what takes its client's requests, or one of them, more than a turn."""
        self.rate_limited_log = Complaints(loop.time, logging.getLogger("lockstep.connection"))
        """What connections and handlers have to say of their clients."""
        self.cluster = cluster
        self.nodes = nodes
        """Who is there, and who leads what."""
        self.controller = controller
        self.topics = topics
        self.config_changes = config_changes
        self.appenders = appenders
        """The append path into each data group, by group id."""
        self.producer_ids = producer_ids
        """Identities for idempotent producers."""
        self.consumer_groups = consumer_groups
        """Consumer groups: who looks after which."""
        self.transactions = transactions
        """Transactions: who coordinates which transactional id."""
        self.fetch_sessions = fetch_sessions
        self.fetch_purgatory = fetch_purgatory
        self.clock_ms = clock_ms
        self.node: ClusterNode | None = None
        """This node's life in a cluster of several; None for a node alone."""
        self.markers: Markers
        """The way of transactions' ends into partitions, wherever these are led."""
        self.verification: Verification
        """The way to the coordinator of a transactional id, wherever it is."""
        self.verification_queue: ProduceGate
        """Where transactional batches wait for it."""
        self.staged_ends: StagedEnds
        """How staged batches end in the groups that are led here."""
        self.unsent_bytes = 0
        """Large answers that are read from the disk now or wait for their clients; Fetch heeds it."""
        self.advertised: dict[str, tuple[str, int]] = {}
        """Listener name -> host ("" means: the address the client itself connected to) and port."""
        self.versions: dict[int, tuple[int, int]] = {}
        """API key -> first and last version advertised; the router fills it from its table."""

    @property
    def settings(self) -> Settings:
        """Those in force now."""
        return self.cluster.settings


class ClientContext:
    """Who asks: one per connection."""

    __slots__ = ("is_forwarded", "listener", "local_host", "peer", "services")

    def __init__(self, services: Services, listener: str, peer: str, local_host: str) -> None:
        self.is_forwarded = False
        """Whether another node has carried the request here."""
        self.services = services
        self.listener = listener
        self.peer = peer
        self.local_host = local_host

    @property
    def is_node(self) -> bool:
        """Whether another node asks for itself, and none of its clients."""
        return self.is_forwarded and not self.peer

    def endpoint(self) -> Endpoint:
        """This node, as this client can reach it."""
        services = self.services
        advertised = services.advertised
        host, port = advertised.get(self.listener) or next(iter(advertised.values()))
        settings = services.settings
        return Endpoint(settings.node_id, host or self.local_host, port, settings.broker_rack)

    def endpoints(self) -> list[Endpoint]:
        """The nodes that clients are told of, as this one can reach them."""
        return self.services.nodes.endpoints(self.listener, self.endpoint())

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """A node as this client can reach it; None where it cannot, or nobody is meant."""
        return self.services.nodes.endpoint(node_id, self.listener, self.endpoint())
