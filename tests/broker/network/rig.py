"""A connection without a socket: what it is sent, and what it does to its transport."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

from lockstep.broker.network.connection import Connection
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.requests.request_context import (
    ClientContext,
    HandlerResponse,
    PendingResponse,
    RequestHandler,
)
from lockstep.broker.requests.router import Router
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.server import Broker
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lockstep.storage.rate_limited_log import RateLimitedLog
from tests.broker.wire import frame


class Transport:
    """Records what a connection does to it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False
        self.reading = True
        self.unsent = 0

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("192.0.2.1", 5), "sockname": ("192.0.2.2", 9092)}.get(name)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def writelines(self, pieces: list[bytes]) -> None:
        self.writes.append(b"".join(pieces))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Scripted(RequestHandler):
    """A handler whose answers the test gives, for ApiVersions and for Fetch."""

    versions = (0, 4)

    def __init__(self, api_key: int) -> None:
        self.api_key = api_key  # type: ignore[misc]
        self.asked: list[tuple[int, PendingResponse]] = []
        self.now: HandlerResponse = None
        self.failure: Exception | None = None

    def handle(self, context: ClientContext, header: RequestHeader, request: object) -> HandlerResponse:
        deferred = PendingResponse()
        self.asked.append((header.correlation_id, deferred))
        if self.failure is not None:
            raise self.failure
        return self.now if self.now is not None else deferred


class Rig:
    """A connection over a recorded transport and scripted handlers."""

    def __init__(self, broker: Broker, **limits: int) -> None:
        self.versions, self.fetches = Scripted(ApiKey.API_VERSIONS), Scripted(ApiKey.FETCH)
        router = Router([self.versions, self.fetches], broker.assembly.forwarder, ApiVersionsResponse)
        loop = asyncio.get_running_loop()
        client_errors = RateLimitedLog(loop.time, logging.getLogger("lockstep.connection"))
        self.shared = Connections(
            router, broker.settings, loop, TimeSlicer(loop.call_soon), UnsentBytes(), client_errors
        )
        self.shared.clock = lambda: 0.0  # no request takes any time, unless the test says so
        for name, value in limits.items():
            setattr(self.shared, name, value)
        self.transport = Transport()
        self.connection = Connection(self.shared, "PLAINTEXT")
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def receive(self, *requests: bytes) -> None:
        left = memoryview(b"".join(requests))
        while left:
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(left))
            room[:size] = left[:size]
            left = left[size:]
            self.connection.buffer_updated(size)

    def asked(self) -> list[int]:
        return [correlation_id for correlation_id, _ in self.versions.asked]

    def answer(self, correlation_id: int) -> None:
        deferred = dict(self.versions.asked)[correlation_id]
        deferred.complete(ApiVersionsResponse())

    async def sent(self) -> list[int]:
        """Correlation ids written so far, one turn later."""
        await asyncio.sleep(0)
        found = []
        data = b"".join(self.transport.writes)
        while data:
            length, correlation_id = struct.unpack_from(">ii", data)
            found.append(correlation_id)
            data = data[4 + length :]
        return found


def ask(correlation_id: int) -> bytes:
    return frame(ApiVersionsRequest(), 0, correlation_id)


def large_ask(correlation_id: int) -> bytes:
    """One that is no longer small: 5,010 bytes."""
    return frame(ApiVersionsRequest(), 0, correlation_id, client_id="x" * 5_000)
