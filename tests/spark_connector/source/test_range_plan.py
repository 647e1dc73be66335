"""Limits are shared out, ranges are split without a gap."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_connector.options import TopicPartition
from spark_connector.source.range_plan import OffsetRange, limit_offsets, shared_bytes, split_ranges
from tests.support.cases import each_case

_POSITIONS = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3)),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    min_size=1,
)


def test_each_gets_its_part_of_what_is_waiting() -> None:
    start = {("t", 0): 0, ("t", 1): 100, ("t", 2): 7}
    end = {("t", 0): 900, ("t", 1): 200, ("t", 2): 7}
    assert limit_offsets(start, end, 100) == {("t", 0): 90, ("t", 1): 110, ("t", 2): 7}
    assert limit_offsets(start, end, 1) == {("t", 0): 1, ("t", 1): 101, ("t", 2): 7}, "less than one is one"
    assert limit_offsets(start, end, 1000) == end
    assert shared_bytes(start, end, 1000) == {("t", 0): 900, ("t", 1): 100}


@settings(deadline=None)
@given(_POSITIONS, st.integers(1, 2000))
def test_limits_hold_and_streams_end(positions: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    start = {part: begin for part, (begin, _) in positions.items()}
    end = {part: begin + count for part, (begin, count) in positions.items()}
    batches = 0
    while start != end:
        reached = limit_offsets(start, end, most)
        taken = {part: reached[part] - start[part] for part in end}
        assert all(start[part] <= reached[part] <= end[part] for part in end)
        assert 0 < sum(taken.values()) < most + len(end)
        start = reached
        batches += 1
        assert batches <= 8000


@each_case(
    ("tasks", "records", "sizes"),
    [
        (None, None, [100, 10]),
        (1, None, [100, 10]),
        (4, None, [25, 25, 25, 25, 10]),
        (None, 40, [33, 33, 34, 10]),
        (None, 10, [10] * 11),
        (5, 60, [16, 17, 17, 16, 17, 17, 10]),
    ],
)
def test_divided(tasks: int | None, records: int | None, sizes: list[int]) -> None:
    ranges = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 50, 60), OffsetRange("t", 2, 9, 9)]
    found = split_ranges(ranges, min_partitions=tasks, max_records=records)
    assert [len(each) for each in found] == sizes


@settings(deadline=None)
@given(_POSITIONS, st.none() | st.integers(1, 60), st.none() | st.integers(1, 300))
def test_divided_without_gap_or_overlap(
    positions: dict[TopicPartition, tuple[int, int]], tasks: int | None, records: int | None
) -> None:
    ranges = [OffsetRange(*part, begin, begin + count) for part, (begin, count) in positions.items() if count]
    found = split_ranges(ranges, min_partitions=tasks, max_records=records)
    for whole in ranges:
        parts = [each for each in found if (each.topic, each.partition) == (whole.topic, whole.partition)]
        assert (parts[0].start, parts[-1].end) == (whole.start, whole.end)
        assert all(each.end == after.start for each, after in pairwise(parts))
    if records is not None:
        assert all(0 < len(each) <= records for each in found)
    if tasks is not None:
        assert len(found) >= min(tasks, sum(map(len, ranges)))
