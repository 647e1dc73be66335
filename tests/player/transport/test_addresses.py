"""What an address says."""

from __future__ import annotations

import pytest

from lockstep.player.transport.addresses import parse_address, with_port
from tests.support.cases import each_case


@each_case(
    "address, said",
    [
        ("unix:/run/target", "/run/target"),
        ("unix:relative", "relative"),
        ("localhost:9000", ("localhost", 9000)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_valid_addresses(address: str, said: str | tuple[str, int]) -> None:
    assert parse_address(address) == said


@each_case("address", ["", "unix:", "host", "host:", ":9000", "host:x", "host:65536", "::1:9000", "host:²"])
def test_invalid_addresses(address: str) -> None:
    with pytest.raises(ValueError, match=r"address|neither"):
        parse_address(address)


def test_the_port_that_was_bound() -> None:
    assert with_port("[::1]:0", 17) == "[::1]:17"
    assert with_port("localhost:9", 9) == "localhost:9"
    assert with_port("unix:/run/target", 1) == "unix:/run/target"
