"""The memory limit of large requests of which only a part has arrived, over all connections.

Owns: the bytes of their buffers, and the connections that wait for more.
Invariants: beyond the limit one connection continues (`_first`), so one frame can always be finished; others
stop growing and resume when a frame is finished, its connection is closed, or there is memory for them.
Connections wait only while there is a first one. A connection that does not send the rest while others wait
is closed within a minute (`Connection.reap_idle`).
Does not: count requests in flight (`Connections.in_flight_bytes`), or small buffers (`MAX_UNRESERVED_BYTES`):
most producers' requests never wait here.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class MemoryWaiter(Protocol):
    """A connection that may wait for memory."""

    def resume(self) -> None:
        """Called when there may be memory again."""


class ReceiveMemory:
    """Grants memory for the rest of frames."""

    __slots__ = ("_first", "_loop", "used_bytes", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.used_bytes = 0
        self._loop = loop
        self._first: MemoryWaiter | None = None
        self.waiting: dict[MemoryWaiter, int] = {}
        """The waiting connections and their missing bytes, in order of arrival."""

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
        """The connection's frame is complete, or never will be; `freed_bytes` are free now."""
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
        """Resume connections, in order of arrival, as far as `room_bytes` for all suffice."""
        room_bytes -= self.used_bytes
        while self.waiting:
            connection, more_bytes = next(iter(self.waiting.items()))
            if more_bytes > room_bytes:
                return
            room_bytes -= more_bytes
            del self.waiting[connection]
            self._loop.call_soon(connection.resume)
