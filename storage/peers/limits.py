"""Every bound of the transport between nodes, with its reason; what may go wrong between them."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

MiB = 1 << 20


class PeerUnreachable(Exception):
    """There is no link to that node, or it broke before the answer came."""


class PeerError(Exception):
    """The other node refuses; the text is its own."""


TOO_MANY_QUESTIONS = "too many questions"
"""Its words where it answers as many of ours as it may; later there is room again."""

BACKLOG = 128
"""Connections of peers that wait to be taken."""
LONGEST_ERROR = 4000
"""Characters of an answer that is none."""


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Bytes, counts and times."""

    bulk_bytes: int = 64 * MiB
    """Unsent on one bulk link: four groups' pipelines of the largest entries; what is beyond is dropped."""
    control_bytes: int = 8 * MiB
    """Unsent on one control link: seconds of heartbeats of hundreds of groups."""
    frame_bytes: int = 80 * MiB
    """The largest message: a frame as large as segments allow, and its envelope."""
    greeting_bytes: int = 64 << 10
    """The largest frame from whom we do not know yet."""
    large_bytes: int = 64 << 10
    """Questions and answers beyond this travel on the bulk link."""
    asks: int = 256
    """Questions of one peer and one kind that are being answered: those of a kind may wait for what another
    kind brings, and must not keep it out."""
    strangers: int = 64
    """Connections that have not greeted; the oldest makes way."""
    dial_seconds: float = 3.0
    """To connect, greet and be welcomed; also how long a stranger may say nothing."""
    first_pause_seconds: float = 0.05
    last_pause_seconds: float = 1.0
    """Between attempts to dial; doubled from the first to the last."""
    dead_ms: int = 3000
    """A peer whose kernel has acknowledged nothing for so long is gone."""


def tune(connected: socket.socket, dead_ms: int) -> None:
    """Send at once; notice a dead peer without asking it anything. Does what the platform can."""
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
