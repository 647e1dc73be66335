"""The shared state of all client connections: limits, one write each iteration, client errors, the stop.

Owns: the open connections, the requests in flight of all, and the connections that wait for memory.
Invariants: the output of one iteration is written once; an error of one connection affects no other.
Does not: read, respond to or end requests (`connection.py`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Final, Protocol

from lockstep.broker.network.receive_memory import MemoryWaiter, ReceiveMemory
from lockstep.broker.network.throttles import ThrottledConnection, Throttles
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.quotas.quota_manager import NO_QUOTAS, QuotaManager
from lockstep.broker.requests.fast_path import FastPath
from lockstep.broker.requests.request_context import ClientContext
from lockstep.broker.requests.router import Router
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.settings.config import Settings
from lockstep.protocol.api import ApiKey
from lockstep.storage.rate_limited_log import RateLimitedLog

log = logging.getLogger("lockstep.connection")

CLOSE_POLL_SECONDS: Final = 0.005
PRODUCE: Final = (ApiKey.PRODUCE).to_bytes(2, "big")
"""A Produce waits for memory, however small: its bytes are what fills it."""
SMALL_FRAME_BYTES: Final = 4096
"""A request of up to so much is dispatched without free memory: consumers' requests, heartbeats and the like
must not wait behind batches of a megabyte. All of them together get a quarter of the limit more."""
NO_FAST_PATHS: Final[Mapping[int, FastPath]] = {}


class OpenConnection(MemoryWaiter, ThrottledConnection, Protocol):
    """A connection as this module calls it; `connection.py` has the class."""

    @property
    def has_requests(self) -> bool:
        """True if requests are in flight."""

    @property
    def is_busy(self) -> bool:
        """True if requests are in flight or output is unsent."""

    def write_out(self) -> None:
        """Write the queued output."""

    def reap_idle(self, now: float, max_idle_seconds: float, others_waiting: bool) -> None:
        """Close it if it was silent for too long."""

    def quiesce(self) -> None:
        """Take no more requests."""

    def close(self) -> None:
        """Close it once its client has taken the output."""

    def abort(self) -> None:
        """Drop it now."""


class Connections:
    """The shared limits, write queue and error log of one broker's connections."""

    def __init__(
        self,
        router: Router,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        time_slicer: TimeSlicer,
        unsent_bytes: UnsentBytes,
        client_errors: RateLimitedLog,
        fast_paths: Mapping[int, FastPath] = NO_FAST_PATHS,
        quotas: QuotaManager = NO_QUOTAS,
    ) -> None:
        self.router = router
        self.fast_paths = fast_paths
        """The fast paths by API key; none of an API where it is off."""
        self.quotas = quotas
        self.throttles = Throttles(self.quotas, loop)
        self.time_slicer = time_slicer
        self.unsent_bytes = unsent_bytes
        self._client_errors = client_errors
        self.loop = loop
        self.clock: Callable[[], float] = time.perf_counter
        """Seconds; read once for each request."""
        self.max_frame_bytes = settings.socket_request_max_bytes
        self.max_in_flight = settings.lockstep_connection_max_in_flight
        self.write_buffer_bytes = settings.lockstep_connection_write_buffer_bytes
        self.max_in_flight_bytes = settings.queued_max_request_bytes
        self.in_flight_bytes = 0
        self.unfinished_frames = ReceiveMemory(loop)
        self.max_connections = settings.max_connections
        self._settings = settings
        self._open: dict[OpenConnection, None] = {}
        self._by_host: dict[str, int] = {}
        self._unsent: list[OpenConnection] = []
        self._waiting_for_memory: dict[OpenConnection, None] = {}
        self.failed_authentications = 0
        """Failed handshakes of TLS and failed logins, re-authentications of open connections included."""
        self.closed = 0
        """Connections closed so far."""
        self.stopping = False
        """True once no more requests are taken."""

    def __len__(self) -> int:
        return len(self._open)

    def limit(self, settings: Settings, max_connections: int) -> None:
        """Limits for further connections; those that are open stay."""
        self._settings = settings
        self.max_connections = max_connections

    def client_of(self, listener: str) -> ClientContext:
        """The context of a new connection, whose addresses are not known yet."""
        return ClientContext(listener, "", "")

    def admit(self, connection: OpenConnection, host: str) -> str | None:
        """Count a new connection; returns the reason if a limit rejects it."""
        settings = self._settings
        if len(self._open) >= self.max_connections:
            limit = "max.connections" if self.max_connections == settings.max_connections else "open files"
            return f"{len(self._open)} connections are open, the limit on {limit} allows no more"
        if self._by_host.get(host, 0) >= settings.max_connections_per_ip:
            return f"{self._by_host[host]} connections are open from there, max.connections.per.ip"
        self._open[connection] = None
        self._by_host[host] = self._by_host.get(host, 0) + 1
        return None

    def remove(self, connection: OpenConnection, host: str) -> None:
        """A connection is closed."""
        if connection not in self._open:
            return
        del self._open[connection]
        self.closed += 1
        self._waiting_for_memory.pop(connection, None)
        self.throttles.forget(connection)
        connections_left = self._by_host[host] - 1
        if connections_left:
            self._by_host[host] = connections_left
        else:
            del self._by_host[host]

    def send_later(self, connection: OpenConnection) -> None:
        """Write this connection's output once in this iteration."""
        if not self._unsent:
            self.loop.call_soon(self._send)
        self._unsent.append(connection)

    def send_now(self) -> None:
        """Write all queued output at once: clients continue while the next iteration flushes."""
        if self._unsent:
            self._send()

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        for connection in unsent:
            try:
                connection.write_out()
            except Exception:  # the others, and the log group that may have called, continue
                log.exception("a connection failed")
                connection.abort()

    def on_request_start(self, request_bytes: int) -> None:
        """A request is in flight."""
        self.in_flight_bytes += request_bytes

    def on_request_end(self, request_bytes: int) -> None:
        """The request is no longer in flight; connections that waited for memory resume."""
        self.in_flight_bytes -= request_bytes
        if self._waiting_for_memory and not self.is_full:
            waiting, self._waiting_for_memory = self._waiting_for_memory, {}
            for connection in waiting:
                self.loop.call_soon(connection.resume)
        if self.unfinished_frames.waiting:
            self.unfinished_frames.wake(self.frame_room_bytes)

    @property
    def is_full(self) -> bool:
        """True if too many bytes of all connections are in flight."""
        return 0 <= self.max_in_flight_bytes < self.in_flight_bytes

    @property
    def frame_room_bytes(self) -> int:
        """The memory for all unfinished frames; negative: no limit."""
        limit = self.max_in_flight_bytes
        return max(0, limit - self.in_flight_bytes) if limit >= 0 else -1

    def waits_for_memory(self, connection: OpenConnection, frame: memoryview) -> bool:
        """True if a request has to wait for memory; then `resume` is called when there is some."""
        limit, in_flight_bytes = self.max_in_flight_bytes, self.in_flight_bytes
        if not 0 <= limit < in_flight_bytes:
            return False
        is_small = len(frame) <= SMALL_FRAME_BYTES and frame[:2] != PRODUCE
        if is_small and in_flight_bytes <= limit + limit // 4:
            return False
        self._waiting_for_memory[connection] = None
        return True

    def is_waiting(self, connection: OpenConnection) -> bool:
        """True if it waits for memory of other connections."""
        return connection in self._waiting_for_memory or connection in self.unfinished_frames.waiting

    def log_client_error(
        self, peer: str, text: str, failure: BaseException | None = None, key: Hashable = None
    ) -> None:
        """Log one line about a client, a few a second at most; one a minute for the same `key`, whichever
        client it is."""
        self._client_errors.warning(f"{peer}: {text}", key, failure)

    def reap_idle(self, now: float) -> None:
        """Close connections that were silent for too long."""
        idle_ms = self._settings.connections_max_idle_ms
        others_waiting = bool(self.unfinished_frames.waiting)  # before a close, which lets them retry
        for fast_path in self.fast_paths.values():
            fast_path.trim()
        for connection in list(self._open):
            connection.reap_idle(now, idle_ms / 1000 if idle_ms >= 0 else math.inf, others_waiting)

    def abort(self) -> None:
        """Drop every connection now."""
        for connection in list(self._open):
            connection.abort()

    async def drain(self, timeout_seconds: float) -> None:
        """Takes no more requests, and lets those in flight get their responses."""
        self.stopping = True
        self.send_now()
        for connection in list(self._open):
            connection.quiesce()
        await self._poll_until(timeout_seconds, lambda: not any(each.has_requests for each in self._open))

    async def close(self, timeout_seconds: float) -> None:
        """Close every connection, once its client has taken what was written."""

        def all_closed() -> bool:
            self.send_now()
            for connection in list(self._open):
                # A request without a response by now never gets one.
                if connection.has_requests or not connection.is_busy:
                    connection.close()
            return not self._open

        if not await self._poll_until(timeout_seconds, all_closed):
            self.abort()

    async def _poll_until(self, seconds: float, is_done: Callable[[], bool]) -> bool:
        """Poll until it is done or the time is over: by the clock, as an iteration of a busy loop takes
        long."""
        deadline = self.loop.time() + seconds
        while not is_done():
            if self.loop.time() >= deadline:
                return False
            await asyncio.sleep(CLOSE_POLL_SECONDS)
        return True
