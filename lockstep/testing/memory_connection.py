"""One client's end of a log in memory: where messages take their time, and get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from lockstep.connection import ClientError
from lockstep.transactions.log import (
    AppendAttempt,
    AppendExpired,
    AppendFailed,
    AppendRefused,
    AppendUnknown,
    Chunk,
)
from lockstep.transactions.model import Refusal

if TYPE_CHECKING:
    from lockstep.testing.memory_log import MemoryLog


class Fault(Enum):
    """The fate of an append whose response never comes."""

    LOST = "it did not arrive, and never will"
    UNANSWERED = "it arrived, the answer did not"
    UNDER_WAY = "it may still arrive, until it is fenced"


class MemoryConnection:
    """One client's end of a `MemoryLog`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._is_open = False
        self._suspended: set[int] = set()

    def suspend_feed(self, partition: int) -> None:
        """This client's alone."""
        self._suspended.add(partition)

    def resume_feed(self, partition: int) -> None:
        self._suspended.discard(partition)
        self._log.wake()

    @property
    def topic_id(self) -> str:
        """The same for every log in memory."""
        return "memory"

    async def open(self) -> int:
        await asyncio.sleep(self._log.delay_s())
        self._is_open = True
        return self._log.partitions

    async def append(self, append: AppendAttempt, timeout_s: float) -> Mapping[int, int]:
        """Same as `Log.append`; ValueError for an append that no client may send."""
        log = self._require_open()
        log.begin(append)
        arrival_s = log.delay_s()
        try:
            await asyncio.sleep(min(arrival_s, timeout_s))
        except asyncio.CancelledError:
            log.leave_under_way(append)
            raise
        fault = Fault.UNDER_WAY if arrival_s > timeout_s else log.next_fault()
        if isinstance(fault, AppendFailed | AppendExpired):
            raise fault
        if isinstance(fault, Refusal):
            raise AppendRefused(fault._replace(partition=min(append.parts)))
        if fault is Fault.UNDER_WAY:
            log.leave_under_way(append)
        if fault in (Fault.UNDER_WAY, Fault.LOST):
            raise AppendUnknown(fault.value)
        refused: AppendRefused | None = None
        offsets: Mapping[int, int] = {}
        try:
            offsets = log.store(append)
        except AppendRefused as error:
            refused = error
        await self._answer(fault, timeout_s - arrival_s)
        if refused is not None:
            raise refused
        return offsets

    async def fence(self, append: AppendAttempt, timeout_s: float) -> Mapping[int, int]:
        """Raises AppendUnknown."""
        log = self._require_open()
        arrival_s = log.delay_s()
        await asyncio.sleep(min(arrival_s, timeout_s))
        fault = Fault.LOST if arrival_s > timeout_s else log.fence_fault()
        if fault is Fault.LOST:
            raise AppendUnknown(fault.value)
        positions = log.fence(append)
        await self._answer(fault, timeout_s - arrival_s)
        return positions

    async def read(self, partition: int, position: int, wait_s: float) -> Chunk:
        """Raises Trimmed."""
        log = self._require_open()
        deadline_s = asyncio.get_running_loop().time() + wait_s
        await asyncio.sleep(0)  # whoever polls lets others work, too
        while True:
            next_change = log.next_change
            if not (partition in self._suspended or log.is_suspended(partition)):
                chunk = log.read(partition, position)
                if chunk.position > position:
                    await asyncio.sleep(log.delay_s())
                    return chunk
            try:
                async with asyncio.timeout_at(deadline_s):
                    await next_change.wait()
            except TimeoutError:
                return Chunk((), position)

    async def end(self, partition: int) -> int:
        log = self._require_open()
        await asyncio.sleep(log.delay_s())
        return log.end(partition)

    async def close(self) -> None:
        self._is_open = False

    def _require_open(self) -> MemoryLog:
        if not self._is_open:
            raise ClientError("not open")
        return self._log

    async def _answer(self, fault: Fault | None, remaining_s: float) -> None:
        """The way back. Raises AppendUnknown."""
        answer_s = self._log.delay_s()
        await asyncio.sleep(min(answer_s, remaining_s))
        if fault is Fault.UNANSWERED or answer_s > remaining_s:
            raise AppendUnknown(Fault.UNANSWERED.value)
