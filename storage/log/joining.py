"""Which neighbouring sealed segments are to become one file.

Segments that are sealed early, or of which cleaning left little, would otherwise stay small files for good:
each has a descriptor's worth of state in memory and a row per partition.

Invariants: a run's segments follow one another without a gap and together are no larger than a segment may
be; its largest one is at most half of it, so that a byte is copied as often as its file's size can double.
Does not: read or write a file (`rewriting`). Decision 50.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from storage.log.segments import Segment

LEAST_SEGMENTS = 4
"""Fewer are left as they are: the next ones may come soon."""
SMALL_SHARE = 4
"""A file of at most one in so many parts of the size of a full segment is small."""


def follows(before: Segment, after: Segment) -> bool:
    """Whether a segment's first frame comes right after the last one of another."""
    return (before.tail.index + 1, before.tail.chain) == (after.first_index, after.chain)


def runs_to_join(
    segments: Sequence[Segment], excluded: Container[int], segment_bytes: int
) -> list[list[int]]:
    """The sequences of each run that is worth it.

    Args:
        segments: sealed ones that may be rewritten, oldest first.
        excluded: sequences of those that must stay as they are.
        segment_bytes: the size of a full segment.
    """
    runs: list[list[int]] = []
    first = 0
    while first < len(segments):
        run = _run_from(segments[first:], excluded, segment_bytes)
        if run:
            runs.append(run)
        first += len(run) or 1
    return runs


def _run_from(segments: Sequence[Segment], excluded: Container[int], segment_bytes: int) -> list[int]:
    """The longest run that begins with the first of these; empty where none is worth it."""
    total = largest = 0
    run: list[Segment] = []
    for each in segments:
        is_small = each.size * SMALL_SHARE <= segment_bytes and each.tail.index >= each.first_index
        if not is_small or each.sequence in excluded or total + each.size > segment_bytes:
            break
        if run and not follows(run[-1], each):
            break
        run.append(each)
        total, largest = total + each.size, max(largest, each.size)
    is_worth_it = len(run) >= LEAST_SEGMENTS and 2 * largest <= total
    return [each.sequence for each in run] if is_worth_it else []
