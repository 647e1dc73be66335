"""One partition's subscription: what is committed, applied one after the other.

Owns the partition's high-water mark and the waits for it to move. The next read is under way while what
came last is applied.

Invariants: nothing is skipped and nothing applied twice; an exception in the application stops the
subscription where it is until `resume`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final, NamedTuple

from lockstep.transactions.calls import Calls
from lockstep.transactions.log import Chunk, Log, Trimmed
from lockstep.transactions.model import (
    Committed,
    HighWaterMarkAhead,
    SubscriptionClosed,
    SubscriptionStalled,
    TransactionError,
)

READ_WAIT_S: Final = 0.5


class _Waiter(NamedTuple):
    offset: int
    ticket: int
    future: asyncio.Future[None]
    is_patient: bool


class Subscription:
    """Reads from the application's mark on. `run` is its task; the rest is for executing transactions."""

    def __init__(
        self, log: Log, calls: Calls, partition: int, on_applied: Callable[[Committed], Awaitable[None]]
    ) -> None:
        self.partition = partition
        self.hwm = -1
        """Everything at or below it is applied, or is nothing that is applied."""
        self.began = -1
        """The mark that it began with: records at or below it do not come from this subscription."""
        self.stalled_by: BaseException | None = None
        """The error at which the subscription is stalled until `resume`."""
        self._log = log
        self._calls = calls
        self._application = calls.application
        self._on_applied = on_applied
        self._previous = -1
        self._is_checked = False
        self._is_closed = False
        self._resumed = asyncio.Event()
        self._waiting: list[_Waiter] = []
        self._tickets = count()

    async def begin(self) -> None:
        """Reads the application's high-water mark. Raises what it raises, TypeError, HighWaterMarkAhead."""
        hwm = await self._calls.call_whole(self._application.high_water_mark, self.partition)
        if not isinstance(hwm, int):
            raise TypeError(f"high_water_mark({self.partition}) is {hwm!r}: an offset, or -1")
        if hwm >= 0:
            end = await self._log.end(self.partition)
            if hwm >= end:
                raise HighWaterMarkAhead(
                    f"partition {self.partition}: the application has applied {hwm}, and the log ends before "
                    f"{end}: that is another topic, or it was re-created; begin with an empty state"
                )
        self.began = self.hwm = self._previous = hwm

    async def run(self) -> None:
        """Applies transactions until cancelled."""
        reading = self._read(self.hwm + 1)
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
        """Try again what the subscription is stalled at."""
        self._resumed.set()

    def abandon(self) -> None:
        """Ends all waits for it, permanently."""
        self._is_closed = True
        self._fail(self._waiting, self._closed_error())

    async def wait_until_applied(self, offset: int, *, is_patient: bool = True) -> None:
        """Wait until everything at or below this offset is applied. Raises SubscriptionClosed.

        Without `is_patient` it does not wait for `resume`: raises SubscriptionStalled.
        """
        if self._is_closed:
            raise self._closed_error()
        if self.hwm >= offset:
            return
        if self.stalled_by is not None and not is_patient:
            raise self.stalled_error()
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, _Waiter(offset, next(self._tickets), future, is_patient))
        await future

    def stalled_error(self) -> SubscriptionStalled:
        """Returns the error with what stopped it."""
        return SubscriptionStalled(
            f"partition {self.partition} is stalled: {self.stalled_by!r}; mend that, then call "
            f"resume({self.partition})"
        )

    def _closed_error(self) -> SubscriptionClosed:
        return SubscriptionClosed(f"partition {self.partition} is not assigned to this client: assign() it")

    def _read(self, position: int) -> asyncio.Task[Chunk]:
        return asyncio.create_task(self._log.read(self.partition, position, READ_WAIT_S))

    async def _next(self, reading: asyncio.Task[Chunk]) -> Chunk:
        """The next chunk; a failed read is repeated after `resume`."""
        while True:
            try:
                return await reading
            except Exception as error:
                await self._stall(self.hwm + 1, error)
                if isinstance(error, Trimmed):
                    await self._restart_from_snapshot()
            reading = self._read(self.hwm + 1)

    async def _restart_from_snapshot(self) -> None:
        """Begins again at the position of the application's snapshot."""
        while True:
            try:
                await self.begin()
                return
            except Exception as error:
                await self._stall(self.hwm + 1, error)

    async def _apply(self, entry: Committed) -> None:
        while True:
            try:
                await self._calls.call_whole(self._application.apply, entry)
                break
            except Exception as error:
                await self._stall(entry.offset, error)
        while not self._is_checked:
            try:
                await self._check(entry)
            except Exception as error:
                await self._stall(entry.offset, error)

    async def _check(self, entry: Committed) -> None:
        """Once: an application that forgets its mark would apply everything again after a restart."""
        hwm = await self._calls.call_whole(self._application.high_water_mark, self.partition)
        if hwm < entry.offset:
            raise TransactionError(
                f"partition {self.partition}: {entry.offset} is applied, and high_water_mark returns {hwm}: "
                "apply must remember committed.offset"
            )
        self._is_checked = True

    async def _stall(self, offset: int, error: Exception) -> None:
        self.stalled_by = error
        self._resumed.clear()
        self._fail([each for each in self._waiting if not each.is_patient], self.stalled_error())
        await self._calls.report(self.partition, offset, error)
        await self._resumed.wait()
        self.stalled_by = None

    def _move(self, hwm: int) -> None:
        self.hwm = max(self.hwm, hwm)
        while self._waiting and self._waiting[0].offset <= self.hwm:
            future = heapq.heappop(self._waiting).future
            if not future.done():
                future.set_result(None)

    @staticmethod
    def _fail(waiting: list[_Waiter], error: TransactionError) -> None:
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(error)
