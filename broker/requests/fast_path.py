"""The interface between a connection and a fast path: requests that are served without being decoded.

Invariants: a fast path takes a request as a whole, or declines it before anything has changed; a request that
is taken has the effects and the response that the router's handler would have given it. The router stays
the specification. Does not: know what is in a request (`broker/produce/produce_fast_path.py`), or keep
responses in order (`broker/network/connection.py`).
"""

from __future__ import annotations

from typing import Protocol

from lockstep.broker.requests.request_context import ClientContext, PendingResponse
from lockstep.protocol.primitives import Buffer


class Reply(Protocol):
    """The place of one response in its connection's order."""

    buffers: list[Buffer] | None
    """The encoded response once it is complete; empty for a request without one."""
    reply_bytes: int
    request_bytes: int
    holds_fetch: bool
    pending: PendingResponse | None


class FastConnection(Protocol):
    """A connection, as a fast path uses it."""

    def on_reply(self, reply: Reply) -> None:
        """The reply has its buffers now."""

    def abort(self) -> None:
        """Close now."""


class FastRequests(Protocol):
    """The fast path of one connection."""

    def append(self, frame: memoryview) -> Reply | None:
        """Serve a request; its reply gets its buffers later. None: it is declined, and nothing has
        changed."""


class FastPath(Protocol):
    """A fast path."""

    def trim(self) -> None:
        """Forget what is remembered of objects that are gone."""

    def open(self, connection: FastConnection, client: ClientContext) -> FastRequests:
        """The fast path of a connection that has sent such a request."""
