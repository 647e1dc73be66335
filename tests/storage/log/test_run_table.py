"""What a batch index knows of the batches within its runs."""

from __future__ import annotations

import tracemalloc

from hypothesis import example, given
from hypothesis import strategies as st

from lockstep.storage.log.run_table import MAX_VALUE, RunTable, fits

VALUES = st.integers(0, MAX_VALUE)
BATCH_LISTS = st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=2, max_size=6)
RUNS = st.lists(st.tuples(st.integers(1, 3), BATCH_LISTS, st.integers(0, (1 << 32) - 1)), max_size=8)
Runs = list[tuple[int, list[tuple[int, int, int]], int]]


def filled(runs: Runs) -> tuple[RunTable, dict[int, tuple[list[tuple[int, int, int]], int]]]:
    """A table, and its runs by row; a run's first number is how many rows it is behind the one before."""
    table, expected, row = RunTable(), {}, -1
    for step, batches, checksum in runs:
        row += step
        lengths, counts, ages = zip(*batches, strict=True)
        table.add(row, lengths, counts, ages, checksum)
        expected[row] = batches, checksum
    return table, expected


@given(RUNS, st.integers(0, 25), st.integers(0, 25))
def test_runs_are_found_by_row(runs: Runs, first: int, last: int) -> None:
    table, expected = filled(runs)
    for row in range(26):
        run = table.find(row)
        assert (run >= 0) == (row in expected)
        if run >= 0:
            assert list(zip(*table.batches(run), strict=True)) == expected[row][0]
    within = {row: checksum for row, (_, checksum) in expected.items() if first <= row < last}
    assert table.has_any(first, last) == bool(within)
    assert table.checksums_of(first, last) == within


@example([], [(1, [(0, 0, 0)] * 2, 0)] * 2, 1, 0)  # no rows, told the wrong way round
@given(RUNS, RUNS, st.integers(0, 25), st.integers(0, 25))
def test_a_part_of_a_table_follows_on_another(runs: Runs, more: Runs, first: int, last: int) -> None:
    table, expected = filled(runs)
    other, others = filled(more)
    shift = 30 - first
    table.extend(other, first, last, shift)
    expected.update({row + shift: each for row, each in others.items() if first <= row < last})
    assert list(table.rows) == sorted(expected)
    for row, (batches, checksum) in expected.items():
        assert list(zip(*table.batches(table.find(row)), strict=True)) == batches
        assert table.checksums_of(row, row + 1) == {row: checksum}
    assert table.file_bytes == 12 * len(expected) + 6 * sum(len(each) for each, _ in expected.values())


def test_values_of_more_than_16_bits_do_not_fit() -> None:
    assert fits([1, MAX_VALUE], [1, MAX_VALUE], [5, 5 + MAX_VALUE], 5 + MAX_VALUE)
    assert not fits([1, MAX_VALUE + 1], [1, 1], [5, 5], 5)
    assert not fits([1, 1], [MAX_VALUE + 1, 1], [5, 5], 5)
    assert not fits([1, 1], [1, 1], [-1, MAX_VALUE], MAX_VALUE)


def test_a_table_counts_what_it_takes_in_memory() -> None:
    for runs in (1, 20):
        tracemalloc.start()
        try:
            kept = [RunTable() for _ in range(500)]
            for table in kept:
                for row in range(runs):
                    table.add(row, [100] * 8, [1] * 8, [0] * 8, 1 << 31)
            taken = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert 0.75 < taken / sum(table.memory_bytes for table in kept) < 1.25
