"""The parser of bootstrap servers, in the form of Kafka's clients."""

from __future__ import annotations

from typing import Final

from lockstep.protocol.client_errors import ClientError

DEFAULT_PORT: Final = 9092


def bootstrap_addresses(text: str) -> list[tuple[str, int]]:
    """(host, port) of each of the addresses, which have commas between them. Raises ClientError."""
    return [parse_address(part) for part in text.split(",")]


def parse_address(text: str) -> tuple[str, int]:
    """`HOST`, `HOST:PORT` or `[IPv6]:PORT`; the port is 9092 where none is named. Raises ClientError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or (text.count(":") > 1 and not host.endswith("]")):
        host, port = text.strip(), str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClientError(f"{text!r} is not an address of the form HOST:PORT")
    return host, int(port)
