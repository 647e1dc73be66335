"""The table as a tail machine: notes, snapshots, partitions that come and go."""

from __future__ import annotations

import pytest

from broker.locks.table import BEGIN, END, RAISE, LockTable, note
from storage.types import NOTES_PARTITION, CorruptLog, DirectoryEntry, NewerFormat

A, B, C = (bytes([each]) * 16 for each in (1, 2, 3))


def entry(partition: int, size: int) -> DirectoryEntry:
    return DirectoryEntry(partition, 0, 0, size, 0, 0, -1, 0)


def of(table: LockTable, number: int) -> list[tuple[int, bool]]:
    return [table.partitions[number].of(each) for each in (A, B, C)]


def test_notes_are_replayed_as_they_were_taken() -> None:
    live, replica = LockTable(), LockTable()
    frames = [
        note(7, BEGIN, -1) + note(7, RAISE, 4, [A, B]),
        note(8, BEGIN, 99),
        note(7, RAISE, 9, {B}) + note(8, RAISE, 120, [C]),
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
    table.take(note(1, BEGIN, -1) + note(1, RAISE, 5, [A]) + note(1, END, 6))
    assert not table.partitions
    table.take(note(1, BEGIN, 10))
    assert of(table, 1)[0] == (10, False)
    table.forget(1)
    table.forget(1)
    table.take(note(1, RAISE, 12, [A]))  # of a partition that was closed meanwhile
    assert not table.partitions


@pytest.mark.parametrize(
    "notes",
    [b"x", note(1, RAISE, 5, [A])[:-1], note(1, 77, 5), note(1, BEGIN, -1) + b"\0" * 16],
)
def test_what_is_no_note(notes: bytes) -> None:
    with pytest.raises(CorruptLog):
        LockTable().take(notes)


def test_a_newer_snapshot_is_not_guessed_at() -> None:
    table = LockTable()
    table.take(note(1, BEGIN, -1))
    newer = b"\0\x02" + table.snapshot(0)[2:]
    with pytest.raises(NewerFormat):
        table.restore(newer)
