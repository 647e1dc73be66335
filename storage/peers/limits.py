"""Every bound of the transport between nodes, with its reason; its errors."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

MiB = 1 << 20


class PeerUnreachable(Exception):
    """There is no link to that node, or it broke before the response."""


class PeerError(Exception):
    """The other node rejects the request; the text is its own."""


TOO_MANY_REQUESTS = "too many questions"
"""The error of a node that handles as many of our requests as it may; later there is room again."""

BACKLOG = 128
"""Connections of peers that wait to be accepted."""
MAX_ERROR_LENGTH = 4000
"""Characters of an error response."""


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Bytes, counts and times."""

    bulk_bytes: int = 64 * MiB
    """Unsent on one bulk link: four groups' pipelines of the largest entries; more is dropped."""
    control_bytes: int = 8 * MiB
    """Unsent on one control link: seconds of heartbeats of hundreds of groups."""
    frame_bytes: int = 80 * MiB
    """The largest message: a frame as large as segments allow, and its envelope."""
    handshake_bytes: int = 64 << 10
    """The largest frame before the handshake."""
    large_bytes: int = 64 << 10
    """Larger requests and responses travel on the bulk link."""
    max_requests: int = 256
    """Requests of one peer and one kind that are being handled: those of one kind may wait for another kind's
    effect, and must not keep it out."""
    unidentified: int = 64
    """Connections without a handshake; of more the oldest is closed."""
    dial_seconds: float = 3.0
    """To connect and complete the handshake, for either side."""
    first_pause_seconds: float = 0.05
    last_pause_seconds: float = 1.0
    """Between attempts to dial; doubled from the first to the last."""
    dead_ms: int = 3000
    """A peer whose kernel has acknowledged nothing for this time counts as dead."""


def tune(connected: socket.socket, dead_ms: int) -> None:
    """Sets socket options: send at once, detect a dead peer by the kernel. Does what the platform can."""
    settings = [
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", dead_ms),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", max(1, dead_ms // 1000 - 1)),
    ]
    for level, name, value in settings:
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                connected.setsockopt(level, option, value)
