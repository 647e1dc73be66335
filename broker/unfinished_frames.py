"""Room for large requests of which only a part has arrived, over all connections.

Owns: how many bytes their buffers take, and whose wait for more.
Invariants: beyond the bound one connection goes on (`_first`), so one frame can always be finished; others
stop growing and are asked again when a frame is finished or its connection is gone. Somebody waits only while
there is a first one. One that never sends the rest is closed as idle (`Connections.sweep`).
Does not: count requests that are being answered (`Connections.in_flight_bytes`), or buffers too small to
matter (`UNASKED_BYTES`): what most producers send is never held up here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.connection import Connection


class UnfinishedFrames:
    """Who may take more memory for a frame's rest."""

    __slots__ = ("_first", "_loop", "_waiting", "held_bytes")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.held_bytes = 0
        self._loop = loop
        self._first: Connection | None = None
        self._waiting: dict[Connection, None] = {}

    def grow(self, connection: Connection, more_bytes: int, room_bytes: int) -> bool:
        """Take `more_bytes`, of `room_bytes` for all (negative: no bound); or `go_on` is called later."""
        if 0 <= room_bytes < self.held_bytes + more_bytes:
            if self._first not in (None, connection):
                self._waiting[connection] = None
                return False
            self._first = connection
        self.held_bytes += more_bytes
        return True

    def release(self, connection: Connection, held_bytes: int) -> None:
        """Its frame has all its bytes, or never will; `held_bytes` are free now."""
        self.held_bytes -= held_bytes
        self._waiting.pop(connection, None)
        if self._first is connection:
            self._first = None
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            self._loop.call_soon(each.go_on)
