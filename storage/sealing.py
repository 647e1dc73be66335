"""Sealing the file that a group writes to, so that the cleaner reaches what is in it.

Cleaning goes below the older of the two kept checkpoints. With traffic files are sealed when full, and
each brings a checkpoint; here both are made to order: the next segment begins, and checkpoints are
written until both kept ones lie above what was the last entry at the beginning, on an idle log two of it.
What comes meanwhile is not waited for: a busy log would run away.

Invariants: a leader begins once every other member has all that is in its log, unless told to go on
without them: who is behind what is cleaned then gets a checkpoint and no entries. A checkpoint is cut where
nothing is appended beyond the log's last frame. Does not: know why (`broker/segment_roll.py`), nor clean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from storage.types import StorageFull

if TYPE_CHECKING:
    from storage.replica import Replica

MEMBERS_SECONDS: Final = 1.0
"""A member that has not got by then what the log ended with is away."""
STEP_SECONDS: Final = 0.02
"""How often it looks whether it can go on."""


class Sealing:
    """Args: nothing_open: whether no batch was taken that is not in an entry yet."""

    def __init__(self, replica: Replica, nothing_open: Callable[[], bool]) -> None:
        self._replica = replica
        self._nothing_open = nothing_open

    async def run(self, seconds: float, without_members: bool = False) -> bool:
        """Seal what has been written and have it below both checkpoints; whether that came about in time.

        What was begun and did not end in time goes on with the next call. Raises StorageFull.
        """
        loop = asyncio.get_running_loop()
        until, last_index = loop.time() + seconds, self._replica.log.last_index
        heard_by = min(until, loop.time() + MEMBERS_SECONDS)
        while not (without_members or self._all_have(last_index)):
            if not await self._wait(heard_by):
                return False
        return await self._run(until, last_index)

    async def checkpoint_above(self, last_index: int, seconds: float) -> bool:
        """Have the entries up to there, which are in sealed segments, below both checkpoints; whether that
        came about in time. Nothing is sealed: a full disk has no next segment. Raises StorageFull."""
        return await self._run(asyncio.get_running_loop().time() + seconds, last_index)

    async def _run(self, until: float, last_index: int) -> bool:
        """Raises StorageFull."""
        replica, log = self._replica, self._replica.log
        try:
            while not log.is_cleanable(last_index):
                if not await self._step(until, last_index):
                    return False
        finally:
            replica.checkpointer.wanted = False
        return replica.failed is None

    def _all_have(self, last_index: int) -> bool:
        raft = self._replica.raft
        others = [raft.progress(member) for member in raft.configuration.members]
        return all([each is None or each.match_index >= last_index for each in others])

    async def _step(self, until: float, last_index: int) -> bool:
        """The next segment, then a checkpoint as soon as there can be one; False where time is up."""
        replica = self._replica
        if not replica.log.is_sealed(last_index):
            replica.seal(last_index)
            if not replica.log.is_sealed(last_index):
                return await self._wait(until)
        checkpointer = replica.checkpointer
        if checkpointer.under_way is None:
            checkpointer.wanted = True  # with the next frames, where there are always some under way
            if self._nothing_open() and replica.checkpoint_now():
                checkpointer.wanted = False
        writing = checkpointer.under_way
        if writing is not None:
            await asyncio.wait([writing])
            error = writing.exception()
            if isinstance(error, StorageFull):
                raise error
        return await self._wait(until)

    async def _wait(self, until: float) -> bool:
        if self._replica.stopped or asyncio.get_running_loop().time() >= until:
            return False
        await asyncio.sleep(STEP_SECONDS)
        return not self._replica.stopped
