"""The bytes of large responses, of all clients, that are being read from the disk or wait to be sent."""

from __future__ import annotations


class UnsentBytes:
    """A count that connections and reads from the disk keep, and that limits Fetch."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0
