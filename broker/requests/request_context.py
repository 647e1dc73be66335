"""The context of a handler, and the forms of its response.

Owns: `Services` (the broker as handlers see it), `ClientContext` (one per connection) and
`PendingResponse` (a response that comes later, without a task).
Invariants: memoryviews inside a decoded request point into the connection's receive buffer and are
valid only until `handle` returns; a handler that needs the bytes later copies them (Produce does, once,
into the group's frame).
Does not: read sockets, encode, or order replies (`connection.py` does).
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.protocol.api import RequestHeader
from lockstep.protocol.primitives import Buffer
from lockstep.storage.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from lockstep.broker.controller.config_changes import ConfigChanges
    from lockstep.broker.controller.forwarder import Controller
    from lockstep.broker.controller.topics import Topics
    from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
    from lockstep.broker.fetch.fetch_session import FetchSessions
    from lockstep.broker.groups.group_coordinators import Groups
    from lockstep.broker.metadata.metadata_cache import Cluster
    from lockstep.broker.node.cluster_node import ClusterNode
    from lockstep.broker.peers.node_registry import Nodes
    from lockstep.broker.produce.appender import Appender
    from lockstep.broker.settings.config import Settings
    from lockstep.broker.staging.stage_commit import StagedEnds
    from lockstep.broker.transactions.marker_sender import Markers
    from lockstep.broker.transactions.producer_id_blocks import ProducerIds
    from lockstep.broker.transactions.transaction_coordinators import Transactions
    from lockstep.broker.transactions.verification_client import Verification
    from lockstep.broker.transactions.verification_queue import VerificationQueue


class ConnectionRejected(Exception):
    """The connection of this request is closed without a response; the text says why. No fault of the
    broker."""

    is_same_for_all_clients = True
    """True if the text is the same for all clients: it is then logged once a minute for all of them."""


class PendingResponse:
    """A response completed later by a callback: the cheap way to answer after a commit.

    A handler returns it unfinished and calls `complete` (or `fail`) exactly once, on the loop's
    thread. Completing before the handler returns is allowed. `None` completes a request that has no
    response (Produce with acks=0).
    """

    __slots__ = ("_listener", "done", "failure", "on_disconnect", "response")

    holds_request = True
    """True if the request counts as in flight until the response; false for a long poll that keeps little of
    it."""
    blocks_connection = False
    """True while the broker works on the request: its connection reads and dispatches nothing meanwhile."""

    def __init__(self) -> None:
        self.on_disconnect: Callable[[], None] | None = None
        """Called if the client disconnects before the response: the handler may stop waiting."""
        self.done = False
        self.response: object | None = None
        self.failure: BaseException | None = None
        self._listener: Callable[[PendingResponse], None] | None = None

    @property
    def is_long_poll(self) -> bool:
        """True if the request only waits, so that the client may as well repeat it."""
        return self.on_disconnect is not None and not self.blocks_connection

    def on_shutdown(self) -> None:
        """The node is stopping: complete the response soon."""

    def complete(self, response: object | None) -> None:
        """Complete with a response message, or None for no response."""
        if self.done:
            raise RuntimeError("a request was answered twice")
        self.response = response
        self.done = True
        listener = self._listener
        if listener is not None:
            self._listener = None
            listener(self)

    def fail(self, failure: BaseException) -> None:
        """Fail the request: its connection is closed, with a log line."""
        self.failure = failure
        self.complete(None)

    def complete_from(self, task: asyncio.Future[Any]) -> None:
        """Complete with the result of a task; a done callback. Does nothing if completed already."""
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
        """A response that completes with a coroutine, which runs in its own task."""
        pending = PendingResponse()
        asyncio.ensure_future(response).add_done_callback(pending.complete_from)
        return pending

    def listen(self, listener: Callable[[PendingResponse], None]) -> None:
        """Call `listener` when it is done; only the connection uses it."""
        if self.done:
            listener(self)
        else:
            self._listener = listener


class EncodedResponse:
    """A response whose body is encoded already, in the request's version: one that many clients get."""

    __slots__ = ("body",)

    def __init__(self, body: list[Buffer]) -> None:
        self.body = body


HandlerResponse = object | PendingResponse | Awaitable[object | None] | None
"""A response at once, a `PendingResponse`, a coroutine (run as a task: cold paths only), or None: no
response."""


