"""The check that the unverified side of `bench.profile.first_read` makes: none but for what is there."""

from __future__ import annotations

from bench.profile.first_read import first_cut_off_row
from lockstep.storage.log.batch_index import BatchIndex


def test_rows_whose_bytes_are_not_all_there_are_not_read() -> None:
    index = BatchIndex()
    for row in range(3):
        index.add(row, 1, 4096 + 100 * row, 100, 1, 0)
    for size, rows in ((0, 0), (99, 0), (100, 1), (299, 2), (300, 3)):
        assert first_cut_off_row(index, 0, 3, memoryview(bytes(size))) == rows
    assert first_cut_off_row(index, 1, 3, memoryview(bytes(150))) == 2
