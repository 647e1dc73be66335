"""Two questions about loopback: which port is free, and does a broker answer there. No client needed."""

from __future__ import annotations

import itertools
import os
import random
import re
import socket
import struct

HOST = "127.0.0.1"

_PORTS = range(20_000, 32_000)
"""Below the ports Linux hands to outgoing connections, so a client cannot take a broker's port in between."""
_SHARES = 8
"""More than a run of the tests has processes at once: each of them keeps to its own share of the ports."""


def ports_of(worker: str) -> range:
    """Those of a process of a run of the tests in several, as pytest-xdist calls it; "": all."""
    found = re.fullmatch(r"gw(\d+)", worker)
    if found is None:
        return _PORTS
    count = len(_PORTS) // _SHARES
    first = _PORTS.start + int(found[1]) % _SHARES * count
    return range(first, first + count)


_OURS = ports_of(os.environ.get("PYTEST_XDIST_WORKER", ""))
_walk = itertools.count(random.SystemRandom().randrange(len(_OURS)))
"""None comes again soon: who was given it may not have bound it yet, or have let go of it for a restart."""


def free_port(avoid: int = 0) -> int:
    """A loopback port nothing listens on now; the caller must expect to lose a race."""
    for _ in range(1000):
        port = _OURS[next(_walk) % len(_OURS)]
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
