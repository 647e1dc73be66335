"""Room for large requests of which only a part has arrived, over all connections.

Owns: how many bytes their buffers take, and whose wait for more.
Invariants: beyond the bound one connection goes on (`_first`), so one frame can always be finished; others
stop growing and are asked again when a frame is finished, its connection is gone, or there is room for what
they want. Somebody waits only while there is a first one. Who does not send the rest while others wait is
closed within a minute (`Connection.reap_idle`).
Does not: count requests that are being answered (`Connections.in_flight_bytes`), or buffers too small to
matter (`MAX_UNRESERVED_BYTES`): what most producers send is never held up here.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class MemoryWaiter(Protocol):
    """A connection, as far as it matters here."""

    def resume(self) -> None:
        """There may be room now."""


class UnfinishedFrames:
    """Who may take more memory for a frame's rest."""

    __slots__ = ("_first", "_loop", "used_bytes", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.used_bytes = 0
        self._loop = loop
        self._first: MemoryWaiter | None = None
        self.waiting: dict[MemoryWaiter, int] = {}
        """Who wants how many bytes more, in order of coming."""

    def grow(self, connection: MemoryWaiter, more_bytes: int, room_bytes: int) -> bool:
        """Take `more_bytes`, of `room_bytes` for all (negative: no bound); or `resume` is called later."""
        if 0 <= room_bytes < self.used_bytes + more_bytes:
            if self._first not in (None, connection):
                self.waiting[connection] = more_bytes
                return False
            self._first = connection
        self.used_bytes += more_bytes
        return True

    def release(self, connection: MemoryWaiter, freed_bytes: int) -> None:
        """Its frame has all its bytes, or never will; `freed_bytes` are free now."""
        self.used_bytes -= freed_bytes
        self.waiting.pop(connection, None)
        if self._first is connection:
            self._first = None
        elif not freed_bytes:
            return
        waiting, self.waiting = self.waiting, {}
        for each in waiting:
            self._loop.call_soon(each.resume)

    def wake(self, room_bytes: int) -> None:
        """Requests in flight have left `room_bytes` for all: who fits goes on, in order of coming."""
        room_bytes -= self.used_bytes
        while self.waiting:
            connection, more_bytes = next(iter(self.waiting.items()))
            if more_bytes > room_bytes:
                return
            room_bytes -= more_bytes
            del self.waiting[connection]
            self._loop.call_soon(connection.resume)
