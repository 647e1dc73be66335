"""Chooses the neighbouring sealed segments that the cleaner writes as one file.

Segments that were rolled before they reached `segment_bytes`, or that cleaning made small, would otherwise
stay small files for good. Each costs an object in memory and one summary row per partition.

Invariants: a run's segments follow one another without a gap and together are no larger than a segment may
be. The largest segment is at most half of its run, so each join at least doubles the file of a record: a
record is copied at most log2(full segment / first size) times.
Does not: read or write a file (`rewriting`). Decision 50.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from storage.log.segments import Segment

MIN_RUN_SEGMENTS = 4
"""Shorter runs are left alone, as more small segments may follow them soon."""
SMALL_SEGMENT_DIVISOR = 4
"""A segment is small up to `segment_bytes` divided by this."""


def follows(before: Segment, after: Segment) -> bool:
    """True where `after` starts at the index after `before`'s last frame and continues its checksum chain."""
    return (before.tail.index + 1, before.tail.chain) == (after.first_index, after.chain)


def runs_to_join(
    segments: Sequence[Segment], excluded: Container[int], segment_bytes: int
) -> list[list[int]]:
    """The segment sequences of each run that is worth joining.

    Args:
        segments: sealed segments that may be rewritten, oldest first.
        excluded: sequences of segments that must stay as they are.
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
    """The longest run that begins with the first segment; empty where it is not worth joining."""
    total = largest = 0
    run: list[Segment] = []
    for each in segments:
        is_small = each.size * SMALL_SEGMENT_DIVISOR <= segment_bytes and each.tail.index >= each.first_index
        if not is_small or each.sequence in excluded or total + each.size > segment_bytes:
            break
        if run and not follows(run[-1], each):
            break
        run.append(each)
        total, largest = total + each.size, max(largest, each.size)
    is_worth_it = len(run) >= MIN_RUN_SEGMENTS and 2 * largest <= total
    return [each.sequence for each in run] if is_worth_it else []
