"""A data set of realistic shape, made from a seed: orders, payments, and the accounts that place them.

Owns: every byte of an event. The same `Shape` gives the same events, in the same order, on every machine and
under every PYTHONHASHSEED; events are made in blocks, each from the seed and its own number alone.

What is realistic in it: few accounts have most of the events (the cube of a uniform number); orders are JSON
of 150 to 400 bytes, payments 45 packed bytes, accounts JSON in a topic that is compacted, where one record of
twenty is a tombstone; most records have headers, some with a null value, some twice of one name, and the
tombstones none; times go up with a jitter of two seconds, so that neighbours may be out of order.

Does not: know brokers or partitions, or do any I/O.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from lockstep.protocol.records.record import Headers

ORDERS: Final = "orders"
PAYMENTS: Final = "payments"
ACCOUNTS: Final = "accounts"
TOPICS: Final = (ORDERS, PAYMENTS, ACCOUNTS)

BLOCK_EVENTS: Final = 10_000
FIRST_OF_2026_MS: Final = 1_767_225_600_000
DAY_MS: Final = 86_400_000
PAYMENT: Final = Struct(">QQqBIq8s")
"""Order, account, cents, method, currency's number, time in ms, reference."""

_JITTER_MS: Final = 2000
_STATES: Final = (b"placed", b"placed", b"paid", b"shipped", b"delivered", b"cancelled", b"returned")
_CURRENCIES: Final = (
    (b"EUR", 978),
    (b"EUR", 978),
    (b"USD", 840),
    (b"GBP", 826),
    (b"CHF", 756),
    (b"SEK", 752),
)
_COUNTRIES: Final = (b"DE", b"FR", b"IT", b"US", b"GB", b"CH", b"SE", b"PL")
_TIERS: Final = (b"basic", b"basic", b"basic", b"plus", b"plus", b"gold")
_CHANNELS: Final = (b"shop", b"shop", b"app", b"app", b"app", b"partner", None)
_ORDER: Final = (
    b'{"order":%d,"account":"account-%08d","state":"%b","placed_at_ms":%d,"currency":"%b",'
    b'"total_cents":%d,"items":[%b]}'
)
_ITEM: Final = b'{"sku":"sku-%06d","quantity":%d,"price_cents":%d}'
_ACCOUNT: Final = (
    b'{"account":"account-%08d","name":"Customer %06d","country":"%b","tier":"%b","balance_cents":%d,'
    b'"updated_at_ms":%d}'
)


@dataclass(frozen=True)
class Shape:
    """The parameters of a data set. `events`: of all topics together; `span_ms`: the time that they span."""

    seed: int = 1
    events: int = 1_140_000
    accounts: int = 20_000
    first_ms: int = FIRST_OF_2026_MS
    span_ms: int = DAY_MS

    def __post_init__(self) -> None:
        for name in ("events", "accounts", "span_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: there is at least one")


class Event(NamedTuple):
    """One record, and the topic that it is for."""

    topic: str
    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: Headers


def events(shape: Shape) -> Iterator[Event]:
    """All of them, in order."""
    for number in range(-(-shape.events // BLOCK_EVENTS)):
        yield from block(shape, number)


def block(shape: Shape, number: int) -> list[Event]:
    """The events from `number` * BLOCK_EVENTS on, a block's, or the rest."""
    first = number * BLOCK_EVENTS
    maker = _Maker(shape, random.Random(f"{shape.seed}/{number}"))
    return [maker.event(index) for index in range(first, min(first + BLOCK_EVENTS, shape.events))]


class _Maker:
    """The events of one block."""

    def __init__(self, shape: Shape, rng: random.Random) -> None:
        self._shape = shape
        self._random = rng.random
        self._bits = rng.getrandbits

    def event(self, index: int) -> Event:
        shape = self._shape
        draw = self._random()
        time_ms = shape.first_ms + index * shape.span_ms // shape.events
        time_ms += int(self._random() * 2 * _JITTER_MS) - _JITTER_MS
        skewed = self._random()
        account = int(skewed * skewed * skewed * shape.accounts)
        if draw < 0.55:
            return self._order(index, account, time_ms)
        if draw < 0.90:
            return self._payment(index, account, time_ms)
        return self._account(account, time_ms)

    def _order(self, order: int, account: int, time_ms: int) -> Event:
        bits = self._bits(64)
        total = 0
        items = []
        for number in range(1 + (bits & 3)):
            item = bits >> 12 * number
            quantity, price = 1 + (item >> 4 & 3), 99 + (item >> 6 & 0xFFFF)
            total += quantity * price
            items.append(_ITEM % (item % 500_000, quantity, price))
        state = _STATES[(bits >> 50) % len(_STATES)]
        currency, _ = _CURRENCIES[(bits >> 53) % len(_CURRENCIES)]
        value = _ORDER % (order, account, state, time_ms, currency, total, b",".join(items))
        channel = _CHANNELS[(bits >> 56) % len(_CHANNELS)]
        headers: Headers = [
            ("content-type", b"application/json"),
            ("trace-id", b"%016x" % bits),
            ("channel", channel),
        ]
        return Event(ORDERS, b"account-%08d" % account, value, time_ms, headers)

    def _payment(self, order: int, account: int, time_ms: int) -> Event:
        bits = self._bits(64)
        _, currency = _CURRENCIES[(bits >> 53) % len(_CURRENCIES)]
        cents = 99 + (bits & 0x3FFFF)
        reference = bits.to_bytes(8, "big")
        value = PAYMENT.pack(order, account, cents, bits >> 60 & 3, currency, time_ms, reference)
        headers: Headers = [("content-type", b"application/x-payment"), ("trace-id", b"%016x" % bits)]
        if bits >> 60 == 0:  # the same header twice, as from two hops of a trace
            headers.append(("trace-id", b"%016x" % (bits >> 1)))
        return Event(PAYMENTS, order.to_bytes(8, "big"), value, time_ms, headers)

    def _account(self, account: int, time_ms: int) -> Event:
        bits = self._bits(64)
        key = b"account-%08d" % account
        if bits % 20 == 0:
            return Event(ACCOUNTS, key, None, time_ms, [])
        value = _ACCOUNT % (
            account,
            bits % 1_000_000,
            _COUNTRIES[(bits >> 20) % len(_COUNTRIES)],
            _TIERS[(bits >> 24) % len(_TIERS)],
            (bits >> 30 & 0xFFFFFF) - 100_000,
            time_ms,
        )
        return Event(ACCOUNTS, key, value, time_ms, [("content-type", b"application/json")])
