"""Clients that have closed a connection which is not read: event loops see that only while they read.

Owns: the poll of the operating system, one for all such connections. Does not: know why a connection is
not read (`throttles.py`), or close it (`channel_mute.py`).
"""

from __future__ import annotations

import fcntl
import select
import struct
import termios
from collections.abc import Iterable
from typing import Final

_CLOSED: Final = getattr(select, "POLLRDHUP", 0)
"""The client sends nothing more. Linux has it; without it only a reset is seen."""
_RESET: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


def find_disconnected(descriptors: Iterable[int]) -> dict[int, int | None]:
    """The sockets whose clients have closed, each with its unread bytes; None after a reset."""
    poll = select.poll()
    for each in descriptors:
        poll.register(each, _CLOSED)
    return {each: None if events & _RESET else _unread_bytes(each) for each, events in poll.poll(0)}


def _unread_bytes(descriptor: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    return int(count)
