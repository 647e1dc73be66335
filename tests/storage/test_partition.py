"""A partition's epochs: where each began, and where a follower of an older one has to cut (KIP-101)."""

from __future__ import annotations

from lockstep.protocol.records.control import ControlKind, build
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.aborted_transactions import ENTRY_CONTROL, ENTRY_TRANSACTIONAL, AbortedTransaction
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import DirectoryEntry


def partition() -> PartitionLog:
    """Epochs 2, 5 and 9 at offsets 0, 10 and 30; 40 records appended, 35 of them committed."""
    made = PartitionLog(3, bytes(16), 7)
    for leader_epoch, offset in ((2, 0), (2, 4), (5, 10), (5, 22), (9, 30)):
        made.note_epoch(leader_epoch, offset)
    made.next_offset, made.high_watermark = 40, 35
    return made


def test_an_epoch_is_noted_where_it_begins_and_never_goes_back() -> None:
    made = partition()
    assert made.leader_epochs == [(2, 0), (5, 10), (9, 30)]
    made.note_epoch(4, 39)
    assert made.leader_epochs == [(2, 0), (5, 10), (9, 30)]


def test_an_epoch_ends_where_the_next_begins() -> None:
    made = partition()
    assert [made.end_offset_of_epoch(epoch) for epoch in (2, 5)] == [(2, 10), (5, 30)]


def test_an_epoch_that_was_skipped_is_answered_with_the_one_before() -> None:
    made = partition()
    assert [made.end_offset_of_epoch(epoch) for epoch in (3, 4, 8)] == [(2, 10), (2, 10), (5, 30)]


def test_the_newest_epoch_ends_at_the_high_watermark() -> None:
    """What is not committed may still be cut."""
    made = partition()
    assert [made.end_offset_of_epoch(epoch) for epoch in (9, 12)] == [(9, 35), (9, 35)]


def test_an_epoch_before_the_first_is_unknown() -> None:
    assert partition().end_offset_of_epoch(1) == (-1, -1)
    assert PartitionLog(3, bytes(16), 7).end_offset_of_epoch(0) == (-1, -1)


def test_epochs_before_that_of_the_record_before_the_log_start_are_forgotten() -> None:
    """It makes no difference whether the next one, at the log start itself, has begun by then."""
    everything = [(2, 0), (5, 10), (9, 30)]
    for log_start, left in ((0, 3), (1, 3), (10, 3), (11, 2), (30, 2), (31, 1), (40, 1)):
        made = partition()
        made.log_start_offset = log_start
        made.forget_epochs()
        assert made.leader_epochs == everything[-left:]
    early = PartitionLog(3, bytes(16), 7)
    early.forget_epochs()
    assert early.leader_epochs == []
    early.leader_epochs, early.log_start_offset = everything[:2], 30
    early.forget_epochs()
    early.note_epoch(9, 30)
    assert early.leader_epochs == everything[1:]


def test_its_text_in_log_lines() -> None:
    assert repr(partition()) == (
        "PartitionLog(local_id=3, index=7, log_start_offset=0, high_watermark=35, next_offset=40)"
    )


def test_what_is_stable_ends_where_the_first_open_transaction_begins() -> None:
    made = partition()
    assert (made.last_stable_offset, made.aborted_between(0, 40)) == (35, [])
    before = made.aborted_so_far()
    builder = BatchBuilder(producer_id=9, producer_epoch=0, transactional=True)
    builder.append(timestamp_ms=5, key=None, value=b"x")
    made.apply_transaction_batch(DirectoryEntry(3, 20, 1, 0, 0, 0, 0, ENTRY_TRANSACTIONAL), builder.build())
    assert made.last_stable_offset == 20
    made.log_start_offset = 22
    assert made.last_stable_offset == 22
    marker = build(ControlKind.ABORT, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5)
    flags = ENTRY_TRANSACTIONAL | ENTRY_CONTROL
    made.apply_transaction_batch(DirectoryEntry(3, 34, 1, 0, 0, 0, 0, flags), marker)
    assert made.last_stable_offset == 35
    aborted = [AbortedTransaction(9, 20, 34, 35)]
    assert made.aborted_between(0, 40) == list(made.aborted_so_far()) == aborted and not before
