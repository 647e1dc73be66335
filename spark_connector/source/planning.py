"""Which offsets a micro-batch takes and how they are divided into tasks: pure arithmetic.

Owns: `Range`, what one task reads; the share of each partition under a limit; splitting.

Invariants: ranges of a partition do not overlap and have no gap between them; a limit of at least 1 always
takes something where there is anything, so that a stream moves on. Shares are those of Spark's Kafka source
(each partition's part of the limit is its part of what is waiting).

Does not: ask brokers where partitions begin and end (`positions`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spark_connector.options import TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, order=True)
class Range:
    """Offsets `start` up to, not including, `end` of one partition; picklable, a task gets it."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return max(self.end - self.start, 0)


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Where to end a micro-batch of about `most` offsets, between `start` and `end`.

    Each partition gets its share of what is waiting, rounded up below one, as in Spark's Kafka source: so a
    batch may have a few offsets more than `most`, one for each partition at the worst.
    """
    waiting = {part: max(end[part] - start[part], 0) for part in end}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    found: Offsets = {}
    for part, count in waiting.items():
        share = most * count / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        found[part] = min(start[part] + taken, end[part]) if count else end[part]
    return found


def shared_bytes(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most_bytes: int
) -> dict[TopicPartition, int]:
    """Of `most_bytes` the share of each partition with something waiting: its part of the offsets."""
    waiting = {part: end[part] - start[part] for part in end if end[part] > start[part]}
    total = sum(waiting.values())
    return {part: max(most_bytes * count // total, 1) for part, count in waiting.items()}


def divided(
    ranges: Sequence[Range], *, min_partitions: int | None = None, most_records: int | None = None
) -> list[Range]:
    """The ranges that are not empty, split where so many tasks are wanted, or so few records in each.

    A split is by offsets: where compaction left gaps, the tasks are not of one size.
    """
    found = sorted(each for each in ranges if len(each) > 0)
    if most_records is not None:
        found = [part for each in found for part in _split(each, math.ceil(len(each) / most_records))]
    if min_partitions is not None and found and len(found) < min_partitions:
        total = sum(map(len, found))
        found = [part for each in found for part in _split(each, _tasks_of(each, total, min_partitions))]
    return found


def _tasks_of(each: Range, total: int, min_partitions: int) -> int:
    """At least its share of the tasks, rounded up: `min_partitions` is a least."""
    return min(max(math.ceil(len(each) * min_partitions / total), 1), len(each))


def _split(each: Range, parts: int) -> list[Range]:
    count = len(each)
    cuts = [each.start + count * n // parts for n in range(parts + 1)]
    return [Range(each.topic, each.partition, start, end) for start, end in pairwise(cuts) if end > start]
