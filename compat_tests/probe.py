"""Two questions about loopback: which port is free, and does a broker answer there. No client needed."""

from __future__ import annotations

import random
import socket
import struct

HOST = "127.0.0.1"

_PORTS = range(20_000, 32_000)
"""Below the ports Linux hands to outgoing connections, so a client cannot take a broker's port in between."""


def free_port(avoid: int = 0) -> int:
    """A loopback port nothing listens on now, chosen at random; the caller must expect to lose a race."""
    choice = random.SystemRandom()
    for _ in range(1000):
        port = choice.choice(_PORTS)
        if port == avoid:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise OSError("no free loopback port found")


def answers(host: str, port: int, timeout_s: float) -> bool:
    """True when a broker at `host:port` answers Metadata v1 (for no topic) with at least one live broker."""
    body = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _read_exactly(connection, 4))
            answer = _read_exactly(connection, size)
    except (OSError, EOFError):
        return False
    correlation_id, brokers = struct.unpack_from(">ii", answer)
    return bool(correlation_id == 1 and brokers > 0)


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        part = connection.recv(count - len(got))
        if not part:
            raise EOFError("connection closed")
        got += part
    return bytes(got)
