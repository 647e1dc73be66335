"""What a committed log tells of its transactions: those open, those aborted; and their checkpoints."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Sequence
from random import Random

import pytest

from lockstep.protocol.records.control import ControlKind, build
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage import aborted_transactions as module
from lockstep.storage.aborted_transactions import (
    ENTRY_CONTROL,
    ENTRY_TRANSACTIONAL,
    AbortedTransaction,
    AbortedTransactions,
)
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Buffer, DirectoryEntry, NewerFormat

A, B, C = 1, 2, 3
COMMIT, ABORT = ControlKind.COMMIT, ControlKind.ABORT


class Partition(PartitionLog):
    """A partition to which committed batches of transactions are applied as a frame's would be."""

    def __init__(self, number: int = 1) -> None:
        super().__init__(number, bytes(16), 0)

    def _commit(self, payload: Buffer, flags: int, records: int = 1) -> int:
        base = self.high_watermark
        if flags:
            self.apply_transaction_batch(
                DirectoryEntry(1, base, records, len(payload), 0, 0, 0, flags), payload
            )
        self.high_watermark = self.next_offset = base + records
        return base

    def plain(self, records: int = 1) -> int:
        return self._commit(b"", 0, records)

    def data(self, producer_id: int, records: int = 1) -> int:
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, transactional=True)
        builder.append(timestamp_ms=1, key=None, value=b"x")
        return self._commit(builder.build(), ENTRY_TRANSACTIONAL, records)

    def end(self, producer_id: int, kind: ControlKind) -> int:
        marker = build(kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
        return self._commit(marker, ENTRY_TRANSACTIONAL | ENTRY_CONTROL)

    def run(self, steps: Sequence[tuple[int, ControlKind | None]]) -> list[int]:
        """The last stable offset after each step."""
        stable = []
        for producer_id, kind in steps:
            if kind is None:
                self.data(producer_id)
            else:
                self.end(producer_id, kind)
            stable.append(self.last_stable_offset)
        return stable


def test_without_transactions_all_is_stable() -> None:
    partition = Partition()
    partition.plain(5)
    assert (partition.last_stable_offset, partition.transactions) == (5, None)
    assert partition.aborted_between(0, 5) == []


def test_stable_is_what_lies_before_the_first_open_transaction() -> None:
    partition = Partition()
    partition.plain(3)
    steps = [(A, None), (B, None), (A, None), (B, COMMIT), (A, COMMIT), (B, None), (A, None), (B, ABORT)]
    assert partition.run(steps) == [3, 3, 3, 3, 8, 8, 8, 9]
    assert partition.aborted_between(0, 99) == [AbortedTransaction(B, 8, 10, 9)]


def test_a_producer_may_begin_again_behind_others() -> None:
    """The oldest is the one that began first, not the one that came first."""
    partition = Partition()
    assert partition.run([(A, None), (B, None), (A, COMMIT), (A, None), (B, COMMIT)]) == [0, 0, 1, 1, 3]


def test_markers_without_records_are_nobodys_transaction() -> None:
    partition = Partition()
    assert partition.run([(A, ABORT), (A, None), (A, COMMIT), (A, ABORT)]) == [1, 1, 3, 4]
    assert partition.aborted_between(0, 99) == []


def test_other_control_records_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Partition()
    partition.data(A)
    monkeypatch.setattr(module, "parse", lambda payload: type("Other", (), {"kind": ControlKind.OTHER}))
    partition.end(A, COMMIT)
    assert partition.last_stable_offset == 0


def test_deleted_records_are_below_all_that_is_stable() -> None:
    partition = Partition()
    partition.data(A, 5)
    partition.log_start_offset = 3
    assert partition.last_stable_offset == 3


def three_aborted() -> Partition:
    """A aborted from 0 to 4 while B was open from 1 to 6; C alone from 7 to 8; then A is open from 9 on."""
    partition = Partition()
    steps = [(A, None), (B, None), (A, None), (A, None), (A, ABORT), (B, None), (B, ABORT)]
    partition.run([*steps, (C, None), (C, ABORT), (A, None), (B, None), (B, ABORT)])
    return partition


OF_A = AbortedTransaction(A, 0, 4, 1)
OF_B = AbortedTransaction(B, 1, 6, 7)
OF_C = AbortedTransaction(C, 7, 8, 9)
OF_B_AGAIN = AbortedTransaction(B, 10, 11, 9)


@pytest.fixture(params=[1, 2, 128])
def block_length(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many aborted transactions are compressed together."""
    length: int = request.param
    monkeypatch.setattr(module, "BLOCK_LENGTH", length)
    return length


@pytest.mark.parametrize(
    ("first", "end", "expected"),
    [
        (0, 12, [OF_A, OF_B, OF_C, OF_B_AGAIN]),
        (0, 1, [OF_A]),
        (0, 7, [OF_A, OF_B]),
        (4, 8, [OF_A, OF_B, OF_C]),
        (5, 8, [OF_B, OF_C]),
        (7, 9, [OF_C]),
        (9, 10, []),
        (12, 20, []),
    ],
)
def test_a_reader_gets_the_aborted_transactions_of_its_range(
    first: int, end: int, expected: list[AbortedTransaction], block_length: int
) -> None:
    assert three_aborted().aborted_between(first, end) == expected


def test_a_snapshot_brings_all_back(block_length: int) -> None:
    partitions = {1: three_aborted(), 2: Partition(2), 3: Partition(3)}
    partitions[3].data(A)
    data = module.snapshot(partitions)
    again: dict[int, PartitionLog] = {number: Partition(number) for number in (1, 3)}
    again[1].high_watermark = 12
    module.restore(again, data)
    assert again[1].aborted_between(0, 99) == [OF_A, OF_B, OF_C, OF_B_AGAIN]
    assert [again[1].last_stable_offset, again[3].last_stable_offset] == [9, 0]
    assert module.snapshot(again) == data
    module.restore({3: again[3]}, data)  # a partition that is closed is passed over
    assert again[3].last_stable_offset == 0
    module.restore(again, b"")
    assert [each.transactions for each in again.values()] == [None, None]
    assert module.snapshot(again) == b""


def test_what_cannot_be_read_any_more_is_forgotten(block_length: int) -> None:
    partition, ended = three_aborted(), Partition(2)
    partition.log_start_offset = 7
    ended.run([(A, None), (A, ABORT)])
    ended.log_start_offset = 2
    module.snapshot({1: partition, 2: ended})
    assert partition.aborted_between(0, 99) == [OF_C, OF_B_AGAIN]
    assert ended.transactions is None


def test_a_newer_versions_state_is_refused_by_name() -> None:
    with pytest.raises(NewerFormat, match="transactions of version 3"):
        module.restore({}, b"\0\3")


def test_the_first_versions_state_is_understood() -> None:
    partition, aborted = Partition(), [OF_A, OF_B, OF_C]
    rows = b"".join([struct.pack(">qqqq", *each) for each in aborted])
    module.restore({1: partition}, struct.pack(">HIIIqq", 1, 1, 1, 3, A, 9) + rows)
    partition.high_watermark = 12
    assert (partition.aborted_between(0, 99), partition.last_stable_offset) == (aborted, 9)


def many_aborted(count: int) -> list[AbortedTransaction]:
    """As ten producers leave them that are open side by side."""
    random, found, marker = Random(7), [], 1 << 33
    for _ in range(count):
        marker += random.randrange(1, 500)
        first = marker - random.randrange(1, 300)
        stable = marker + 1 if random.random() < 0.5 else first + random.randrange(marker - first)
        found.append(AbortedTransaction(random.randrange(10_000, 10_010), first, marker, stable))
    stable = 0
    for place, each in enumerate(found):  # it never goes back
        stable = max(stable, each.last_stable_offset)
        found[place] = each._replace(last_stable_offset=stable)
    return found


def test_blocks_give_what_a_list_would() -> None:
    all_of_them, kept = many_aborted(1000), AbortedTransactions()
    for each in all_of_them:
        kept.append(each)
        assert kept.last_offset == each.last_offset
    copy, random = kept.copy(), Random(7)
    for _ in range(300):
        first = random.choice(all_of_them).last_offset - random.randrange(300)
        end = first + random.choice((1, 100, 10_000))
        upto = next((n for n, t in enumerate(all_of_them) if t.last_stable_offset >= end), len(all_of_them))
        upto = max(upto, next(n for n, t in enumerate(all_of_them) if t.last_offset >= first))
        told = [t for t in all_of_them[: upto + 1] if t.last_offset >= first and t.first_offset < end]
        assert kept.overlapping(first, end) == told
    below = all_of_them[300].last_offset
    kept.forget_below(below)
    assert kept.overlapping(below, 1 << 40) == all_of_them[300:]
    assert len(list(kept)) < 1000 == len(list(copy)), "whole blocks are gone, not from the copy"
    kept.forget_below(1 << 40)
    assert (bool(kept), kept.last_offset, list(copy)) == (False, -1, all_of_them)


def test_what_was_aborted_takes_little_memory_and_little_of_a_checkpoint() -> None:
    """Where no record is ever deleted it only becomes more: as tuples one took 190 bytes, and 32."""
    count, kept = 12_800, AbortedTransactions()
    all_of_them = many_aborted(count)
    tracemalloc.start()
    for each in all_of_them:
        kept.append(AbortedTransaction(*each))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    _, _, pieces = kept.snapshot()
    assert used / count < 20 and sum(map(len, pieces)) / count < 12
