"""The cleaner's passes over one member's log, each on a thread: compaction, and the joining of small files.

Owns when a pass waits or ends: while the log is being replaced, when it was, and when the member stops. Does
not: decide what is due (`broker/maintenance/compaction.py`) or which records stay (`compaction_pass.py`), or
touch files (`storage/log/segment_compaction.py`, `log/joiner.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from lockstep.storage.compaction_pass import Cleaned, CleaningPaused, CompactionTarget, clean
from lockstep.storage.types import LAST_OFFSET, FlushFailed

if TYPE_CHECKING:
    from lockstep.storage.control_partition import ControlPartition
    from lockstep.storage.replica import Replica


class LogCleaner:
    """See the module. Runs on the group's event loop."""

    __slots__ = ("_control", "_loop", "_replica", "_running", "_threads")

    def __init__(
        self,
        replica: Replica,
        control: ControlPartition,
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
    ) -> None:
        self._replica = replica
        self._control = control
        self._loop = loop
        self._threads = threads
        self._running = asyncio.Lock()
        """Held by a pass: a batch that compaction has filtered in one segment must not come again in
        another."""

    async def clean(
        self,
        targets: Sequence[CompactionTarget],
        now_ms: int,
        memory_bytes: int,
        throttle: Callable[[int], None],
    ) -> Cleaned | None:
        """Runs a compaction pass over this log, on a thread; None where a snapshot replaces the log. A
        partition is dirty from its `compaction_progress` on, if that is lower. Raises
        what the pass raises."""
        async with self._running:
            return await self._clean(targets, now_ms, memory_bytes, throttle)

    async def _clean(
        self,
        targets: Sequence[CompactionTarget],
        now_ms: int,
        memory_bytes: int,
        throttle: Callable[[int], None],
    ) -> Cleaned | None:
        if self._has_to_wait:
            return None
        log, progress = self._replica.log, self._replica.compaction_progress
        resets = progress.resets

        def throttle_or_pause(count: int) -> None:
            if self._has_to_wait or progress.resets != resets:
                raise CleaningPaused
            throttle(count)

        targets = [
            each._replace(dirty_offset=min(each.dirty_offset, progress.of(each.partition)))
            for each in targets
        ]
        arguments = (
            log,
            targets,
            self._control.log_start,
            now_ms,
            memory_bytes,
            throttle_or_pause,
            self._sends_no_snapshot,
        )
        try:
            done = await self._loop.run_in_executor(self._threads, clean, *arguments)
        except CleaningPaused:
            return None
        log.forget_cleaned(done.ends)
        if progress.resets != resets:
            return None
        progress.note(done.ends, self._control.partitions)
        return done

    async def join(self, throttle: Callable[[int], None]) -> int:
        """Join small neighbouring files of this member's log, on a thread; how many files fewer there are, 0
        where it has to wait. Raises as `DataLog.join`; after FlushFailed the member has ended."""
        async with self._running:
            return 0 if self._has_to_wait else await self._join(throttle)

    async def _join(self, throttle: Callable[[int], None]) -> int:
        def throttle_or_pause(count: int) -> None:
            if self._has_to_wait:
                raise CleaningPaused
            throttle(count)

        try:
            return await self._loop.run_in_executor(
                self._threads, self._replica.log.join, throttle_or_pause, self._is_closed
            )
        except CleaningPaused:
            return 0
        except FlushFailed as error:
            self._replica.fail(error)
            raise

    @property
    def _has_to_wait(self) -> bool:
        return self._replica.stopped or self._replica.installer.incoming is not None

    def _sends_no_snapshot(self) -> bool:
        return not self._replica.installer.is_sending

    def _is_closed(self, local_id: int) -> bool:
        return self._control.log_start(local_id) == LAST_OFFSET
