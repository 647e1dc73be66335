"""A damaged segment mended while a reader waits for it, from the other members.

Owns: one try at a time for a segment, however many readers wait, and how soon there is another after one that
failed. A segment above the older checkpoint, or the one that is written to, is sealed and put below both kept
checkpoints first, for only then may it be written afresh. Invariant: a reader waits as long as it says and no
longer; the try goes on without it. Does not: fetch or write (`repairing.py`), or know what is damaged
(`storage/log/damage.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from storage.repairing import ScrubEnded
from storage.types import StorageError

if TYPE_CHECKING:
    from storage.replica import Replica
    from storage.sealing import Sealing

log_of_mending = logging.getLogger(__name__)

SEAL_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 10.0
"""After a try that failed readers are told at once, for so long. The scrubbing tries again by itself."""


class Mending:
    """See the module. On the group's loop."""

    __slots__ = ("_not_before", "_replica", "_sealing", "_tries")

    def __init__(self, replica: Replica, sealing: Sealing) -> None:
        self._replica = replica
        self._sealing = sealing
        self._tries: dict[int, asyncio.Task[bool]] = {}
        self._not_before: dict[int, float] = {}

    async def run(self, sequence: int, seconds: float) -> bool:
        """Have a segment mended; whether it has come to verify within these seconds."""
        raft, loop = self._replica.raft, asyncio.get_running_loop()
        if self._replica.stopped or raft.configuration.members == (raft.member_id,):
            return False
        one = self._tries.get(sequence)
        if one is None:
            if loop.time() < self._not_before.get(sequence, 0.0):
                return False
            one = self._tries[sequence] = loop.create_task(self._mend(sequence))
        done, _ = await asyncio.wait((one,), timeout=max(0.0, seconds))
        return bool(done) and one.result()

    async def _mend(self, sequence: int) -> bool:
        replica, log = self._replica, self._replica.log
        mended = False
        try:
            if not log.rewritable(sequence):
                await self._sealing.run(SEAL_SECONDS, without_members=True)
            await replica.repairing.ended()
            await replica.repairing.scrub(sequence, _without_pause)
            await replica.repairing.ended()
            mended = not log.damage.is_damaged(sequence)
        except ScrubEnded:
            pass
        except (OSError, StorageError) as error:
            log_of_mending.warning("group %d: segment %d is not mended: %s", log.group_id, sequence, error)
        finally:
            del self._tries[sequence]
            self._not_before.pop(sequence, None)
            if not mended:
                self._not_before[sequence] = asyncio.get_running_loop().time() + AGAIN_SECONDS
        return mended

    def stop(self) -> None:
        """The group closes: nobody is waited for."""
        for each in list(self._tries.values()):
            each.cancel()


def _without_pause(_: int) -> None:
    """A reader waits."""
