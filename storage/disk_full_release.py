"""Frees dead segments while the disk is full.

A segment is freed only below the older of the two kept checkpoints, and a checkpoint is written after each
segment that is sealed. On a full disk no further segment is sealed, so the newest segments would stay even
when they are dead: after the only topic was deleted, they fill the disk. This module therefore writes both
checkpoints above them.

Does not: decide when (`broker/maintenance/full_disks.py` does, while a disk is full), or free segments that
are dead in part (`compaction_pass.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lockstep.storage.types import StorageFull, WriteFailed

if TYPE_CHECKING:
    from lockstep.storage.log_group import LogGroup

CHECKPOINT_SECONDS: Final = 2.0
"""For both checkpoints of one call; the next call continues where the time was too short."""


async def free_on_full_disk(group: LogGroup) -> int:
    """Free all dead sealed segments; returns how many. Those above a checkpoint that could not be written
    stay."""
    log_start = group.control.log_start
    dead = [segment.last_index for segment in group.log.segments() if segment.is_dead(log_start)]
    if dead and not group.log.is_cleanable(dead[-1]):
        try:
            await group.sealer.checkpoint_above(dead[-1], CHECKPOINT_SECONDS)
        except StorageFull:
            group.log.drop_indexes(dead[-1])
        except WriteFailed:
            pass  # room would not help: the checkpointer has logged it
    return group.free_deleted_segments()
