"""Room on a full disk: what is dead is freed now, not when the log goes on.

Segments are freed below the older of the two kept checkpoints, and a checkpoint follows each segment that is
sealed. On a full disk none is sealed any more, so that the last segments before the end stay, dead or not:
after the only topic was deleted, all of the disk. Here both checkpoints are written above them.

Does not: decide when (`broker/server.py`, while a disk is full), or free what is half dead (`cleaner.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.types import StorageFull

if TYPE_CHECKING:
    from storage.group import LogGroup

CHECKPOINT_SECONDS: Final = 2.0
"""For both checkpoints of a round; where that is too short the next round goes on."""


async def free_on_full_disk(group: LogGroup) -> int:
    """Free every dead segment that is sealed; how many. Where a checkpoint finds no room, none above it."""
    log_start = group.control.log_start
    dead = [segment.last_index for segment in group.log.segments() if segment.is_dead(log_start)]
    if dead and not group.log.is_cleanable(dead[-1]):
        try:
            await group.sealing.checkpoint_above(dead[-1], CHECKPOINT_SECONDS)
        except StorageFull:
            group.log.drop_indexes(dead[-1])
    return group.free_dead_segments()
