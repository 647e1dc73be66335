"""Batches of several producers, some of whose transactions were aborted."""

from __future__ import annotations

import pytest

from lockstep.protocol.messages.fetch import AbortedTransaction
from lockstep.protocol.records.batch import CorruptBatch, iter_headers
from lockstep.protocol.records.committed import CommittedReader
from lockstep.protocol.records.control import ControlKind, build
from lockstep.protocol.records.record import BatchBuilder


def data(base_offset: int, producer_id: int = -1) -> bytes:
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=producer_id >= 0
    )
    builder.append(b"first", timestamp_ms=1)
    builder.append(b"second", timestamp_ms=1)
    return bytes(builder.build(base_offset))


def marker(base_offset: int, producer_id: int, kind: ControlKind) -> bytes:
    return build(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=1,
        base_offset=base_offset,
    )


def seen(records: bytes, *aborted: tuple[int, int]) -> list[int]:
    """Base offsets of what is to be seen; `aborted`: (producer id, first offset)."""
    reader = CommittedReader(
        AbortedTransaction(producer_id=producer_id, first_offset=first) for producer_id, first in aborted
    )
    return [
        header.base_offset for pos, header in iter_headers(records) if reader.is_visible(records, pos, header)
    ]


def test_plain_batches_are_seen_and_markers_are_not() -> None:
    assert seen(data(0) + data(2, 7) + marker(4, 7, ControlKind.COMMIT) + data(5)) == [0, 2, 5]


def test_an_aborted_transaction_is_left_out_from_its_first_offset_to_its_marker() -> None:
    log = data(0, 7) + data(2, 8) + data(4) + data(6, 7) + marker(8, 7, ControlKind.ABORT) + data(9, 7)
    assert seen(log, (7, 0)) == [2, 4, 9]
    assert seen(log[len(data(0)) :], (7, 0)) == [2, 4, 9], "where reading begins in the middle"


def test_two_aborts_of_one_producer_and_one_between_others() -> None:
    log = data(0, 7) + marker(2, 7, ControlKind.ABORT) + data(3, 7) + marker(5, 7, ControlKind.COMMIT)
    log += data(6, 7) + data(8, 9) + marker(10, 9, ControlKind.ABORT) + marker(11, 7, ControlKind.ABORT)
    assert seen(log, (9, 8), (7, 6), (7, 0)) == [3]


def test_a_batch_that_its_checksum_does_not_fit() -> None:
    broken = bytearray(data(0))
    broken[-1] ^= 1
    with pytest.raises(CorruptBatch):
        seen(bytes(broken))
