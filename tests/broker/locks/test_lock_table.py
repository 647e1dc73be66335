"""The table as a tail machine: notes, snapshots, partitions that come and go."""

from __future__ import annotations

import pytest

from lockstep.broker.locks.lock_table import LockTable, begin, end, raises
from lockstep.storage.types import NOTES_PARTITION, CorruptLog, DirectoryEntry, NewerFormat
from tests.support.cases import each_case

A, B, C = (bytes([each]) * 16 for each in (1, 2, 3))


def entry(partition: int, size: int) -> DirectoryEntry:
    return DirectoryEntry(partition, 0, 0, size, 0, 0, -1, 0)


def of(table: LockTable, number: int) -> list[tuple[int, bool]]:
    return [table.partitions[number].of(each) for each in (A, B, C)]


def test_notes_are_replayed_as_they_were_taken() -> None:
    live, replica = LockTable(), LockTable()
    frames = [
        begin(7, -1, 5) + raises(7, 4, [A, B]),
        begin(8, 99, 5),
        raises(7, 9, {B}) + raises(8, 120, [C]),
        b"",
    ]
    for notes in frames:
        live.take(notes)
        replica.replay(entry(NOTES_PARTITION, len(notes)), memoryview(notes), 5)
        replica.replay(entry(7, 3), b"xyz", 5)  # a batch: nothing to do with it
    assert of(live, 7) == [(4, True), (9, True), (-1, True)]
    assert of(live, 8) == [(99, False), (99, False), (120, True)]
    assert replica.snapshot(0) == live.snapshot(0)
    again = LockTable()
    again.restore(live.snapshot(0))
    assert of(again, 7) == of(live, 7) and of(again, 8) == of(live, 8)
    again.restore(b"")
    assert not again.partitions and again.snapshot(0) == b""


def test_an_end_and_a_new_beginning_forget_what_was_known() -> None:
    table = LockTable()
    table.take(begin(1, -1, 5) + raises(1, 5, [A]) + end(1, 6))
    assert not table.partitions
    table.take(begin(1, 10, 5))
    assert of(table, 1)[0] == (10, False)
    table.forget(1)
    table.forget(1)
    table.take(raises(1, 12, [A]))  # of a partition that was closed meanwhile
    assert not table.partitions


@each_case(
    "notes",
    [b"x", raises(1, 5, [A])[:-1], b"\0\0\0\1\5" + bytes(12), begin(1, -1, 5) + b"\0" * 16],
)
def test_what_is_no_note(notes: bytes) -> None:
    with pytest.raises(CorruptLog):
        LockTable().take(notes)


def test_a_newer_snapshot_is_not_guessed_at() -> None:
    table = LockTable()
    table.take(begin(1, -1, 5))
    newer = b"\0\x02" + table.snapshot(0)[2:]
    with pytest.raises(NewerFormat):
        table.restore(newer)


def test_what_is_replayed_of_closed_partitions_goes_with_the_next_snapshot() -> None:
    table = LockTable()
    table.take(begin(1, -1, 5) + begin(2, -1, 5))
    table.is_closed = lambda number: number == 1
    again = LockTable()
    again.restore(table.snapshot(0))
    assert list(table.partitions) == list(again.partitions) == [2]
