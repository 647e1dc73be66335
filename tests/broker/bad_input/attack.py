"""Sending what no client would send, and telling what came of it."""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from lockstep.broker.server import Broker
from lockstep.protocol.api import messages_for, request_header_version
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.served import served_versions
from tests.broker.wire import Client, frame

INT_MAX: Final = 2**31 - 1
PATIENCE_SECONDS: Final = 20.0
PING_ID: Final = 0x0BAD_F00D
SERVED: Final = sorted((key, *versions) for key, versions in served_versions().items())
"""(API key, first version, last version) of everything served."""


def request_class(api_key: int) -> type[Struct]:
    """The request table of an API."""
    return messages_for(api_key)[0]


def api_id(served: tuple[int, int, int]) -> str:
    """For parametrized tests."""
    return request_class(served[0]).SCHEMA.name


def head(api_key: int, version: int, correlation_id: int = 1, client_id: str | bytes = "bad") -> bytes:
    """A request header as it should be."""
    name = client_id.encode() if isinstance(client_id, str) else client_id
    tags = b"\0" if request_header_version(api_key, version) == 2 else b""
    return struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name + tags


def framed(body: bytes) -> bytes:
    """With its true length."""
    return struct.pack(">i", len(body)) + body


async def outcome(port: int, raw: bytes) -> str:
    """Send `raw` and a question every broker answers behind it: "closed", or "answered" where that came.

    Raises TimeoutError when neither happens: a client would be stuck.
    """
    client = await Client.connect(port)
    try:
        client.writer.write(raw + frame(ApiVersionsRequest(), 0, PING_ID))
        return await asyncio.wait_for(_until_ping(client), PATIENCE_SECONDS)
    finally:
        await client.close()


async def _until_ping(client: Client) -> str:
    try:
        while True:
            (correlation_id,) = struct.unpack_from(">i", await client.receive_raw())
            if correlation_id == PING_ID:
                return "answered"
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed"


async def is_refused(broker: Broker, raw: bytes) -> bool:
    """Does the broker close the connection that says `raw`, and only that one?"""
    said = await outcome(broker.port, raw)
    await serves_others(broker)
    return said == "closed"


async def serves_others(broker: Broker) -> None:
    """The next connection is served, and the log is trusted."""
    assert broker.failed is None
    client = await Client.connect(broker.port)
    try:
        answer = await client.call(ApiVersionsRequest(), 0)
        assert answer.error_code == 0
    finally:
        await client.close()
