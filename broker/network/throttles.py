"""Clients over their quotas: the throttle time in their responses, and the pause of their connections.

Owns: what a request counts for its client's quotas, and the connections that are paused. Invariants: a
response leaves at once, with its throttle time; its connection is then neither read nor served for so long
(KIP-219); a client without a quota comes here for nothing but the look whether it has one. A change of
quotas ends each wait that the new ones do not ask for. Does not: know rates
(`broker/quotas/quota_manager.py`), or what a Fetch returns while its client is over its quota
(`broker/fetch/fetch_requests.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from copy import copy
from typing import Any, Final, Protocol

from lockstep.broker.network.response_encoder import EncodedReply, ReplySink
from lockstep.broker.quotas.quota_entity import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from lockstep.broker.quotas.quota_manager import ClientQuota, QuotaManager
from lockstep.broker.requests.request_context import (
    ClientContext,
    EncodedResponse,
    HandlerResponse,
    PendingResponse,
)
from lockstep.broker.requests.router import Router
from lockstep.protocol.api import ApiKey, RequestHeader, messages_for
from lockstep.protocol.compiler import decode
from lockstep.protocol.fields import Struct

log = logging.getLogger("lockstep.connection")

MUTATIONS: Final = (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
"""Their responses may have a throttle time from another node, the controller."""


class PausableConnection(ReplySink, Protocol):
    """The part of a connection that this module uses."""

    context: ClientContext

    def pause(self) -> None:
        """Dispatch and read nothing more before `end_pause`."""

    def end_pause(self) -> None:
        """One reason to pause is over."""


class _Pause:
    """One connection's wait."""

    __slots__ = ("client_id", "deadline", "timer")

    def __init__(self, client_id: str | None, deadline: float, timer: asyncio.TimerHandle) -> None:
        self.client_id, self.deadline, self.timer = client_id, deadline, timer


class Throttles:
    """The throttled connections of a node."""

    __slots__ = ("_loop", "_pauses", "clock", "quotas")

    def __init__(self, quotas: QuotaManager, loop: asyncio.AbstractEventLoop) -> None:
        self.quotas = quotas
        self.clock: Callable[[], float] = time.perf_counter
        """Seconds; read twice for each request that counts."""
        self._loop = loop
        self._pauses: dict[PausableConnection, _Pause] = {}

    def __len__(self) -> int:
        return len(self._pauses)

    def begin(self, connection: PausableConnection, header: RequestHeader) -> RequestThrottle | None:
        """The throttle of a request; None for a client without a quota."""
        quota = self.quotas.of(connection.context, header.client_id)
        return None if quota is None else RequestThrottle(self, quota, connection, header)

    def admit(self, connection: PausableConnection, host: str) -> None:
        """Close a new connection after a while where its address has made too many."""
        throttle_ms = self.quotas.connection_throttle_ms(host)
        if throttle_ms:
            connection.pause()
            self._loop.call_later(throttle_ms / 1000, connection.abort)

    def pause(self, connection: PausableConnection, client_id: str | None, throttle_ms: int) -> None:
        """Read nothing of a connection for so long, counted from now."""
        deadline = self._loop.time() + throttle_ms / 1000
        former = self._pauses.get(connection)
        if former is None:
            connection.pause()
        elif former.deadline >= deadline:
            return
        else:
            former.timer.cancel()
        timer = self._loop.call_later(throttle_ms / 1000, self._end, connection)
        self._pauses[connection] = _Pause(client_id, deadline, timer)

    def forget(self, connection: PausableConnection) -> None:
        """A connection is closed."""
        pause = self._pauses.pop(connection, None)
        if pause is not None:
            pause.timer.cancel()

    def on_quotas_changed(self) -> None:
        """Let each connection wait for what its client's quotas demand now."""
        for connection, pause in list(self._pauses.items()):
            wait_ms = self.quotas.throttle_ms(connection.context, pause.client_id)
            deadline = self._loop.time() + wait_ms / 1000
            if deadline < pause.deadline:
                pause.timer.cancel()
                pause.timer = self._loop.call_later(wait_ms / 1000, self._end, connection)
                pause.deadline = deadline

    def _end(self, connection: PausableConnection) -> None:
        del self._pauses[connection]
        connection.end_pause()


