"""Which batches of a log group's frames are entries, and where reading stops."""

from __future__ import annotations

from typing import Any

from lockstep.player_host.group_entries import GroupChunk, Undecided, split_into_entries
from lockstep.protocol.records import control
from lockstep.protocol.records.control import ControlKind
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.aborted_transactions import ENTRY_CONTROL, ENTRY_TRANSACTIONAL
from lockstep.storage.log.batch_flags import ENTRY_REMOVED, ENTRY_SHORTENED
from lockstep.storage.log.format import ENTRY_NOTES, ENTRY_RAW
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import NOTES_PARTITION, DirectoryEntry, Frame, FrameKind

TXN = ENTRY_TRANSACTIONAL


class Group:
    """Frames of two played partitions (numbers 5 and 6, of indexes 0 and 1), and one of others."""

    def __init__(self) -> None:
        self.logs = {5: PartitionLog(5, b"t", 0), 6: PartitionLog(6, b"t", 1)}
        self.frames: list[Frame] = []
        self.lsn = 1
        self._nexts = {5: 0, 6: 0, 9: 0, NOTES_PARTITION: 0}

    def frame(self, *batches: tuple[int, int, int, int]) -> None:
        """Committed batches of (partition, records, flags, producer id). A marker of a commit is flagged as
        transactional, too, one of an abort is not: so both can be asked for."""
        directory, payloads = [], []
        for number, count, flags, producer in batches:
            base = self._nexts[number]
            self._nexts[number] = base + count
            payload = self._payload(base, count, flags, producer)
            directory.append(DirectoryEntry(number, base, count, len(payload), 0, 0, 0, flags))
            payloads.append(payload)
        total = sum(each.record_count for each in directory)
        made: list[Any] = list(payloads)
        self.frames.append(
            Frame(FrameKind.DATA, 1, len(self.frames) + 1, self.lsn, 0, directory, made, total)
        )
        self.lsn += total
        for entry, payload in zip(directory, payloads, strict=True):
            log = self.logs.get(entry.partition)
            if log is not None:
                if entry.flags & (ENTRY_TRANSACTIONAL | ENTRY_CONTROL):
                    log.apply_transaction_batch(entry, payload)
                log.high_watermark = log.next_offset = entry.base_offset + entry.record_count

    def _payload(self, base: int, count: int, flags: int, producer: int) -> bytes:
        if flags & (ENTRY_REMOVED | ENTRY_RAW):
            return b""
        if flags & ENTRY_CONTROL:
            kind = ControlKind.COMMIT if flags & ENTRY_TRANSACTIONAL else ControlKind.ABORT
            return control.build(
                kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
            )
        builder = BatchBuilder(producer_id=producer, transactional=bool(flags & TXN))
        for _ in range(count):
            builder.append(b"v", timestamp_ms=1)
        return builder.build(base)

    def cut(self, first: int = 1, max_bytes: int = 1 << 20) -> GroupChunk:
        return split_into_entries(self.frames, first, self.logs, max_bytes, first - 1)

    def read(self, first: int = 1, max_bytes: int = 1 << 20) -> list[tuple[int, int | None]]:
        return [(each.position, each.partition) for each in self.cut(first, max_bytes).entries]


def test_positions_are_last_lsns() -> None:
    group = Group()
    group.frame((5, 2, 0, -1), (9, 3, 0, -1), (6, 1, 0, -1))
    group.frame((9, 1, 0, -1))
    group.frame((NOTES_PARTITION, 0, ENTRY_RAW | ENTRY_NOTES, -1), (6, 2, 0, -1))
    assert group.read() == [(2, 0), (6, 1), (9, 1)]
    found = group.cut()
    assert (found.through_lsn, found.next_index, found.is_whole) == (9, 4, True)
    for first in range(1, 11):
        assert group.read(first) == [each for each in group.read() if each[0] >= first]
    group.frame((9, 4, 0, -1))
    assert group.cut(10) == GroupChunk([], 13, 5, None, False, True), "others' records count as read"
    assert group.cut(99).through_lsn == 98


def test_a_cut_that_is_full_goes_on_where_it_ended() -> None:
    group = Group()
    group.frame((5, 1, 0, -1), (6, 1, 0, -1))
    group.frame((5, 1, 0, -1))
    first = group.cut(1, 1)
    assert ([each.position for each in first.entries], first.through_lsn, first.next_index) == ([1], 1, 1)
    assert not first.is_whole
    second = group.cut(2, 1)
    assert ([each.position for each in second.entries], second.next_index) == ([2], 1)
    assert [each.position for each in group.cut(3, 1).entries] == [3]


def test_what_is_not_decided_ends_the_reading() -> None:
    group = Group()
    group.frame((6, 1, 0, -1), (5, 1, TXN, 7), (6, 1, 0, -1))
    group.frame((5, 1, 0, -1), (5, 1, TXN, 8))
    found = group.cut()
    assert [each.position for each in found.entries] == [1]
    assert (found.through_lsn, found.next_index, found.is_whole) == (1, 1, False)
    assert found.undecided == Undecided(group.logs[5], 0) and not found.undecided.is_over
    assert group.cut(2).through_lsn == 1, "nothing yet"
    group.frame((5, 1, ENTRY_CONTROL | TXN, 7))
    assert found.undecided.is_over
    assert group.read() == [(1, 1), (2, 0), (3, 1), (4, 0)]
    assert group.cut().undecided == Undecided(group.logs[5], 2)
    group.frame((5, 1, ENTRY_CONTROL, 8))
    assert group.read() == [(1, 1), (2, 0), (3, 1), (4, 0)], "the other was aborted"
    assert group.cut().through_lsn == 7


def test_the_aborted_ones_of_one_producer_alone() -> None:
    group = Group()
    group.frame((5, 1, TXN, 7), (5, 1, TXN, 8), (5, 1, 0, -1))
    group.frame((5, 1, ENTRY_CONTROL, 7), (5, 1, TXN, 7), (5, 1, ENTRY_CONTROL | TXN, 8))
    group.frame((5, 1, ENTRY_CONTROL | TXN, 7))
    assert group.read() == [(2, 0), (3, 0), (5, 0)]


def test_what_compaction_took_away() -> None:
    group = Group()
    group.frame((5, 2, ENTRY_REMOVED, -1), (5, 2, 0, -1), (6, 1, 0, -1))
    group.frames[0].directory[2].flags |= ENTRY_SHORTENED
    assert group.read() == [(4, 0), (5, 1)]
    emptied = bytearray(group.frames[0].payloads[1])
    emptied[57:61] = bytes(4)
    group.frames[0].payloads[1] = emptied
    group.frames[0].directory[1].flags |= ENTRY_SHORTENED
    assert group.read() == [(5, 1)]


def test_what_was_deleted_ends_the_reading() -> None:
    group = Group()
    group.frame((6, 1, 0, -1), (5, 2, 0, -1), (5, 2, 0, -1))
    group.logs[5].log_start_offset = 1
    assert group.read() == [(1, 1), (3, 0), (5, 0)], "a batch of which a part is left is there whole"
    group.logs[5].log_start_offset = 2
    found = group.cut()
    assert found.is_deleted and [each.position for each in found.entries] == [1]
    assert group.cut(2).through_lsn == 1 and group.cut(2).is_deleted
    assert group.read(4) == [(5, 0)]
