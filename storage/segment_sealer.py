"""Seals a group's active segment, so that the cleaner reaches its records.

Cleaning goes below the older of the two kept checkpoints. With traffic segments are sealed when full, and
each brings a checkpoint; here both are forced: the next segment begins, and checkpoints are
written until both kept ones lie above what was the last entry at the beginning, on an idle log two of it.
Later entries are not waited for: a busy log would never end.

Invariants: a leader begins once every other member has all entries of its log, unless `without_members` is
set: a member that is behind the cleaned entries then gets a snapshot. A checkpoint is cut where nothing is
appended beyond the log's last frame. Does not: know the reason (`broker/maintenance/segment_roll.py`), nor
clean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lockstep.storage.types import StorageFull, WriteFailed

if TYPE_CHECKING:
    from lockstep.storage.replica import Replica

MEMBERS_SECONDS: Final = 1.0
"""A member that is still behind after this time counts as absent."""
STEP_SECONDS: Final = 0.02
"""The interval of checks."""


class SegmentSealer:
    """Args: is_frame_empty: returns whether no batch is pending that is not in an entry yet."""

    def __init__(self, replica: Replica, is_frame_empty: Callable[[], bool]) -> None:
        self._replica = replica
        self._is_frame_empty = is_frame_empty

    async def run(self, seconds: float, without_members: bool = False) -> bool:
        """Seals the segment and writes both checkpoints above it; returns whether that was done in time.

        Work that was not done in time continues with the next call. Raises StorageFull, WriteFailed.
        """
        loop = asyncio.get_running_loop()
        until, last_index = loop.time() + seconds, self._replica.log.last_index
        members_until = min(until, loop.time() + MEMBERS_SECONDS)
        while not (without_members or self._all_have(last_index)):
            if not await self._wait(members_until):
                return False
        return await self._run(until, last_index)

    async def checkpoint_above(self, last_index: int, seconds: float) -> bool:
        """Writes both checkpoints above entries of sealed segments; returns whether that was done in time.

        Nothing is sealed: a full disk has no next segment. Raises StorageFull, WriteFailed."""
        return await self._run(asyncio.get_running_loop().time() + seconds, last_index)

    async def _run(self, until: float, last_index: int) -> bool:
        """Raises StorageFull, WriteFailed."""
        replica, log = self._replica, self._replica.log
        try:
            while not log.is_cleanable(last_index):
                if not await self._step(until, last_index):
                    return False
        finally:
            replica.checkpointer.requested = False
        return replica.failed is None

    def _all_have(self, last_index: int) -> bool:
        raft = self._replica.raft
        others = [raft.progress(member) for member in raft.configuration.members]
        return all([each is None or each.match_index >= last_index for each in others])

    async def _step(self, until: float, last_index: int) -> bool:
        """Begins the next segment, then a checkpoint as soon as there can be one; False where time is up."""
        replica = self._replica
        if not replica.log.is_sealed(last_index):
            replica.seal(last_index)
            if not replica.log.is_sealed(last_index):
                return await self._wait(until)
        checkpointer = replica.checkpointer
        if checkpointer.under_way is None:
            checkpointer.requested = True  # with the next frames, where there are always some under way
            if self._is_frame_empty() and replica.checkpoint_now():
                checkpointer.requested = False
        writing = checkpointer.under_way
        if writing is not None:
            await asyncio.wait([writing])
            error = writing.exception()
            if isinstance(error, StorageFull | WriteFailed):
                raise error
        return await self._wait(until)

    async def _wait(self, until: float) -> bool:
        if self._replica.stopped or asyncio.get_running_loop().time() >= until:
            return False
        await asyncio.sleep(STEP_SECONDS)
        return not self._replica.stopped
