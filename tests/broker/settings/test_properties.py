"""Property values: every kind, every refusal names key and value."""

from __future__ import annotations

import pytest

from lockstep.broker.settings.properties import ConfigError, Kind, Property
from tests.support.cases import each_case


def prop(kind: Kind, **options: object) -> Property:
    return Property("some.key", kind, None, "doc", **options)  # type: ignore[arg-type]


@each_case(
    ("kind", "text", "value"),
    [
        (Kind.INT, " 12 ", 12),
        (Kind.INT, "-2147483648", -(2**31)),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.SHORT, "+7", 7),
        (Kind.BOOLEAN, "TRUE", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.DOUBLE, "0.5", 0.5),
        (Kind.STRING, " a b ", "a b"),
        (Kind.LIST, "a, b", ("a", "b")),
        (Kind.LIST, "", ()),
    ],
)
def test_parses(kind: Kind, text: str, value: object) -> None:
    assert prop(kind).parse(text) == value


@each_case(
    ("kind", "text"),
    [
        (Kind.INT, ""),
        (Kind.INT, "1_000"),
        (Kind.INT, "٣"),
        (Kind.INT, "1.0"),
        (Kind.INT, "2147483648"),
        (Kind.LONG, "9223372036854775808"),
        (Kind.LONG, "9" * 5000),
        (Kind.BOOLEAN, "yes"),
        (Kind.DOUBLE, "half"),
        (Kind.DOUBLE, "nan"),
        (Kind.DOUBLE, "-inf"),
    ],
)
def test_refuses(kind: Kind, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        prop(kind).parse(text)
    assert str(refused.value).startswith(f"some.key={text}: ")


def test_bounds_and_choices() -> None:
    bounded = prop(Kind.INT, minimum=1, maximum=5)
    assert [bounded.parse("1"), bounded.parse("5")] == [1, 5]
    for text in ("0", "6"):
        with pytest.raises(ConfigError, match="must be at"):
            bounded.parse(text)
    listed = prop(Kind.LIST, choices=("a", "b"))
    assert listed.parse("b,a") == ("b", "a")
    with pytest.raises(ConfigError, match="must be one of a, b"):
        listed.parse("a,c")
    only_false = prop(Kind.BOOLEAN, choices=("false",))
    assert only_false.parse("false") is False
    with pytest.raises(ConfigError):
        only_false.parse("true")


def test_shows_values_as_kafka_writes_them() -> None:
    shown = [prop(Kind.INT).show(value) for value in (None, True, 5, ("a", "b"), "x")]
    assert shown == [None, "true", "5", "a,b", "x"]
