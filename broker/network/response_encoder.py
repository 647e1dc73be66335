"""Encodes a response into the bytes of a reply.

Owns: `EncodedReply`, a response's place in the order; its length, header and body as pieces, large ones by
reference; and which pieces are joined. Does not: keep replies in order or send them (`connection.py`).
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import Final, Protocol

from lockstep.broker.requests.fast_path import RoutedReply
from lockstep.broker.requests.request_context import EncodedResponse, PendingResponse
from lockstep.protocol.api import RequestHeader, response_header
from lockstep.protocol.compiler import encode
from lockstep.protocol.frame_reader import LENGTH_BYTES
from lockstep.protocol.primitives import Buffer, MalformedMessage

log = logging.getLogger("lockstep.connection")

JOIN_BELOW_BYTES: Final = 4096
"""Smaller pieces are joined: copying them is cheaper than one more buffer for the kernel."""
_LENGTH: Final = Struct(">i")


class ResponseEncodingError(Exception):
    """A handler's response does not fit its own schema: a fault of the broker."""


class ReplySink(Protocol):
    """The connection that a reply is for."""

    def on_response(self, reply: RoutedReply, pending: PendingResponse) -> None:
        """The reply's response is complete."""

    def abort(self) -> None:
        """Close now."""


class EncodedReply:
    """The place of one response in its connection's order."""

    __slots__ = (
        "buffers",
        "connection",
        "header",
        "holds_fetch",
        "pending",
        "reply_bytes",
        "request_bytes",
    )

    def __init__(
        self, connection: ReplySink, header: RequestHeader, request_bytes: int, holds_fetch: bool
    ) -> None:
        self.connection = connection
        self.header = header
        self.request_bytes = request_bytes
        self.holds_fetch = holds_fetch
        self.buffers: list[Buffer] | None = None
        """The encoded response once it is complete; empty for a request without one."""
        self.reply_bytes = 0
        self.pending: PendingResponse | None = None

    def on_done(self, pending: PendingResponse) -> None:
        """The response is complete. Raises nothing: its caller has other requests to serve."""
        self.pending = None
        try:
            self.connection.on_response(self, pending)
        except Exception:
            log.exception("a connection failed")
            self.connection.abort()


def encode_reply(header: RequestHeader, response: object) -> tuple[list[Buffer], int]:
    """The whole reply, length first, and its size."""
    api_version = header.api_version
    try:
        body = response.body if isinstance(response, EncodedResponse) else encode(response, api_version)
    except MalformedMessage as error:  # not to be taken for the client's mistake
        raise ResponseEncodingError(f"{type(response).__name__}: {error}") from error
    head = response_header(header.api_key, api_version, header.correlation_id)
    if len(body) == 1:
        length = len(head) + len(body[0])
        return [b"".join((_LENGTH.pack(length), head, body[0]))], length + LENGTH_BYTES
    length = len(head) + sum(map(len, body))
    return [_LENGTH.pack(length) + head, *body], length + LENGTH_BYTES


def coalesce(pieces: list[Buffer]) -> list[Buffer]:
    """The same bytes, runs of small pieces made one."""
    result: list[Buffer] = []
    small: list[Buffer] = []
    for piece in pieces:
        if len(piece) < JOIN_BELOW_BYTES:
            small.append(piece)
            continue
        if small:
            result.append(b"".join(small))
            small = []
        result.append(piece)
    if small:
        result.append(b"".join(small))
    return result
