"""Warns of records with a timestamp in the future, which block retention by time and compaction.

Owns: `FutureRecords`, which logs one warning for each such batch. Does not: find batches, or read a clock.
Source: KAFKA-18929.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from typing import Final

from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.storage.log.batch_reader import BatchLocation

MAX_CLOCK_SKEW_MS: Final = 60_000
"""A timestamp that is ahead by less is put down to clock skew."""

Key = tuple[int, int]
"""A partition: its log group's id, and its local id."""


class FutureRecords:
    """The warnings of one periodic task. Args: log: where they go; task: the task's name in them."""

    def __init__(self, log: logging.Logger, task: str) -> None:
        self._log = log
        self._task = task
        self._warned: dict[Key, int] = {}
        """The base offset of the batch that was warned of last."""

    def note(self, partition: Partition, first_kept: BatchLocation | None, now_ms: int) -> None:
        """Warn if `first_kept`, the first batch that is too young for the task, is of the future."""
        key = partition.group.group_id, partition.log.local_id
        if first_kept is None or first_kept.max_timestamp <= now_ms + MAX_CLOCK_SKEW_MS:
            self._warned.pop(key, None)
        elif self._warned.get(key) != first_kept.base_offset:
            self._warned[key] = first_kept.base_offset
            self._log.warning(
                "%s-%d: %s is blocked at offset %d by a record with a timestamp %d s in the future; "
                "message.timestamp.after.max.ms=%d allows it",
                partition.topic.name,
                partition.index,
                self._task,
                first_kept.base_offset,
                (first_kept.max_timestamp - now_ms) // 1000,
                partition.topic.config.timestamp_after_max_ms,
            )

    def keep(self, partitions: Set[Key]) -> None:
        """Removes all partitions but these."""
        self._warned = {key: offset for key, offset in self._warned.items() if key in partitions}
