"""Records with a timestamp in the future: retention by time and compaction stop in front of them.

Owns: `FutureRecords`, which says so in the log, once of each batch. Does not: find batches, or read clocks.
Source: KAFKA-18929.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from typing import Final

from broker.metadata import TopicPartition
from storage.log.reading import BatchPlace

FUTURE_MS: Final = 60_000
"""A timestamp that is ahead by less is the difference of two clocks."""

Key = tuple[int, int]
"""A partition: the number of its log group, and its own number there."""


class FutureRecords:
    """What one loop over the partitions has told. Args: what: the work that stands still, for the log."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._told: dict[Key, int] = {}
        """The base offset of the batch that the log has named."""

    def note(self, partition: TopicPartition, kept: BatchPlace | None, now_ms: int) -> None:
        """`kept` is the first batch of the partition that is too young; None for none."""
        key = partition.group.group_id, partition.log.number
        if kept is None or kept.max_timestamp <= now_ms + FUTURE_MS:
            self._told.pop(key, None)
        elif self._told.get(key) != kept.base_offset:
            self._told[key] = kept.base_offset
            self._log.warning(
                "%s-%d: %s stands still at offset %d: a record there has a timestamp %d s in the future, as "
                "message.timestamp.after.max.ms=%d allows",
                partition.topic.name,
                partition.index,
                self._what,
                kept.base_offset,
                (kept.max_timestamp - now_ms) // 1000,
                partition.topic.config.timestamp_after_max_ms,
            )

    def keep(self, known: Set[Key]) -> None:
        """Forget all other partitions."""
        self._told = {key: offset for key, offset in self._told.items() if key in known}
