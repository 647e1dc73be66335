"""Answers of brokers, cut into entries."""

from __future__ import annotations

import pytest

from lockstep.player.source.batch_entries import split_into_entries
from lockstep.protocol.messages.fetch import AbortedTransaction
from lockstep.protocol.records.batch import CorruptBatch, crc_of, read_header
from lockstep.protocol.records.batch_filter import filter_batch, open_batch
from lockstep.protocol.records.control import ControlKind
from lockstep.protocol.records.record import iter_records
from tests.protocol.records.test_committed import data, marker
from tests.support.cases import each_case


def positions(records: bytes, first: int = 0, aborted: list[AbortedTransaction] | None = None) -> list[int]:
    return [entry.position for entry in split_into_entries(records, first, aborted).entries]


def test_an_entry_is_a_batch_at_its_last_offset() -> None:
    chunk = split_into_entries(data(0) + data(2), 0, None)
    assert [(entry.position, entry.payload) for entry in chunk.entries] == [(1, data(0)), (3, data(2))]
    assert chunk.through_position == 3


def test_nothing_there() -> None:
    assert split_into_entries(b"", 7, None) == ([], 6)


@each_case("left", [0, 60, 61, len(data(2)) - 1])
def test_a_cut_batch_at_the_end_is_not_read(left: int) -> None:
    chunk = split_into_entries(memoryview(data(0) + data(2)[:left]), 0, None)
    assert [entry.position for entry in chunk.entries] == [1] and chunk.through_position == 1


def test_the_cut_does_not_depend_on_where_reading_begins() -> None:
    log = data(0) + data(2) + data(4)
    assert [positions(log, first) for first in range(6)] == [[1, 3, 5]] * 2 + [[3, 5]] * 2 + [[5]] * 2
    assert split_into_entries(log[: len(data(0))], 5, None) == ([], 4), "an answer that lies wholly below"


def test_control_batches_and_what_was_aborted_are_passed_over_and_count_as_read() -> None:
    log = data(0, 7) + data(2) + marker(4, 7, ControlKind.ABORT)
    chunk = split_into_entries(log, 0, [AbortedTransaction(producer_id=7, first_offset=0)])
    assert [entry.position for entry in chunk.entries] == [3] and chunk.through_position == 4


def test_compaction_moves_no_position() -> None:
    batch = open_batch(data(0))
    log = filter_batch(batch, batch.spans[:1]).batch + data(2)
    chunk = split_into_entries(log, 0, None)
    assert [entry.position for entry in chunk.entries] == [1, 3]
    payload = chunk.entries[0].payload
    assert isinstance(payload, bytes) and [each.offset for each in iter_records(payload)] == [0]


def test_a_batch_without_records_is_passed_over() -> None:
    header = read_header(data(0))
    header.record_count, header.batch_length = 0, 49
    empty = bytearray(header.pack())
    empty[17:21] = crc_of(empty, 0, len(empty)).to_bytes(4, "big")
    assert split_into_entries(bytes(empty), 0, None) == ([], 1)


def test_what_is_damaged_is_not_passed_on() -> None:
    broken = bytearray(data(0))
    broken[-1] ^= 1
    with pytest.raises(CorruptBatch):
        split_into_entries(bytes(broken), 0, None)
