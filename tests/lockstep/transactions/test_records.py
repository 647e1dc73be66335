"""Appends as batches that the broker reads as they were meant, and back."""

from __future__ import annotations

import os

import pytest

from lockstep.broker.locks.lock_headers import lock_requests
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import AbortedTransaction
from lockstep.protocol.records.batch import CorruptBatch, patch_whole, read_header
from lockstep.protocol.records.batch_filter import filter_batch, open_batch
from lockstep.protocol.records.control import ControlKind, build
from lockstep.protocol.records.record import BatchBuilder
from lockstep.transactions.log import PartitionBatch, ReadLocks
from lockstep.transactions.model import Record, RequestId
from lockstep.transactions.records import ProducerIdentity, batch_of, committed_in, refusal_of
from tests.support.cases import each_case

REQUEST = RequestId("c" * 32, 3, 17)
TOPIC_ID = bytes(range(240, 256))
IDENTITY = ProducerIdentity(9, 2, 40)


def batch(part: PartitionBatch, base_offset: int = 0) -> bytes:
    made = bytearray(batch_of(part, REQUEST, IDENTITY, "seats", TOPIC_ID, 1_000))
    patch_whole(made, base_offset, 0)
    return bytes(made)


def plain(*values: bytes, base_offset: int = 0, **builder: object) -> bytes:
    building = BatchBuilder(**builder)  # type: ignore[arg-type]
    for value in values:
        building.append(value, timestamp_ms=1_000)
    return building.build(base_offset)


def test_the_broker_reads_what_was_meant() -> None:
    part = PartitionBatch(
        (Record(b"v", b"k", (("own", b"x"),)),),
        hwm=5,
        write_locks=(b"w1", b"w2"),
        read_locks=(b"r",),
        append_locks=(b"a",),
        expected_offset=6,
        other_read_locks={2: ReadLocks(7, (b"there", b"too"))},
    )
    made = batch(part)
    header = read_header(made)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == IDENTITY
    (asked,) = lock_requests(made, header)
    assert (asked.hwm, asked.writes, asked.reads, asked.appends) == (5, [b"w1", b"w2"], [b"r"], [b"a"])
    assert (asked.expected_offset, asked.topic_id, asked.request) == (6, TOPIC_ID, str(REQUEST).encode())
    there = asked.other_partitions["seats", 2]
    assert (there.hwm, there.reads, there.topic_id) == (7, [b"there", b"too"], TOPIC_ID)


def test_a_transaction_without_conditions_names_its_topic_alone() -> None:
    made = batch(PartitionBatch((Record(b"v"),), hwm=5))
    (asked,) = lock_requests(made, read_header(made))
    assert asked.hwm is None and asked.topic_id == TOPIC_ID and asked.names == 0


def test_the_records_of_a_transaction_come_back_as_one() -> None:
    made = batch(
        PartitionBatch((Record(b"1", b"k"), Record(None, None, (("h", None),)), Record(b"3")), 0),
        base_offset=10,
    )
    assert len(lock_requests(made, read_header(made))) == 3
    (found,), position = committed_in(made, 4, 10, None)
    assert (found.partition, found.offset, found.request) == (4, 12, REQUEST) and position == 13
    assert found.records == (Record(b"1", b"k"), Record(None, None, (("h", None),)), Record(b"3"))
    assert (found.value, found.key, found.headers) == (b"1", b"k", ())


def test_records_of_others_are_transactions_of_one() -> None:
    data = plain(b"x", b"y") + batch(PartitionBatch((Record(b"z"),), 0), base_offset=2)
    found, position = committed_in(data, 0, 1, None)
    assert [(each.offset, each.value, each.request) for each in found] == [
        (1, b"y", None),
        (2, b"z", REQUEST),
    ]
    assert position == 3


def test_parts_that_do_not_follow_are_skipped_by_nobody() -> None:
    """As any producer may have written them before the topic had locks."""
    builder = BatchBuilder()
    asked = [(b"a/1/1", b"1/2"), (b"a/1/2", b"1/2"), (b"a/1/2", b"2/2"), (b"a/1/3", b"3/3"), (b"a/1/4", b"x")]
    for number, (request, part) in enumerate(asked):
        headers = [("lockstep-request", request), ("lockstep-part", part)]
        builder.append(b"%d" % number, timestamp_ms=0, headers=headers)
    builder.append(b"5", timestamp_ms=0, headers=[("lockstep-part", b"1/2")])
    found, position = committed_in(builder.build(), 0, 0, None)
    assert [(each.offset, len(each.records)) for each in found] == [(0, 1), (2, 2), (3, 1), (4, 1), (5, 1)]
    assert position == 6


