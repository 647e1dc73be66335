"""Addresses of targets: `host:port`, `[host]:port` or `unix:/path`, as gRPC writes them."""

from __future__ import annotations

UNIX = "unix:"


def parse_address(address: str) -> str | tuple[str, int]:
    """Parse an address: the path of a socket, or a host and a port. Raises ValueError."""
    if address.startswith(UNIX):
        path = address.removeprefix(UNIX)
        if not path:
            raise ValueError("an address unix: without a path")
        return path
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address}: an IPv6 address needs brackets")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address}: neither host:port nor unix:/path")
    return host, int(port)


def with_port(address: str, port: int) -> str:
    """The address with the port that was bound."""
    return address if address.startswith(UNIX) else f"{address.rpartition(':')[0]}:{port}"
