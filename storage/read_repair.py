"""Read repair: a damaged segment is repaired from the other members, mostly while a reader waits for it.

A reader of records waits. Readers of frames (for followers, snapshots, players) and the scrub only begin it.

Owns: at most one repair at a time of each segment, however many readers wait for it, and how long a segment
that could not be repaired is left alone. A segment above the older of the two kept checkpoints, or the one
that is written to, is sealed and put below both of them first: only there may a segment be rewritten.
Invariant: a reader waits for at most the seconds it names; the repair continues without it.
Does not: fetch frames or rewrite the segment (`segment_repair.py`), or know what is damaged
(`storage/log/damage.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from lockstep.storage.segment_repair import ScrubStopped
from lockstep.storage.types import NO_SEGMENT, StorageError

if TYPE_CHECKING:
    from lockstep.storage.replica import Replica
    from lockstep.storage.segment_repair import SegmentRepair
    from lockstep.storage.segment_sealer import SegmentSealer

log_of_repairs = logging.getLogger(__name__)

SEAL_SECONDS: Final = 5.0
"""How long the segment's sealing and both checkpoints may take."""
RETRY_SECONDS: Final = 10.0
"""The time after a failed repair in which readers get their error at once; scrubbing retries on its own."""


class ReadRepair:
    """The repairs of one log group that readers wait for. Runs on the group's event loop."""

    __slots__ = ("_not_before", "_repairs", "_replica", "_sealer")

    def __init__(self, replica: Replica, sealer: SegmentSealer) -> None:
        self._replica = replica
        self._sealer = sealer
        self._repairs: dict[int, asyncio.Task[bool]] = {}
        """By the segment's sequence number."""
        self._not_before: dict[int, float] = {}
        """By the segment's sequence number: the loop time before which no further repair begins."""
        replica.log.call_on_corrupt_frames(partial(_call_soon, asyncio.get_running_loop(), self.begin))
        replica.repairing.on_corrupt_above_checkpoint = self.begin

    @property
    def segment_repair(self) -> SegmentRepair:
        """The group's repairs, whatever began them."""
        return self._replica.repairing

    async def repair(self, sequence: int, wait_s: float) -> bool:
        """Repair a segment; True if it verifies within `wait_s`.

        False at once where `begin` begins none.
        """
        task = self.begin(sequence)
        if task is None:
            return False
        done, _ = await asyncio.wait((task,), timeout=max(0.0, wait_s))
        return bool(done) and task.result()

    def begin(self, sequence: int) -> asyncio.Task[bool] | None:
        """The repair of a segment, begun now where it is not under way; its result is whether the segment
        verifies. None for a group with one member, for a segment whose last repair failed a moment ago, and
        for records that are missing together with their segment."""
        if sequence == NO_SEGMENT:
            return None  # there is no file to repair: a snapshot into an empty directory brings the records
        raft, loop = self._replica.raft, asyncio.get_running_loop()
        if self._replica.stopped or raft.configuration.members == (raft.member_id,):
            return None
        task = self._repairs.get(sequence)
        if task is None:
            if loop.time() < self._not_before.get(sequence, 0.0):
                return None
            task = self._repairs[sequence] = loop.create_task(self._repair(sequence))
        return task

    async def _repair(self, sequence: int) -> bool:
        replica, log = self._replica, self._replica.log
        repaired = False
        try:
            if not log.rewritable(sequence):
                await self._sealer.run(SEAL_SECONDS, without_members=True)
            await replica.repairing.wait_until_ended()
            await replica.repairing.scrub(sequence, _without_pause)
            await replica.repairing.wait_until_ended()
            repaired = not log.damage.is_damaged(sequence)
        except ScrubStopped:
            pass
        except (OSError, StorageError) as error:
            log_of_repairs.warning(
                "log group %d: segment %d could not be repaired: %s", log.group_id, sequence, error
            )
        finally:
            del self._repairs[sequence]
            self._not_before.pop(sequence, None)
            if not repaired:
                self._not_before[sequence] = asyncio.get_running_loop().time() + RETRY_SECONDS
        return repaired

    def stop(self) -> None:
        """Cancel all repairs, as the group closes."""
        for each in list(self._repairs.values()):
            each.cancel()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[int], object], sequence: int) -> None:
    """Call this on the loop, from any thread; not once the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, sequence)


def _without_pause(_: int) -> None:
    """A throttle without pauses: a reader waits for the repair."""