class RequestThrottle:
    """One request of a client that has a quota."""

    __slots__ = ("_connection", "_header", "_quota", "_throttle_ms", "_throttles")

    def __init__(
        self,
        throttles: Throttles,
        quota: ClientQuota,
        connection: PausableConnection,
        header: RequestHeader,
    ) -> None:
        self._throttles, self._quota = throttles, quota
        self._connection, self._header = connection, header
        self._throttle_ms = 0

    def route(self, router: Router, frame: memoryview, pos: int) -> HandlerResponse:
        """Have a request served, and count it. Raises as `Router.route`."""
        clock = self._throttles.clock
        started = clock()
        response = router.route(self._connection.context, self._header, frame, pos)
        self._count(clock() - started, len(frame))
        return self.apply(response) if isinstance(response, (Struct, EncodedResponse)) else response

    def reply(self, request_bytes: int, holds_fetch: bool) -> EncodedReply:
        """The place of its response."""
        return ThrottledReply(self, self._connection, self._header, request_bytes, holds_fetch)

    def apply(self, response: Any) -> Any:
        """The response with its throttle time; the connection is paused from now on."""
        is_mutation = self._quota.mutation is not None and self._header.api_key in MUTATIONS
        if is_mutation and isinstance(response, EncodedResponse):
            response = self._decode(response)
        own_ms = getattr(response, "throttle_time_ms", 0)
        if own_ms > self._throttle_ms:
            self._pause(CONTROLLER_MUTATION_RATE if is_mutation else CONSUMER_BYTE_RATE, own_ms)
        elif self._throttle_ms:
            self._throttles.pause(self._connection, self._header.client_id, self._throttle_ms)
            response = self._decode(response) if isinstance(response, EncodedResponse) else copy(response)
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = self._throttle_ms
        return response

    def _count(self, seconds: float, request_bytes: int) -> None:
        quota, now_ms = self._quota, self._throttles.quotas.clock_ms()
        key = REQUEST_PERCENTAGE
        if quota.request is not None:
            self._throttle_ms = quota.request.charge(100 * seconds, now_ms)
        if quota.produce is not None and self._header.api_key == ApiKey.PRODUCE:
            bytes_ms = quota.produce.charge(request_bytes, now_ms)
            if bytes_ms > self._throttle_ms:
                key, self._throttle_ms = PRODUCER_BYTE_RATE, bytes_ms
        if self._throttle_ms:
            self._pause(key, self._throttle_ms)

    def _pause(self, key: str, throttle_ms: int) -> None:
        self._throttles.quotas.record_throttle_time(key, throttle_ms)
        self._throttles.pause(self._connection, self._header.client_id, throttle_ms)

    def _decode(self, response: EncodedResponse) -> Any:
        header, body = self._header, b"".join(map(bytes, response.body))
        return decode(messages_for(header.api_key)[1], header.api_version, memoryview(body), 0)


class ThrottledReply(EncodedReply):
    """The place of the response to a request that counts for a quota."""

    __slots__ = ("_throttle",)

    def __init__(
        self,
        throttle: RequestThrottle,
        connection: ReplySink,
        header: RequestHeader,
        request_bytes: int,
        holds_fetch: bool,
    ) -> None:
        super().__init__(connection, header, request_bytes, holds_fetch)
        self._throttle = throttle

    def on_done(self, pending: PendingResponse) -> None:
        """See `EncodedReply`."""
        try:
            if isinstance(pending.response, (Struct, EncodedResponse)):
                pending.response = self._throttle.apply(pending.response)
        except Exception:
            log.exception("a connection failed")
            self.connection.abort()
            return
        super().on_done(pending)
