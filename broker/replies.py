"""How an answer becomes the bytes of a reply.

Owns: a reply's length, header and body as pieces, large ones by reference; and which pieces are joined.
Does not: keep replies in order or send them (`connection.py`).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from broker.context import Encoded
from protocol.api import RequestHeader, response_header
from protocol.compiler import encode
from protocol.framing import LENGTH_BYTES
from protocol.primitives import Buffer, MalformedMessage

JOIN_BELOW_BYTES: Final = 4096
"""Smaller pieces are joined: copying them is cheaper than one more buffer for the kernel."""
_LENGTH: Final = Struct(">i")


class UnsayableAnswer(Exception):
    """A handler's answer does not fit its own table: a fault of ours."""


def encoded(header: RequestHeader, response: object) -> tuple[list[Buffer], int]:
    """The whole reply, length first, and its size."""
    api_version = header.api_version
    try:
        body = response.body if isinstance(response, Encoded) else encode(response, api_version)
    except MalformedMessage as error:  # not to be taken for the client's mistake
        raise UnsayableAnswer(f"{type(response).__name__}: {error}") from error
    head = response_header(header.api_key, api_version, header.correlation_id)
    if len(body) == 1:
        whole = head + body[0]
        return [_LENGTH.pack(len(whole)) + whole], len(whole) + LENGTH_BYTES
    length = len(head) + sum(map(len, body))
    return [_LENGTH.pack(length) + head, *body], length + LENGTH_BYTES


def joined(pieces: list[Buffer]) -> list[Buffer]:
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
