"""Routes a request frame to its handler.

Owns: the table of handlers, and ApiVersions' content, which is computed from it. It differs from what is
served only where a client would fail otherwise: Produce is advertised from 0 (KAFKA-18659).
Invariants: an unknown API or version closes the connection, as in Kafka; but for ApiVersions itself, where
the response names the versions to try. A handler is called once; for a coordinator without a lease that is
after a read barrier, and the next request of its connection waits until then.
Does not: read frames or write replies (`broker/network/connection.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from lockstep.broker.requests.read_barrier import take_read_barrier
from lockstep.broker.requests.request_context import (
    ClientContext,
    ConnectionRejected,
    HandlerResponse,
    Needs,
    PendingResponse,
    RequestHandler,
    await_response,
)
from lockstep.broker.settings.properties import MIB
from lockstep.protocol.api import ApiKey, RequestHeader, messages_for
from lockstep.protocol.compiler import decode
from lockstep.protocol.fields import Struct
from lockstep.protocol.peer_messages import PeerHandshake

ADVERTISED_FROM: Final[Mapping[int, int]] = {ApiKey.PRODUCE: 0}
"""Lowest advertised versions that are below the served ones: librdkafka before its fix takes a higher one for
a broker without compression."""


MAX_REQUEST_BYTES: Final = 8 * MIB
"""LIMIT. Bytes of a request, whatever `socket.request.max.bytes` allows: the largest of ordinary clients name
50,000 partitions, and a hundred megabytes of indexes would block the loop for minutes."""

MAY_BE_LARGE: Final = frozenset({ApiKey.PRODUCE, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""These carry data. The metadata of a group's members has a limit of its own (`broker/groups/`)."""


class UnsupportedRequest(ConnectionRejected):
    """An API or a version that is not served; the connection is closed."""


class RequestTooLarge(ConnectionRejected):
    """More bytes than such a request may have; the connection is closed, as for a frame that is too large."""


def advertised_versions(handlers: Iterable[RequestHandler]) -> dict[int, tuple[int, int]]:
    """API key -> first and last version, as ApiVersions lists them."""
    return {
        int(handler.api_key): (ADVERTISED_FROM.get(handler.api_key, handler.versions[0]), handler.versions[1])
        for handler in handlers
        if handler.is_advertised
    }


class RequestForwarder(Protocol):
    """Forwards requests to the controller, as `broker/controller/forwarder.py` does."""

    @property
    def is_local_controller(self) -> bool:
        """True where this node is the controller."""

    def forward(
        self,
        client: ClientContext,
        header: RequestHeader,
        body: bytes,
        handle_locally: Callable[[], HandlerResponse],
    ) -> HandlerResponse:
        """Forward a request; `handle_locally` is called where no controller is found."""


class Route:
    """The way of one API's requests to their handler."""

    __slots__ = (
        "first",
        "handle",
        "is_local",
        "lapsed_leaderships",
        "last",
        "needs_controller",
        "needs_coordinator",
        "request",
        "request_count",
    )

    def __init__(self, handler: RequestHandler) -> None:
        self.first, self.last = handler.versions
        self.needs_controller = handler.needs is Needs.CONTROLLER
        self.needs_coordinator = handler.needs is Needs.COORDINATOR
        self.is_local = handler.is_local
        self.lapsed_leaderships = handler.lapsed_leaderships
        self.request: type[Struct] = messages_for(handler.api_key)[0]
        self.handle: Callable[[ClientContext, RequestHeader, Any], HandlerResponse] = handler.handle
        self.request_count = 0
        """The number of requests of a served version."""

    def serve(self, context: ClientContext, header: RequestHeader, body: bytes) -> HandlerResponse:
        """Serve a copied request."""
        return self.handle(context, header, self.decode(header, body))

    async def serve_after_barrier(
        self, context: ClientContext, header: RequestHeader, body: bytes
    ) -> HandlerResponse:
        """Serve a copied request after its read barrier. A PendingResponse is returned as it is, so that the
        connection takes further requests meanwhile."""
        request = self.decode(header, body)
        await take_read_barrier(partial(self.lapsed_leaderships, request))
        response = self.handle(context, header, request)
        return response if isinstance(response, PendingResponse) else await await_response(response)

    def decode(self, header: RequestHeader, body: bytes) -> Struct:
        """The request in a body of its own."""
        return decode(self.request, header.api_version, body, 0, trailing=True)


class Router:
    """The routes of one broker.

    Args: handlers: all that are served. forwarder: the way to the controller. unknown_version: the
    response to an ApiVersions request of a version that is not served.
    """

    __slots__ = ("_forwarder", "_routes", "_unknown_version", "handlers")

    def __init__(
        self,
        handlers: Iterable[RequestHandler],
        forwarder: RequestForwarder,
        unknown_version: Callable[[], object],
    ) -> None:
        self.handlers = tuple(handlers)
        self._routes = {int(handler.api_key): Route(handler) for handler in self.handlers}
        self._forwarder = forwarder
        self._unknown_version = unknown_version

    def route(
        self, context: ClientContext, header: RequestHeader, frame: memoryview, pos: int
    ) -> HandlerResponse:
        """Decode the body at `pos` and hand it to its handler.

        May set `header.api_version` to the version that the response is to be encoded in.
        Raises UnsupportedRequest, RequestTooLarge, MalformedMessage, or whatever a handler raises.
        """
        route = self._routes.get(header.api_key)
        if route is None:
            if header.api_key == PeerHandshake.SCHEMA.api_key:
                raise UnsupportedRequest(
                    "a node takes this port for a replication listener: its --peers names the wrong one"
                )
            raise UnsupportedRequest(f"API {_name(header.api_key)} is not served")
        version = header.api_version
        if not route.first <= version <= route.last:
            if header.api_key == ApiKey.API_VERSIONS:
                header.api_version = 0
                return self._unknown_version()
            raise UnsupportedRequest(
                f"version {version} of API {_name(header.api_key)} is not served, "
                f"only {route.first} to {route.last}"
            )
        if len(frame) > MAX_REQUEST_BYTES and header.api_key not in MAY_BE_LARGE:
            raise RequestTooLarge(
                f"{_name(header.api_key)} of {len(frame)} bytes, at most {MAX_REQUEST_BYTES}"
            )
        route.request_count += 1
        request = decode(route.request, version, frame, pos, trailing=True)
        if (
            route.needs_controller
            and not self._forwarder.is_local_controller
            and not route.is_local(context, request)
        ):
            body = bytes(frame[pos:])
            return self._forwarder.forward(context, header, body, partial(route.serve, context, header, body))
        if route.needs_coordinator and route.lapsed_leaderships(request):
            return route.serve_after_barrier(context, header, bytes(frame[pos:]))
        return route.handle(context, header, request)

    def route_of(self, api_key: int) -> Route:
        """The route of an API that is served."""
        return self._routes[api_key]

    def request_counts(self) -> dict[str, int]:
        """The number of requests of each API so far, by Kafka's names."""
        routes = self._routes.values()
        return {route.request.__name__.removesuffix("Request"): route.request_count for route in routes}


def _name(api_key: int) -> str:
    try:
        return f"{ApiKey(api_key).name} ({api_key})"
    except ValueError:
        return str(api_key)
