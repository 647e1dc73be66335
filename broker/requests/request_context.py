"""The context of a handler, and the forms of its response.

Owns: `RequestHandler` (what a handler declares), `ClientContext` (one per connection) and
`PendingResponse` (a response that comes later, without a task).
Invariants: memoryviews inside a decoded request point into the connection's receive buffer and are
valid only until `handle` returns; a handler that needs the bytes later copies them (Produce does, once,
into the group's frame).
Does not: read sockets, encode, or order replies (`broker/network/connection.py` does).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Collection
from typing import Any, ClassVar

from lockstep.broker.requests.kafka_principal import ANONYMOUS, KafkaPrincipal
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.protocol.api import RequestHeader
from lockstep.protocol.primitives import Buffer


class ConnectionRejected(Exception):
    """The connection of this request is closed without a response; the text has the reason. No fault of the
    broker."""

    is_same_for_all_clients = True
    """True if the text is the same for all clients: it is then logged once a minute for all of them."""


class PendingResponse:
    """A response completed later by a callback: the cheap way to respond after a commit.

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
            raise RuntimeError("a request got two responses")
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
    """Other nodes forward it to the controller (KIP-590), unless `RequestHandler.is_local` returns True."""
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

    def is_local(self, client: ClientContext, request: Any) -> bool:
        """Returns whether any node serves this request, though its API needs the controller."""
        return False

    def lapsed_leaderships(self, request: Any) -> Collection[Leadership]:
        """The leaderships that this request needs and that are without a lease now: where its API needs a
        coordinator, `handle` is called after their confirmation."""
        return ()


class ClientContext:
    """The client of a request: one per connection."""

    __slots__ = ("_principal", "decisions", "is_forwarded", "listener", "local_host", "peer")

    def __init__(
        self, listener: str, peer: str, local_host: str, principal: KafkaPrincipal = ANONYMOUS
    ) -> None:
        self.is_forwarded = False
        """True if another node forwarded the request."""
        self.decisions: object = None
        """What the authorizer has decided about this client (`broker/authorization/authorizer.py`)."""
        self._principal = principal
        self.listener = listener
        self.peer = peer
        self.local_host = local_host

    @property
    def principal(self) -> KafkaPrincipal:
        """The user as whom the connection's requests are served."""
        return self._principal

    @principal.setter
    def principal(self, principal: KafkaPrincipal) -> None:
        self._principal, self.decisions = principal, None

    @property
    def user_name(self) -> str:
        """The name of the user, without its type."""
        return self._principal.name

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self.peer.rpartition(":")[0]

    @property
    def is_node(self) -> bool:
        """True for a request of another node itself, not of its clients."""
        return self.is_forwarded and not self.peer