def test_what_was_aborted_is_left_out_and_markers_are_no_transactions() -> None:
    def marker(kind: ControlKind, producer_id: int, offset: int) -> bytes:
        return build(
            kind,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=0,
            base_offset=offset,
        )

    def written(value: bytes, producer_id: int, offset: int) -> bytes:
        return plain(
            value,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )

    data = b"".join(
        [
            written(b"aborted", 1, 0),
            written(b"kept", 2, 1),
            marker(ControlKind.ABORT, 1, 2),
            written(b"kept, too", 1, 3),
            marker(ControlKind.COMMIT, 2, 4),
            marker(ControlKind.COMMIT, 1, 5),
        ]
    )
    found, position = committed_in(data, 0, 0, [AbortedTransaction(producer_id=1, first_offset=0)])
    assert [each.value for each in found] == [b"kept", b"kept, too"] and position == 6


def test_a_batch_of_which_nothing_is_left_above_the_position() -> None:
    """As compaction leaves them, on a topic that had no locks then."""
    whole = open_batch(plain(b"a", b"b", b"c"))
    left = bytes(filter_batch(whole, whole.spans[:1]).batch)
    assert committed_in(left, 0, 1, None) == ([], 3)


def test_a_cut_batch_is_read_another_time() -> None:
    whole, cut = plain(b"a"), plain(b"b", base_offset=1)[:-3]
    found, position = committed_in(whole + cut, 0, 0, None)
    assert [each.value for each in found] == [b"a"] and position == 1


def test_corruption_is_not_applied() -> None:
    data = bytearray(plain(os.urandom(100)))
    data[-5] ^= 1
    with pytest.raises(CorruptBatch):
        committed_in(data, 0, 0, None)


def test_a_rejection_has_the_brokers_text() -> None:
    text = (
        "LOCKSTEP_REFUSED reason=LOCK record=0 topic-partition=with-dash-3 lock=seat%2F12A mode=W hwm=-1 "
        "conflict_offset=41 estimate"
    )
    found = refusal_of(ErrorCode.POLICY_VIOLATION, text, 0)
    assert (found.reason, found.is_final, found.partition) == ("LOCK", False, 3)
    assert (found.conflict_offset, found.is_exact, found.lock) == (41, False, b"seat/12A")
    exact = refusal_of(ErrorCode.INVALID_RECORD, text.replace("estimate", "exact"), 0)
    assert exact.is_exact and exact.is_final
    of_another_batch = refusal_of(
        ErrorCode.POLICY_VIOLATION, text.replace("reason", "batch=with-dash-7 reason"), 7
    )
    assert of_another_batch == found._replace(text=of_another_batch.text)


@each_case("text", [None, "something else", "LOCKSTEP_REFUSED ", "LOCKSTEP_REFUSED reason"])
def test_a_refusal_without_reasons_is_one_all_the_same(text: str | None) -> None:
    found = refusal_of(ErrorCode.POLICY_VIOLATION, text, 5)
    assert (found.is_final, found.partition, found.conflict_offset, found.lock) == (False, 5, None, None)
    assert refusal_of(ErrorCode.INVALID_RECORD, text, 5).is_final


def test_parts_that_do_not_stand_together_hide_nothing() -> None:
    """Written while the topic had no locks, so that nobody looked: each record is brought all the same."""
    request = ("lockstep-request", str(REQUEST).encode())
    building = BatchBuilder()
    for value, part in (
        (b"a", b"1/2"),
        (b"b", None),
        (b"c", b"2/3"),
        (b"d", b"9" * 5_000 + b"/x"),
        (b"e", b"1/3"),
    ):
        headers = [] if part is None else [request, ("lockstep-part", part)]
        building.append(value, timestamp_ms=1_000, headers=headers)
    found, position = committed_in(building.build(0), 0, 0, None)
    assert [[record.value for record in each.records] for each in found] == [
        [b"a"],
        [b"b"],
        [b"c"],
        [b"d"],
        [b"e"],
    ]
    assert [each.offset for each in found] == [0, 1, 2, 3, 4] and position == 5
