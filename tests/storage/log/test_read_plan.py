"""What a read takes, against a look at each row."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.log import read_plan
from lockstep.storage.log.batch_index import CLEANED_TIMESTAMP, BatchIndex, add_to_index
from lockstep.storage.log.read_plan import (
    MAX_GAP_BYTES,
    MAX_READ_BYTES,
    append_views,
    next_offset,
    plan_read,
    read_ranges,
)
from lockstep.storage.types import Buffer
from tests.storage.log.run_frames import BATCH_LISTS, frame_of, moved

ROWS = st.lists(
    st.tuples(
        st.integers(1, 3),  # records
        st.sampled_from([0, 0, 1, 61, 61, 61, 200]),  # bytes; 0: cleaned away
        st.sampled_from([0, 0, 0, 0, 76, MAX_GAP_BYTES, MAX_GAP_BYTES + 1]),  # bytes of others before it
    ),
    min_size=1,
    max_size=40,
)


def indexed(rows: list[tuple[int, int, int]], at: int = 4096) -> BatchIndex:
    index = BatchIndex()
    base = 3
    for records, length, gap in rows:
        at += gap
        index.add(base, records, at, length, 1 if length else CLEANED_TIMESTAMP, 0)
        base += records
        at += length
    return index


def planned_row_by_row(
    index: BatchIndex, offset: int, budget: int, end_offset: int, min_one: bool
) -> tuple[int, int, int, bool]:
    bases, lengths = index.bases, index.lengths
    first = max(0, bisect_right(bases, offset) - 1)
    if next_offset(index, first) <= offset:
        first += 1
    stop = bisect_left(bases, end_offset, first)
    total, last = 0, first
    while last < stop:
        length = lengths[last]
        if total + length > budget and (total or not min_one):
            return first, last, total, True
        total += length
        last += 1
    return first, last, total, stop < len(bases) or total >= max(budget, 1)


@given(
    ROWS,
    st.integers(0, 130),
    st.sampled_from([-1, 0, 1, 60, 61, 62, 122, 300, 1000, 1 << 30]),
    st.integers(0, 130),
    st.booleans(),
    st.sampled_from([1, 2, 7, 1024]),
)
def test_a_plan_is_that_of_a_look_at_each_row(
    rows: list[tuple[int, int, int]], offset: int, budget: int, length: int, min_one: bool, at_once: int
) -> None:
    index = indexed(rows)
    kept, read_plan.MAX_ROWS_AT_ONCE = read_plan.MAX_ROWS_AT_ONCE, at_once  # type: ignore[misc]
    try:
        plan = plan_read(index, offset, budget, offset + length, min_one)
    finally:
        read_plan.MAX_ROWS_AT_ONCE = kept  # type: ignore[misc]
    found = (plan.first, plan.last, plan.total_bytes, plan.more)
    assert found == planned_row_by_row(index, offset, budget, offset + length, min_one)


@given(
    st.lists(st.tuples(BATCH_LISTS, st.booleans()), min_size=1, max_size=3),
    st.integers(0, 130),
    st.sampled_from([-1, 0, 1, 60, 61, 62, 122, 300, 1000, 70_000, 1 << 30]),
    st.integers(0, 130),
    st.booleans(),
)
def test_a_plan_over_runs_is_that_over_their_batches(
    frames: list[tuple[list[tuple[int, int, int, int, int]], bool]],
    offset: int,
    budget: int,
    length: int,
    min_one: bool,
) -> None:
    """Also where a batch of length 0 lies between two frames."""
    index = BatchIndex()
    for number, (batches, is_gone) in enumerate(frames):
        frame = frame_of(batches)
        found: dict[int, BatchIndex] = {}
        place = 4096 + (number << 22)
        add_to_index(found, frame.entries, place, frame.payloads)
        part = moved(found.get(1, BatchIndex()), index.next_offset)
        index.extend(part, 0, len(part.bases))
        if is_gone:
            index.add(index.next_offset, 3, place + (1 << 21), 0, CLEANED_TIMESTAMP, 1)
    if not index.bases:
        return
    plain = index.by_batch()
    plan = plan_read(index, offset, budget, offset + length, min_one)
    first, last, total, more = planned_row_by_row(plain, offset, budget, offset + length, min_one)
    assert (plan.total_bytes, plan.more) == (total, more)
    assert next_offset(plan.index, plan.last - 1) == next_offset(plain, last - 1)
    rows = BatchIndex()
    rows.extend(plan.index, plan.first, plan.last)
    expected = BatchIndex()
    expected.extend(plain, first, last)
    for name in ("bases", "positions", "lengths", "timestamps", "newest_epoch", "earlier_epochs"):
        assert getattr(rows.by_batch(), name) == getattr(expected, name), name


def runs_row_by_row(index: BatchIndex, first: int, last: int) -> Iterator[tuple[int, int]]:
    positions, lengths = index.positions, index.lengths
    begin, end = first, positions[first] + lengths[first]
    for row in range(first + 1, last):
        at = positions[row]
        if at - end > MAX_GAP_BYTES or at + lengths[row] - positions[begin] > MAX_READ_BYTES:
            yield begin, row
            begin = row
        end = at + lengths[row]
    yield begin, last


@given(ROWS, st.integers(0, 39), st.sampled_from([1, 40, MAX_READ_BYTES // 61]), st.data())
def test_system_calls_are_those_of_a_look_at_each_row(
    rows: list[tuple[int, int, int]], first: int, scale: int, data: st.DataObject
) -> None:
    index = indexed([(records, length * scale, gap) for records, length, gap in rows[:12]])
    first = min(first, len(index.bases) - 1)
    last = data.draw(st.integers(first, len(index.bases)))
    found = list(read_ranges(index, first, last))
    if first == last:
        assert found == []
        return
    span = index.positions[last - 1] + index.lengths[last - 1] - index.positions[first]
    if span <= MAX_READ_BYTES and span - sum(index.lengths[first:last]) <= MAX_GAP_BYTES:
        assert found == [(first, last)]
    else:
        assert found == list(runs_row_by_row(index, first, last))


@given(ROWS, st.integers(0, 39), st.data())
def test_views_are_of_all_bytes_of_the_rows_and_of_no_others(
    rows: list[tuple[int, int, int]], first: int, data: st.DataObject
) -> None:
    rows = [(records, length, min(gap, 76)) for records, length, gap in rows]
    index = indexed(rows, 0)
    first = min(first, len(rows) - 1)
    last = data.draw(st.integers(first, len(rows)))
    size = index.positions[-1] + index.lengths[-1]
    segment = bytes(number * 7 % 251 for number in range(size))
    start = index.positions[first]
    buffers: list[Buffer] = []
    taken = append_views(index, first, last, memoryview(segment)[start:], buffers)
    places = [(index.positions[row], index.lengths[row]) for row in range(first, last)]
    expected = b"".join([segment[at : at + length] for at, length in places])
    assert b"".join(map(bytes, buffers)) == expected and taken == len(expected)
    assert all(buffers)
    gaps = sum(  # a view for each stretch
        at != before
        for before, (at, _) in zip(
            [sum(each) for each in places if each[1]], [each for each in places if each[1]][1:], strict=False
        )
    )
    assert len(buffers) == (gaps + 1 if expected else 0)
