"""Clients over their quotas: the throttle time in their responses, and their muted connections.

Owns: what a request counts for its client's quotas, and the connections that are muted. Invariants: a
response leaves at once, with its throttle time; its connection is then neither read nor served for so long
(KIP-219); a client without a quota costs only the lookup of its quotas; a closed
connection is not throttled, and a client that closes its own is noticed within seconds. A quota change
shortens pauses to the new throttle time. Does not: know rates
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

from lockstep.broker.network.disconnect_detection import find_disconnected
from lockstep.broker.network.response_encoder import EncodedReply, ReplySink
from lockstep.broker.quotas.quota_entity import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    bounded_name,
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
HANG_UP_SECONDS: Final = 1.0
"""The time between two looks for clients that have closed a muted connection."""


class ThrottledConnection(ReplySink, Protocol):
    """The part of a connection that this module uses."""

    context: ClientContext

    @property
    def is_closing(self) -> bool:
        """True once nothing more is dispatched."""

    def mute(self) -> None:
        """Dispatch and read nothing more before `unmute`."""

    def unmute(self) -> None:
        """Continue."""

    def fileno(self) -> int:
        """The descriptor of its socket; negative for none."""

    def on_disconnect_detected(self, unread_bytes: int | None) -> None:
        """The client has closed it, with so many bytes unread; None: by a reset."""


class _Throttle:
    """The throttle of one connection. Args: is_rejected: it is closed in the end."""

    __slots__ = ("client_id", "deadline", "is_rejected", "timer")

    def __init__(self, client_id: str | None, deadline: float, is_rejected: bool) -> None:
        self.client_id = None if client_id is None else bounded_name(client_id)
        self.deadline, self.is_rejected = deadline, is_rejected
        self.timer: asyncio.TimerHandle | None = None


class Throttles:
    """The throttled connections of a node."""

    __slots__ = ("_is_watching", "_loop", "_muted", "clock", "quotas")

    def __init__(self, quotas: QuotaManager, loop: asyncio.AbstractEventLoop) -> None:
        self.quotas = quotas
        self.clock: Callable[[], float] = time.perf_counter
        """Seconds; read twice for each request that counts."""
        self._loop = loop
        self._muted: dict[ThrottledConnection, _Throttle] = {}
        self._is_watching = False

    def __len__(self) -> int:
        return len(self._muted)

    def begin(self, connection: ThrottledConnection, header: RequestHeader) -> RequestThrottle | None:
        """The throttle of a request; None for a client without a quota."""
        quota = self.quotas.quota_of(connection.context, header.client_id)
        return None if quota is None else RequestThrottle(self, quota, connection, header)

    def admit(self, connection: ThrottledConnection, host: str) -> None:
        """Close a new connection after a while where its address has made too many."""
        throttle_ms = self.quotas.connection_throttle_ms(host)
        if throttle_ms:
            self._mute(connection, None, throttle_ms, is_rejected=True)

    def mute(self, connection: ThrottledConnection, client_id: str | None, throttle_ms: int) -> None:
        """Read nothing of a connection for so long, counted from now."""
        self._mute(connection, client_id, throttle_ms, is_rejected=False)

    def forget(self, connection: ThrottledConnection) -> None:
        """A connection is closed."""
        throttle = self._muted.pop(connection, None)
        if throttle is not None and throttle.timer is not None:
            throttle.timer.cancel()

    def on_quotas_changed(self) -> None:
        """Shorten pauses to the throttle times of the quotas as they are now."""
        for connection, throttle in list(self._muted.items()):
            if throttle.is_rejected:
                continue
            throttle_ms = self.quotas.throttle_ms(connection.context, throttle.client_id)
            deadline = self._loop.time() + throttle_ms / 1000
            if deadline < throttle.deadline:
                throttle.deadline = deadline
                self._schedule(connection, throttle, throttle_ms)

    def _mute(
        self, connection: ThrottledConnection, client_id: str | None, throttle_ms: int, *, is_rejected: bool
    ) -> None:
        if connection.is_closing:
            return
        throttle = _Throttle(client_id, self._loop.time() + throttle_ms / 1000, is_rejected)
        former = self._muted.get(connection)
        if former is None:
            connection.mute()
        elif former.is_rejected or (former.deadline >= throttle.deadline and not is_rejected):
            return
        elif former.timer is not None:
            former.timer.cancel()
        self._muted[connection] = throttle
        self._schedule(connection, throttle, throttle_ms)
        if not self._is_watching:
            self._is_watching = True
            self._loop.call_later(HANG_UP_SECONDS, self._watch)

    def _schedule(self, connection: ThrottledConnection, throttle: _Throttle, throttle_ms: int) -> None:
        if throttle.timer is not None:
            throttle.timer.cancel()
        throttle.timer = self._loop.call_later(throttle_ms / 1000, self._end, connection)

    def _end(self, connection: ThrottledConnection) -> None:
        if self._muted.pop(connection).is_rejected:
            connection.abort()
        else:
            connection.unmute()

    def _watch(self) -> None:
        """Close the connections that their clients have closed, and check again later."""
        open_ones = {each.fileno(): each for each in self._muted if not each.is_closing}
        open_ones.pop(-1, None)
        for descriptor, unread_bytes in find_disconnected(open_ones).items():
            connection = open_ones[descriptor]
            is_rejected = self._muted[connection].is_rejected
            connection.on_disconnect_detected(None if is_rejected else unread_bytes)
        self._is_watching = bool(self._muted)
        if self._is_watching:
            self._loop.call_later(HANG_UP_SECONDS, self._watch)


class RequestThrottle:
    """One request of a client that has a quota."""

    __slots__ = ("_connection", "_header", "_quota", "_throttle_ms", "_throttles")

    def __init__(
        self,
        throttles: Throttles,
        quota: ClientQuota,
        connection: ThrottledConnection,
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
        """The response with its throttle time; the connection is muted from now on."""
        is_mutation = self._quota.mutation is not None and self._header.api_key in MUTATIONS
        if is_mutation and isinstance(response, EncodedResponse):
            response = self._decode(response)
        own_ms = getattr(response, "throttle_time_ms", 0)
        if own_ms > self._throttle_ms:
            self._mute(CONTROLLER_MUTATION_RATE if is_mutation else CONSUMER_BYTE_RATE, own_ms)
        elif self._throttle_ms:
            self._throttles.mute(self._connection, self._header.client_id, self._throttle_ms)
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
            self._mute(key, self._throttle_ms)

    def _mute(self, key: str, throttle_ms: int) -> None:
        self._throttles.quotas.record_throttle_time(key, throttle_ms)
        self._throttles.mute(self._connection, self._header.client_id, throttle_ms)

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
