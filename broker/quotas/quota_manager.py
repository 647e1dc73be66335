"""The quotas of this node's clients: what each has used here, by the entities that share a quota.

Owns: the rates and buckets, which stay as they are where only a limit changes. Invariants: nothing is counted
for a client without a quota; what is kept is limited in number and bytes, whatever client ids there are. What
was counted for a quota that is removed goes with the last quota, or where room is needed. Does not: store
quotas (`broker/metadata/metadata_image.py`), or stop reading (`broker/network/throttles.py`). Source: Kafka's
ClientQuotaManager and ConnectionQuotas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from lockstep.broker.quotas.controller_mutation_quota import ControllerMutationQuota
from lockstep.broker.quotas.quota_entity import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    QUOTA_KEYS,
    REQUEST_PERCENTAGE,
    bounded_name,
    normal_address,
)
from lockstep.broker.quotas.quota_rate import MAX_THROTTLE_MS, QuotaRate, QuotaWindow
from lockstep.broker.quotas.quota_table import QuotaScope, QuotaTable
from lockstep.broker.quotas.token_bucket import TokenBucket

MAX_CLIENTS: Final = 10_000
"""LIMIT. Clients, and rates of theirs, that are remembered: with a default quota each client id that is named
has its own. With more, those that count nothing any more are forgotten, then the oldest. A name is kept up to
`MAX_NAME_CHARACTERS`, a longer one as a digest."""
_RATE_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)


class QuotaClient(Protocol):
    """The client of a request, as `ClientContext` has it."""

    @property
    def user_name(self) -> str:
        """The name of its principal."""

    @property
    def is_node(self) -> bool:
        """True for another node itself."""


class ClientQuota:
    """The quotas of one client that has some; None where there is no limit."""

    __slots__ = ("fetch", "mutation", "produce", "request")

    def __init__(
        self,
        produce: QuotaRate | None,
        fetch: QuotaRate | None,
        request: QuotaRate | None,
        mutation: TokenBucket | None,
    ) -> None:
        self.produce, self.fetch, self.request, self.mutation = produce, fetch, request, mutation


class QuotaManager:
    """See the module.

    Args:
        window, controller_window: the windows of rates, and of changes of partitions.
        clock_ms: a monotonic clock.
    """

    __slots__ = (
        "_buckets", "_clients", "_controller_window", "_rates", "_table", "_window", "changes", "clock_ms",
        "has_connection_rates", "is_active", "throttled_ms",
    )  # fmt: skip

    def __init__(
        self,
        table: QuotaTable,
        clock_ms: Callable[[], int],
        window: QuotaWindow = QuotaWindow(),  # noqa: B008 - a constant
        controller_window: QuotaWindow = QuotaWindow(),  # noqa: B008
    ) -> None:
        self._table = table
        self._window, self._controller_window = window, controller_window
        self.clock_ms = clock_ms
        self._rates: dict[tuple[str, QuotaScope], QuotaRate] = {}
        self._buckets: dict[QuotaScope, TokenBucket] = {}
        self._clients: dict[tuple[str, str], ClientQuota | None] = {}
        """The clients that have made requests, by user and client id; a long name by its digest."""
        self.throttled_ms = dict.fromkeys(QUOTA_KEYS, 0)
        """Milliseconds of throttle time so far, by the key of the quota."""
        self.changes = 0
        """Counts the changes of quotas."""
        self.is_active = self.has_connection_rates = False
        """True where some client, or some address, has a quota at all."""
        self.on_change()

    # --- the quotas of a client ---------------------------------------------------------------------------

    def quota_of(self, client: QuotaClient, client_id: str | None) -> ClientQuota | None:
        """The quotas of a client; None where it has none."""
        if not self.is_active:
            return None
        key = client.user_name, client_id or ""
        try:
            return self._clients[key]
        except KeyError:
            return self._resolve(*key)

    def limits_produce(self, client: QuotaClient, client_id: str | None) -> bool:
        """True if the requests of a producer count for a quota."""
        quota = self.quota_of(client, client_id)
        return quota is not None and not (quota.produce is None and quota.request is None)

    def limits_fetch(self, client: QuotaClient, client_id: str | None) -> bool:
        """True if the requests of a consumer count for a quota."""
        quota = self.quota_of(client, client_id)
        return quota is not None and not (quota.fetch is None and quota.request is None)

    def mutation_of(
        self, client: QuotaClient, client_id: str | None, is_strict: bool
    ) -> ControllerMutationQuota:
        """The controller mutation quota for one request."""
        quota = None if client.is_node else self.quota_of(client, client_id)
        return ControllerMutationQuota(None if quota is None else quota.mutation, is_strict, self.clock_ms)

    def connection_throttle_ms(self, address: str) -> int:
        """Milliseconds until a new connection of an address is closed; 0: it is accepted."""
        normal = normal_address(address) or address
        limit = self._table.connection_rate(normal)
        if limit is None:
            return 0
        name = "", normal
        self._make_room([(CONNECTION_CREATION_RATE, name)])
        rate = self._rate(CONNECTION_CREATION_RATE, name, limit)
        now_ms = self.clock_ms()
        throttle_ms = rate.charge(1, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
            self.record_throttle_time(CONNECTION_CREATION_RATE, throttle_ms)
        return throttle_ms

    def record_throttle_time(self, key: str, throttle_ms: int) -> None:
        """Count the throttle time of a response."""
        self.throttled_ms[key] += throttle_ms

    def throttle_ms(self, client: QuotaClient, client_id: str | None) -> int:
        """The throttle time of a muted client by its quotas as they are now."""
        quota, now_ms = self.quota_of(client, client_id), self.clock_ms()
        if quota is None:
            return 0
        limits = (quota.produce, quota.fetch, quota.request, quota.mutation)
        return max(each.throttle_ms(now_ms) for each in limits if each is not None)

    def on_change(self) -> None:
        """Some quotas were set or removed."""
        self.changes += 1
        self.is_active = self._table.has_client_quotas
        self.has_connection_rates = self._table.has_connection_rates
        self._clients.clear()
        if not self.is_active and not self.has_connection_rates:
            self._buckets.clear()
            self._rates.clear()

    # --- private ------------------------------------------------------------------------------------------

    def _resolve(self, user: str, client_id: str) -> ClientQuota | None:
        client = user, client_id = bounded_name(user), bounded_name(client_id)
        if client in self._clients:
            return self._clients[client]
        found = {key: self._table.find(key, user, client_id) for key in _RATE_KEYS}
        mutation = self._table.find(CONTROLLER_MUTATION_RATE, user, client_id)
        names = [(key, each[0]) for key, each in found.items() if each is not None]
        self._make_room(names, None if mutation is None else mutation[0])
        produce, fetch, request = (
            None if each is None else self._rate(key, *each) for key, each in found.items()
        )
        quota = None
        if names or mutation is not None:
            bucket = None if mutation is None else self._bucket(*mutation)
            quota = ClientQuota(produce, fetch, request, bucket)
        self._clients[client] = quota
        return quota

    def _bucket(self, name: QuotaScope, limit: float) -> TokenBucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = TokenBucket(limit, self._controller_window, self.clock_ms())
        bucket.limit = limit
        return bucket

    def _rate(self, key: str, name: QuotaScope, limit: float) -> QuotaRate:
        rate = self._rates.get((key, name))
        if rate is None:
            is_bounded = key in (REQUEST_PERCENTAGE, CONNECTION_CREATION_RATE)
            longest_ms = self._window.sample_ms if is_bounded else MAX_THROTTLE_MS
            rate = self._rates[key, name] = QuotaRate(limit, self._window, longest_ms)
        rate.limit = limit
        return rate

    def _make_room(self, rates: list[tuple[str, QuotaScope]], bucket: QuotaScope | None = None) -> None:
        """Forget clients, rates and buckets where there are too many for those that a client is about to get:
        once for all of them, as one that counts nothing yet would be the first to be forgotten."""
        if len(self._clients) >= MAX_CLIENTS:
            self._clients.clear()
        more_rates = sum(each not in self._rates for each in rates)
        more_buckets = bucket is not None and bucket not in self._buckets
        if max(len(self._rates) + more_rates, len(self._buckets) + more_buckets) <= MAX_CLIENTS:
            return
        self._clients.clear()
        now_ms = self.clock_ms()
        _trim(self._rates, now_ms)
        _trim(self._buckets, now_ms)


NO_QUOTAS: Final = QuotaManager(QuotaTable(), lambda: 0)
"""The quotas of a node without any."""


def _trim(kept: dict[Any, Any], now_ms: int) -> None:
    """Forget the idle ones, then the oldest down to a half."""
    for name in [name for name, each in kept.items() if each.is_idle(now_ms)]:
        del kept[name]
    while len(kept) > MAX_CLIENTS // 2:
        del kept[next(iter(kept))]
