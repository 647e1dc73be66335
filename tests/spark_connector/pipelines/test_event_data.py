"""The generated data set: the same bytes from the same seed, and shaped as its docstring says."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from spark_connector.pipelines.event_data import (
    ACCOUNTS,
    BLOCK_EVENTS,
    ORDERS,
    PAYMENT,
    PAYMENTS,
    Event,
    Shape,
    block,
    events,
)
from tests.support.cases import each_case

ROOT = Path(__file__).resolve().parents[3]
SMALL = Shape(seed=7, events=30_000, accounts=1000)


def digest(found: list[Event]) -> str:
    return hashlib.sha256(repr(found).encode()).hexdigest()


def test_the_same_seed_gives_the_same_bytes_whatever_hashing_does() -> None:
    program = (
        "import hashlib; from spark_connector.pipelines.event_data import *;"
        "found = list(events(Shape(seed=7, events=12_000, accounts=1000)));"
        "print(hashlib.sha256(repr(found).encode()).hexdigest())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-P", "-c", program],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert said == {digest(list(events(Shape(seed=7, events=12_000, accounts=1000))))}


def test_another_seed_gives_other_events() -> None:
    assert digest(block(SMALL, 0)) != digest(block(Shape(seed=8, events=30_000, accounts=1000), 0))


def test_a_block_is_made_without_those_before_it() -> None:
    whole = list(events(SMALL))
    assert len(whole) == SMALL.events
    assert block(SMALL, 2) == whole[2 * BLOCK_EVENTS :]


def test_the_last_block_has_what_is_left() -> None:
    assert len(list(events(Shape(events=BLOCK_EVENTS + 3)))) == BLOCK_EVENTS + 3


def test_few_accounts_have_most_of_the_orders() -> None:
    keys = Counter(each.key for each in events(SMALL) if each.topic == ORDERS)
    top = sum(count for _, count in keys.most_common(100))
    assert top > 0.4 * sum(keys.values())


def test_values_can_be_read_again() -> None:
    for each in block(SMALL, 0):
        if each.topic == PAYMENTS:
            assert each.value is not None
            order, *_, time_ms, _ = PAYMENT.unpack(each.value)
            assert (order.to_bytes(8, "big"), time_ms) == (each.key, each.timestamp_ms)
        elif each.value is not None:
            found = json.loads(each.value)
            assert found["account"].encode() == each.key
        if each.topic == ORDERS:
            assert each.value is not None
            found = json.loads(each.value)
            total = sum(item["quantity"] * item["price_cents"] for item in found["items"])
            assert found["total_cents"] == total and 1 <= len(found["items"]) <= 4


def test_there_are_tombstones_null_headers_repeated_headers_and_times_out_of_order() -> None:
    found = list(events(SMALL))
    accounts = [each for each in found if each.topic == ACCOUNTS]
    tombstones = [each for each in accounts if each.value is None]
    assert 0.03 < len(tombstones) / len(accounts) < 0.07
    assert all(not each.headers for each in tombstones)
    assert any(value is None for each in found for _, value in each.headers)
    assert any(len(dict(each.headers)) < len(each.headers) for each in found)
    times = [each.timestamp_ms for each in found]
    assert times != sorted(times)
    assert SMALL.first_ms - 2000 <= min(times) and max(times) < SMALL.first_ms + SMALL.span_ms + 2000


@each_case("name", ["events", "accounts", "span_ms"])
def test_a_shape_that_cannot_be_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Shape(**{name: 0})
