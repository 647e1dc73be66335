"""Addresses of brokers: what is one, and what is not."""

from __future__ import annotations

import pytest

from lockstep.protocol.bootstrap import bootstrap_addresses, parse_address
from lockstep.protocol.client_errors import ClientError
from tests.support.cases import each_case


@each_case(
    ("text", "address"),
    [
        ("host:1", ("host", 1)),
        ("host", ("host", 9092)),
        (" 10.0.0.1:9093 ", ("10.0.0.1", 9093)),
        ("[::1]:9094", ("::1", 9094)),
        ("::1", ("::1", 9092)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@each_case("text", ["", ":", "host:", "host:0", "host:65536", "host:x", "host:-1", ":9092"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ClientError, match="not an address"):
        parse_address(text)


def test_several() -> None:
    assert bootstrap_addresses("a:1, b") == [("a", 1), ("b", 9092)]
    with pytest.raises(ClientError, match="'' is not an address"):
        bootstrap_addresses("a:1,,b:2")
