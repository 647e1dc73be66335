"""The interface between a connection and a fast path: requests that are served without being decoded.

Invariants: a fast path takes a request as a whole, or declines it before anything has changed; a request that
is taken has the effects and the response that the router's handler would have given it. The router stays
the specification. Does not: know what is in a request (`broker/produce/produce_fast_path.py`,
`broker/fetch/fetch_fast_path.py`), or keep responses in order (`broker/network/connection.py`).
"""

from __future__ import annotations

from typing import Protocol

from lockstep.broker.requests.request_context import ClientContext, PendingResponse
from lockstep.protocol.api import RequestHeader
from lockstep.protocol.primitives import Buffer


class Reply(Protocol):
    """One response, in the order of its connection's requests."""

    buffers: list[Buffer] | None
    """The encoded response once it is complete; empty for a request without one."""
    reply_bytes: int
    request_bytes: int
    holds_fetch: bool
    pending: PendingResponse | None


class RoutedReply(Reply, Protocol):
    """A reply whose response the router's handler makes: it has the request's header."""

    @property
    def header(self) -> RequestHeader:
        """The header of the request; its client id may be missing."""

    def on_done(self, pending: PendingResponse) -> None:
        """The response is complete: encode and send it."""


class FastConnection(Protocol):
    """The part of a connection that a fast path uses."""

    def on_reply(self, reply: Reply) -> None:
        """Called when the reply has its buffers."""

    def on_response(self, reply: RoutedReply, pending: PendingResponse) -> None:
        """Called when the general path has made the response."""

    def abort(self) -> None:
        """Closes the connection at once."""


class ConnectionFastPath(Protocol):
    """The fast path of one connection."""

    def append(self, frame: memoryview) -> Reply | None:
        """Serves a request; its reply has its buffers, or gets them later. Returns None if it declines, and
        nothing has changed."""


class FastPath(Protocol):
    """A fast path of the broker, for all connections."""

    def trim(self) -> None:
        """Drops what is cached of deleted objects."""

    def open(self, connection: FastConnection, client: ClientContext) -> ConnectionFastPath:
        """Returns the fast path of a connection that has sent such a request."""
