"""The offsets of a micro-batch and their division into tasks: pure arithmetic.

Owns: `OffsetRange`, the part of one task; the share of each partition under a limit; splitting.

Invariants: ranges of a partition do not overlap and have no gap between them; a limit of at least 1
includes a record where there is any, so that a stream proceeds. Shares are those of Spark's Kafka source
(each partition's part of the limit is its part of the backlog).

Does not: list the offsets of partitions (`positions`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spark_connector.options import TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Offsets `start` up to, not including, `end` of one partition; picklable, a task gets it."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return max(self.end - self.start, 0)


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_offsets: int
) -> Offsets:
    """The end of a micro-batch of about `max_offsets` offsets, between `start` and `end`.

    Each partition gets its share of the backlog, rounded up below one, as in Spark's Kafka source: so a
    batch may have a few offsets more than `max_offsets`, one for each partition at the worst.
    """
    backlog = {part: max(end[part] - start[part], 0) for part in end}
    total = sum(backlog.values())
    if total <= max_offsets:
        return dict(end)
    found: Offsets = {}
    for part, count in backlog.items():
        share = max_offsets * count / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        found[part] = min(start[part] + taken, end[part]) if count else end[part]
    return found


def shared_bytes(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_bytes: int
) -> dict[TopicPartition, int]:
    """The share of `max_bytes` for each partition with a backlog: its part of the offsets."""
    backlog = {part: end[part] - start[part] for part in end if end[part] > start[part]}
    total = sum(backlog.values())
    return {part: max(max_bytes * count // total, 1) for part, count in backlog.items()}


def split_ranges(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The ranges that are not empty, split where `min_partitions` or `max_records` requires it.

    A split is by offsets: tasks over gaps of compaction are smaller.
    """
    found = sorted(each for each in ranges if len(each) > 0)
    if max_records is not None:
        found = [part for each in found for part in _split(each, math.ceil(len(each) / max_records))]
    if min_partitions is not None and found and len(found) < min_partitions:
        total = sum(map(len, found))
        found = [part for each in found for part in _split(each, _tasks_of(each, total, min_partitions))]
    return found


def _tasks_of(each: OffsetRange, total: int, min_partitions: int) -> int:
    """At least its share of the tasks, rounded up: `min_partitions` is a minimum."""
    return min(max(math.ceil(len(each) * min_partitions / total), 1), len(each))


def _split(each: OffsetRange, parts: int) -> list[OffsetRange]:
    count = len(each)
    bounds = [each.start + count * n // parts for n in range(parts + 1)]
    return [
        OffsetRange(each.topic, each.partition, start, end) for start, end in pairwise(bounds) if end > start
    ]
