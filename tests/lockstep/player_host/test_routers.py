"""Each route of a configuration becomes a router that does what it says."""

from __future__ import annotations

import pytest

from lockstep.player.core.messages import Entry
from lockstep.player_host.config import ByFunction, ByHeader, ByKey, PlayerConfigError, Route, ToAll
from lockstep.player_host.routers import router_of, unroutable_reason
from lockstep.protocol.records.record import BatchBuilder
from tests.support.cases import each_case


def by_value(record: object) -> list[str]:
    """A routing function as users write them."""
    return [record.value.decode()]  # type: ignore[attr-defined]


def entry() -> Entry:
    builder = BatchBuilder()
    builder.append(b"a", b"k", timestamp_ms=1, headers=[("lockstep-targets", b"b"), ("shards", b"c")])
    builder.append(b"b", None, timestamp_ms=1)
    return Entry(1, bytes(builder.build()))


@each_case(
    ("route", "expected"),
    [
        (ToAll(("a", "b")), {"a", "b"}),
        (ToAll(), {"there"}),
        (ByHeader(), {"b"}),
        (ByHeader(("a",)), {"a", "b"}),
        (ByHeader(("a",), "shards"), {"a", "c"}),
        (ByKey(("a",)), {"a"}),
        (ByKey(("a",), ("b",)), {"a", "b"}),
        (ByFunction(f"{__name__}:by_value"), {"a", "b"}),
    ],
)
def test_whom_it_reaches(route: Route, expected: set[str]) -> None:
    assert {name for name, _ in router_of(route, {"there": 1})(entry())} == expected


@each_case(
    ("route", "locks", "who"),
    [
        (ByHeader(), "true", "no target"),
        (ByHeader(("a", "b")), "false", "a, b"),
        (ByHeader(), "ignore", ""),
        (ByHeader(), None, ""),
        (ByHeader((), "shards"), "true", ""),
        (ToAll(), "true", ""),
    ],
)
def test_a_header_that_no_record_can_have(route: Route, locks: str | None, who: str) -> None:
    why = unroutable_reason(route, locks)
    assert (f"lockstep.locks={locks}" in why and f"all go to {who}: " in why) if who else why == ""


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(PlayerConfigError, match=r"^route.function: .* has no nothing"):
        router_of(ByFunction(f"{__name__}:nothing"), {})