async def await_response(response: HandlerResponse) -> object | None:
    """Wait for the response of a handler, in any form."""
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


class Needs(enum.Enum):
    """The nodes that may serve a request."""

    ANY_NODE = enum.auto()
    CONTROLLER = enum.auto()
    """Other nodes forward it to the controller (KIP-590), unless `RequestHandler.is_local` says otherwise."""
    COORDINATOR = enum.auto()
    """Any node responds, after a read barrier of the coordinators in `RequestHandler.lapsed_leaderships`."""


class RequestHandler:
    """The handler of one API. A subclass declares `api_key`, `versions` (first and last version served) and
    `needs`; its constructor names the objects that it uses. ApiVersions is computed from the declarations.
    """

    api_key: ClassVar[int]
    versions: ClassVar[tuple[int, int]]
    needs: ClassVar[Needs] = Needs.ANY_NODE
    is_advertised: ClassVar[bool] = True
    """False for Lockstep's own APIs, which ApiVersions does not list."""

    def handle(self, client: ClientContext, header: RequestHeader, request: Any) -> HandlerResponse:
        """Serve one decoded request. Raises ConnectionRejected."""
        raise NotImplementedError

    def is_local(self, request: Any) -> bool:
        """Returns whether any node serves this request, though its API needs the controller."""
        return False

    def lapsed_leaderships(self, request: Any) -> Collection[Leadership]:
        """The leaderships that this request needs and that are without a lease now: where its API needs a
        coordinator, `handle` is called after their confirmation."""
        return ()


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
        """Queues the work of requests that takes more than one time slice."""
        self.rate_limited_log = RateLimitedLog(loop.time, logging.getLogger("lockstep.connection"))
        """The log of client errors, for connections and handlers."""
        self.cluster = cluster
        self.nodes = nodes
        """The nodes of the cluster and the leaders of log groups."""
        self.controller = controller
        self.topics = topics
        self.config_changes = config_changes
        self.appenders = appenders
        """The append path into each data group, by group id."""
        self.producer_ids = producer_ids
        """Identities for idempotent producers."""
        self.consumer_groups = consumer_groups
        """The coordinators of consumer groups."""
        self.transactions = transactions
        """The coordinators of transactional ids."""
        self.fetch_sessions = fetch_sessions
        self.fetch_purgatory = fetch_purgatory
        self.clock_ms = clock_ms
        self.node: ClusterNode | None = None
        """This node in a cluster of several; None for a single node."""
        self.markers: Markers
        """Sends transaction markers to the leaders of partitions."""
        self.verification: Verification
        """Asks the coordinator of a transactional id to verify partitions."""
        self.verification_queue: VerificationQueue
        """Transactional batches that wait for their verification."""
        self.staged_ends: StagedEnds
        """Ends staged batches in the groups that this node leads."""
        self.unsent_bytes = UnsentBytes()
        """Bytes of large responses that are being read from the disk or wait for their clients; it limits
        Fetch."""
        self.advertised: dict[str, tuple[str, int]] = {}
        """Listener name -> host ("" means: the address the client itself connected to) and port."""

    @property
    def settings(self) -> Settings:
        """The settings in force now."""
        return self.cluster.settings


class ClientContext:
    """The client of a request: one per connection."""

    __slots__ = ("is_forwarded", "listener", "local_host", "peer", "services")

    def __init__(self, services: Services, listener: str, peer: str, local_host: str) -> None:
        self.is_forwarded = False
        """True if another node forwarded the request."""
        self.services = services
        self.listener = listener
        self.peer = peer
        self.local_host = local_host

    @property
    def is_node(self) -> bool:
        """True for a request of another node itself, not of its clients."""
        return self.is_forwarded and not self.peer

    def endpoint(self) -> Endpoint:
        """This node, as this client can reach it."""
        services = self.services
        advertised = services.advertised
        host, port = advertised.get(self.listener) or next(iter(advertised.values()))
        settings = services.settings
        return Endpoint(settings.node_id, host or self.local_host, port, settings.broker_rack)

    def endpoints(self) -> list[Endpoint]:
        """The advertised nodes, as this client can reach them."""
        return self.services.nodes.endpoints(self.listener, self.endpoint())

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """A node as this client can reach it; None where it cannot, or for no node."""
        return self.services.nodes.endpoint(node_id, self.listener, self.endpoint())
