"""One partition's feed: what is committed, applied one after the other.

Owns the partition's high-water mark and whoever waits for it to move. The next read is under way while what
came last is applied.

Invariants: nothing is skipped and nothing applied twice; an exception in the application stops the feed where
it is until `resume`.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final

from lockstep.transactions.log import Chunk, Log, Trimmed
from lockstep.transactions.model import Application, Committed

READ_WAIT_S: Final = 0.5


class FeedEnded(Exception):
    """The partition was given up while somebody waited for it."""


Call = Callable[..., Awaitable[Any]]
"""Calls a function of the application, plain or async."""

_log = logging.getLogger("lockstep.transactions")


class Feed:
    """Reads from the application's mark on. `run` is its task; the rest is asked by whoever executes."""

    def __init__(
        self,
        log: Log,
        application: Application,
        partition: int,
        call: Call,
        on_applied: Callable[[Committed], Awaitable[None]],
    ) -> None:
        self.partition = partition
        self.mark = -1
        """Everything at or below it is applied, or is nothing that is applied."""
        self.began = -1
        """The mark that it began with: what stands at or below it, this feed has not brought."""
        self.stalled_by: BaseException | None = None
        """What the application, or the log, did; nothing moves until `resume`."""
        self._log = log
        self._application = application
        self._call = call
        self._on_applied = on_applied
        self._previous = -1
        self._resumed = asyncio.Event()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tickets = count()

    async def begin(self) -> None:
        """Learn where the application is. Raises what it raises."""
        self.began = self.mark = self._previous = await self._call(
            self._application.high_water_mark, self.partition
        )

    async def run(self) -> None:
        """Apply until cancelled."""
        reading = self._read(self.mark + 1)
        try:
            while True:
                chunk = await self._next(reading)
                reading = self._read(chunk.position)
                for entry in chunk.entries:
                    entry.previous = self._previous
                    await self._apply(entry)
                    self._previous = entry.offset
                    self._move(entry.offset)
                    await self._on_applied(entry)
                self._move(chunk.position - 1)
        finally:
            reading.cancel()

    def resume(self) -> None:
        """Try again what the feed is stalled at."""
        self._resumed.set()

    def abandon(self) -> None:
        """Nobody is to wait for it any more."""
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(FeedEnded(f"partition {self.partition} is not assigned to this client"))

    async def reached(self, offset: int) -> None:
        """Wait until everything at or below this offset is applied. Raises FeedEnded."""
        if self.mark >= offset:
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._tickets), future))
        await future

    def _read(self, position: int) -> asyncio.Task[Chunk]:
        return asyncio.create_task(self._log.read(self.partition, position, READ_WAIT_S))

    async def _next(self, reading: asyncio.Task[Chunk]) -> Chunk:
        """What is being read; where that fails, what is read once somebody has mended it."""
        while True:
            try:
                return await reading
            except Exception as error:
                await self._stall(self.mark + 1, error)
                if isinstance(error, Trimmed):
                    await self._begin_anew()
            reading = self._read(self.mark + 1)

    async def _begin_anew(self) -> None:
        """From a snapshot: only the application can know."""
        while True:
            try:
                await self.begin()
                return
            except Exception as error:
                await self._stall(self.mark + 1, error)

    async def _apply(self, entry: Committed) -> None:
        while True:
            try:
                await self._call(self._application.apply, entry)
                return
            except Exception as error:
                await self._stall(entry.offset, error)

    async def _stall(self, offset: int, error: Exception) -> None:
        self.stalled_by = error
        self._resumed.clear()
        try:
            await self._call(self._application.on_exception, self.partition, offset, error)
        except Exception:
            _log.exception("on_exception failed, too")
        await self._resumed.wait()
        self.stalled_by = None

    def _move(self, mark: int) -> None:
        self.mark = max(self.mark, mark)
        while self._waiting and self._waiting[0][0] <= self.mark:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
