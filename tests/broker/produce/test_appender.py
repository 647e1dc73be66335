"""The append path: what is refused, with which error, and that a refusal changes nothing; transactions,
several batches in one frame, locks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.produce.append_result import VerificationGuardMismatch, VerificationRequired
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import LOG_APPEND_TIME_FLAG, BatchHeader, read_header, verify
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.control import ControlKind, ControlMarker, parse
from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.protocol.staged_messages import staged_producer_id
from lockstep.storage.aborted_transactions import AbortedTransaction
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import (
    NOTES_PARTITION,
    Backlogged,
    BatchTooLarge,
    NotLeader,
    StorageFull,
    WriteFailed,
)
from tests.broker.appends import (
    ABORT,
    COMMIT,
    HOUR_MS,
    ID,
    LIMITS,
    LOCKED,
    NOW_MS,
    Limits,
    Transactional,
    World,
    batch,
    changed,
    idempotent,
    of_transaction,
)
from tests.broker.locks import asking


async def test_a_former_leader_answers_nothing_from_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes for a duplicate, or a gap, may have been cut from the log since."""
    first = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    assert world.append(bytes(first)) == world.append(bytes(first)) == 0
    monkeypatch.setattr(LogGroup, "is_leader", False)
    for sequence in (0, 5):
        data = batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
        world.refuse(bytes(data), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    monkeypatch.undo()
    assert world.append(bytes(first)) == 0


async def test_offsets_follow_and_the_sender_keeps_its_buffer(world: World) -> None:
    data = bytes(batch(b"a", b"b"))
    assert world.append(data) == 0
    assert world.append(memoryview(data)) == 2  # type: ignore[arg-type]
    assert read_header(data).base_offset == 0
    await world.group.committed()
    stored = world.group.read(world.partition, 2, 1 << 20).buffers[0]
    header = read_header(stored)
    verify(stored, 0, header)
    assert (header.base_offset, header.leader_epoch) == (2, world.group.leader_epoch(world.partition))
    assert [bytes(record.value or b"") for record in iter_records(stored)] == [b"a", b"b"]


@pytest.mark.parametrize("codec", list(Codec))
async def test_every_codec_is_stored_unopened(world: World, codec: Codec) -> None:
    assert world.append(bytes(batch(b"a" * 100, codec=codec))) == 0


async def test_batches_that_claim_billions_of_records_end_nothing(world: World) -> None:
    """What is compressed is not opened, so its count is believed; a frame's count has four bytes."""
    claim = changed(batch(codec=Codec.GZIP), record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    assert [world.append(claim) for _ in range(4)] == [place * (2**31 - 1) for place in range(4)]
    await world.group.committed()
    assert world.partition.high_watermark == 4 * (2**31 - 1)
    assert world.group.log.next_lsn == 2 + 4 * (2**31 - 1)


async def test_timestamps_are_bounded_or_replaced(world: World) -> None:
    world.refuse(bytes(batch(timestamp_ms=NOW_MS + HOUR_MS + 1)), ErrorCode.INVALID_TIMESTAMP)
    assert world.append(bytes(batch(timestamp_ms=NOW_MS + HOUR_MS))) == 0
    world.refuse(
        bytes(batch(timestamp_ms=NOW_MS - 11)),
        ErrorCode.INVALID_TIMESTAMP,
        Limits(timestamp_before_max_ms=10),
    )
    assert world.append(bytes(batch(timestamp_ms=-1))) == 1
    stamped = world.appender.append(
        world.partition, bytes(batch(timestamp_ms=5)), Limits(log_append_time=True), 9
    )
    assert (stamped.base_offset, stamped.log_append_time_ms) == (2, NOW_MS)
    await world.group.committed()
    stored = world.group.read(world.partition, 2, 1 << 20).buffers[0]
    verify(stored, 0, read_header(stored))
    assert [record.timestamp for record in iter_records(stored)] == [NOW_MS]


async def test_a_duplicate_gets_the_log_append_time(world: World) -> None:
    for _ in range(2):  # new, and sent again
        stamped = world.appender.append(world.partition, idempotent(0), Limits(log_append_time=True), 9)
        assert (stamped.base_offset, stamped.log_append_time_ms) == (0, NOW_MS)
    again = world.appender.append(world.partition, idempotent(0), LIMITS, 9)
    assert (again.base_offset, again.log_append_time_ms) == (0, -1)


async def test_a_topics_codec_and_times_are_in_the_log(world: World) -> None:
    data = changed(batch(b"a" * 500), max_timestamp=-1)
    assert world.append(data, Limits(compression_type="zstd")) == 0
    await world.group.committed()
    header = read_header(world.group.read(world.partition, 0, 1 << 20).buffers[0])
    assert (header.codec, header.max_timestamp) == (Codec.ZSTD, NOW_MS)


async def test_a_producer_does_not_choose_whose_clock_counts(world: World) -> None:
    claimed = changed(batch(timestamp_ms=NOW_MS), attributes=LOG_APPEND_TIME_FLAG)
    assert world.append(claimed) == 0
    await world.group.committed()
    stored = world.group.read(world.partition, 0, 1 << 20).buffers[0]
    verify(stored, 0, read_header(stored))
    assert not read_header(stored).is_log_append_time


async def test_a_batch_sent_again_is_found_and_not_appended(world: World) -> None:
    assert [world.append(idempotent(0)), world.append(idempotent(1))] == [0, 1]
    assert world.append(idempotent(0)) == 0
    assert world.partition.next_offset == 2
    world.refuse(idempotent(3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert world.append(idempotent(0, producer_epoch=1)) == 2
    world.refuse(idempotent(2), ErrorCode.INVALID_PRODUCER_EPOCH)


async def test_a_new_leader_verifies_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that were refused a moment ago are on their way: one behind them is not out of order yet."""
    monkeypatch.setattr(LogGroup, "is_newly_led", property(lambda group: True))
    world.refuse(idempotent(4), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [world.append(idempotent(0)), world.append(idempotent(1))] == [0, 1]
    world.refuse(idempotent(3), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.append(idempotent(0)) == 0
    for sequence in range(2, 8):
        world.append(idempotent(sequence))
    world.refuse(idempotent(0), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)  # long ago: it will never be right
    monkeypatch.undo()
    assert not world.group.is_newly_led, "alone, it never was led elsewhere"
    world.refuse(idempotent(9), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


async def test_a_clock_set_back_makes_no_producer_expire(tmp_path: Path) -> None:
    """After a frame of the future the log's time stays there; what is appended then is not older."""
    producers, now_ms = ProducerState(HOUR_MS * 24), [NOW_MS + 72 * HOUR_MS]
    group = await LogGroup.open(
        tmp_path,
        GroupOptions(1, 1, LogOptions(segment_bytes=1 << 20)),
        clock_ms=lambda: now_ms[0],
        on_fatal=lambda error: None,
        tail_machines={"producers": producers},
    )
    (partition,) = await group.open_partitions([(bytes(range(16)), 0)])
    now_ms[0] = NOW_MS
    appender = Appender(group, producers, lambda: now_ms[0])
    data = bytes(batch(producer_id=5, producer_epoch=0, base_sequence=0))
    assert appender.append(partition, data, LIMITS, 9).base_offset == 0
    await group.close()  # cuts a checkpoint, which forgets the expired
    assert producers.count() == 1


async def test_what_storage_refuses_has_a_kafka_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for failure, error in (
        (StorageFull("full"), ErrorCode.KAFKA_STORAGE_ERROR),
        (WriteFailed("Input/output error"), ErrorCode.KAFKA_STORAGE_ERROR),
        (Backlogged("busy"), ErrorCode.REQUEST_TIMED_OUT),
    ):

        def refuse(
            partition: PartitionLog, data: bytearray, header: BatchHeader, failure: Exception = failure
        ) -> int:
            raise failure

        monkeypatch.setattr(world.group, "append", refuse)
        world.refuse(idempotent(0), error)
        monkeypatch.undo()
    assert world.append(idempotent(0)) == 0
    await world.group.close()
    world.refuse(idempotent(1), ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_only_the_first_batch_in_a_partition_is_verified(both: Transactional) -> None:
    assert (both.guard(both.one, 0), both.guard(both.two, 0)) == (-1, -1)
    assert both.append(both.one, 0, verified=True, guard=-1) == 0
    assert [both.append(both.one, 1), both.append(both.one, 2)] == [1, 2]
    both.guard(both.two, 0)
    both.guard(both.one, 0, epoch=1)  # another epoch's transaction is another one
    assert both.append(both.one, 1) == 1  # sent again


async def test_a_marker_written_meanwhile_makes_the_verification_worthless(both: Transactional) -> None:
    both.append(both.one, 0, verified=True)
    both.appender.end_transactions([both.one], COMMIT)
    assert both.append(both.one, 0) == 0  # sent again: known without a coordinator
    guard = both.guard(both.one, 1)
    assert guard == 1
    both.append(both.one, 1, verified=True, guard=guard)
    both.appender.end_transactions([both.one], ABORT)
    mismatch = both.try_append(both.one, 2, verified=True, guard=guard)
    assert isinstance(mismatch, VerificationGuardMismatch)
    assert (mismatch.guard, mismatch.error().error) == (3, ErrorCode.INVALID_TXN_STATE)
    assert both.append(both.one, 2, verified=True) == 4  # no guard, nothing to compare


async def test_an_unknown_producer_of_transaction_version_2_begins_with_sequence_0(
    both: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    unverified = both.try_append(both.one, 5, produce_version=12)
    assert isinstance(unverified, VerificationRequired)  # its coordinator is asked first, as by Kafka
    with pytest.raises(RequestError, match="is not known here: sequence 5 arrived, 0 expected") as refused:
        both.append(both.one, 5, verified=True, produce_version=12)
    assert refused.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    monkeypatch.setattr(LogGroup, "is_newly_led", property(lambda group: True))
    with pytest.raises(RequestError) as refused:  # the one with 0 is on its way again
        both.append(both.one, 5, verified=True, produce_version=12)
    assert refused.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    monkeypatch.undo()
    assert both.append(both.one, 0, verified=True, produce_version=12) == 0
    assert both.append(both.one, 1, produce_version=12) == 1
    assert both.append(both.two, 5, verified=True, produce_version=11) == 0
    plain = of_transaction(5, transactional=False, producer_id=10)
    assert both.appender.append(both.two, plain, LIMITS, 12).base_offset == 1


async def test_what_no_transaction_can_have_is_refused(both: Transactional) -> None:
    for data, transactional_id, error in (
        (of_transaction(0), None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (of_transaction(-1, -1, producer_id=-1), ID, ErrorCode.INVALID_RECORD),
    ):
        with pytest.raises(RequestError) as refused:
            if transactional_id is None:
                both.appender.append(both.one, data, LIMITS, 9)
            else:
                both.appender.append_transactional(both.one, data, LIMITS, 9, transactional_id)
        assert refused.value.error is error
    both.append(both.one, 0, verified=True)
    with pytest.raises(RequestError) as refused:
        both.appender.append_transactional(both.one, of_transaction(1, transactional=False), LIMITS, 9, ID)
    assert refused.value.error is ErrorCode.INVALID_TXN_STATE
    both.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, both.one, 5)
    both.appender.end_transactions([both.one], COMMIT._replace(producer_epoch=4, version=2))
    both.refuse(ErrorCode.INVALID_PRODUCER_EPOCH, both.one, 1)
    await both.group.close()
    both.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, both.one, 0, epoch=4)


async def test_a_transaction_ends_in_all_partitions_and_the_coordinators_record_in_one_frame(
    both: Transactional,
) -> None:
    for partition in (both.one, both.two):
        both.append(partition, 0, verified=True)
    await both.group.committed()
    index = both.group.log.last_index
    own = of_transaction(-1, -1, transactional=False, producer_id=-1)
    extra = (both.two, own, read_header(own))
    both.appender.end_transactions([both.one, both.two, both.one], COMMIT, [extra])
    await both.group.committed()
    assert both.group.log.last_index == index + 1
    (frame,) = both.group.log.frames_cold(index + 1, 1 << 20)
    assert [(e.partition, e.base_offset) for e in frame.directory] == [(1, 1), (2, 1), (2, 2)]
    assert parse(frame.payloads[0]) == parse(frame.payloads[1]) == ControlMarker(ControlKind.COMMIT, 3)
    header = read_header(frame.payloads[1])
    assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (9, 0, NOW_MS)
    assert [both.one.last_stable_offset, both.two.last_stable_offset] == [2, 3]


async def test_readers_get_the_aborted_transactions(both: Transactional) -> None:
    both.append(both.one, 0, verified=True)
    both.append(both.one, 1)
    both.appender.end_transactions([both.one, both.two], ABORT)
    await both.group.committed()
    assert both.one.aborted_between(0, 3) == [AbortedTransaction(9, 0, 2, 3)]
    assert both.two.aborted_between(0, 3) == []


async def test_a_marker_where_nothing_is_open_may_end_what_is_being_verified(both: Transactional) -> None:
    """Transactions of the first version share an epoch: it is no repetition of the one before."""
    both.append(both.one, 0, verified=True)
    both.appender.end_transactions([both.one], ABORT)
    guard = both.guard(both.one, 1)
    both.appender.end_transactions([both.one], ABORT)
    mismatch = both.try_append(both.one, 1, verified=True, guard=guard)
    assert isinstance(mismatch, VerificationGuardMismatch)


async def test_what_has_ended_is_left_out(both: Transactional) -> None:
    both.append(both.one, 0, verified=True)
    both.append(both.two, 0, verified=True)
    commit = COMMIT._replace(producer_epoch=4, version=2)
    both.appender.end_transactions([both.one], commit)
    both.appender.end_transactions([both.one, both.two], commit)
    assert (both.one.next_offset, both.two.next_offset) == (2, 2)
    both.appender.end_transactions([both.one, both.two], commit)
    own = of_transaction(-1, -1, transactional=False, producer_id=-1)
    both.appender.end_transactions([both.one], commit, [(both.two, own, read_header(own))])
    assert (both.one.next_offset, both.two.next_offset) == (2, 3)
    await both.group.committed()
    await both.group.close_partitions([2])
    both.appender.end_transactions([both.two], COMMIT._replace(producer_id=5))
    assert both.two.next_offset == 3


async def test_a_marker_is_refused_in_all_partitions_or_none(both: Transactional) -> None:
    both.append(both.one, 0, verified=True)
    both.append(both.two, 0, epoch=2, verified=True)
    partitions = (both.one, both.two)
    both.refuse_end(ErrorCode.INVALID_PRODUCER_EPOCH, *partitions, marker=COMMIT)
    both.appender.end_transactions([both.two], TxnMarkerEntry(9, 2, 7, True, 0))
    late = COMMIT._replace(producer_epoch=3)
    both.refuse_end(ErrorCode.TRANSACTION_COORDINATOR_FENCED, *partitions, marker=late)
    both.refuse_end(ErrorCode.INVALID_PRODUCER_EPOCH, both.one, marker=COMMIT._replace(version=2))
    await both.group.close()
    with pytest.raises(NotLeader):
        both.appender.end_transactions([both.one], COMMIT)


async def test_transactions_end_on_a_full_disk(both: Transactional, monkeypatch: pytest.MonkeyPatch) -> None:
    both.append(both.one, 0, verified=True)
    both.append(both.two, 0, verified=True)

    def only_the_reserve(payload_bytes: int, batch_count: int = 1, *, reserved: bool = False) -> bool:
        return reserved

    monkeypatch.setattr(both.group.log, "has_space_for", only_the_reserve)
    both.refuse(ErrorCode.KAFKA_STORAGE_ERROR, both.one, 1)
    both.appender.end_transactions([both.one], COMMIT)
    beside = both.appender.validate_for_markers((both.two, bytes(batch()), LIMITS), 9)
    with pytest.raises(RequestError, match="no room"):
        both.appender.end_several([(COMMIT, [both.two])], beside)
    both.appender.end_several([(COMMIT, [both.two])])
    assert (both.one.next_offset, both.two.next_offset) == (2, 2)
    monkeypatch.setattr(both.group.log, "has_space_for", lambda *args, **named: False)
    before = both.producers.snapshot(NOW_MS)
    with pytest.raises(StorageFull):
        both.appender.end_transactions([both.two], COMMIT)
    assert both.producers.snapshot(NOW_MS) == before


async def test_a_coordinators_own_batches_have_no_sequences(both: Transactional) -> None:
    own = of_transaction(-1, epoch=2)
    unverified = both.appender.append_coordinator_batch(both.one, own, read_header(own))
    assert isinstance(unverified, VerificationRequired)
    assert (
        both.appender.append_coordinator_batch(both.one, own, read_header(own), verified=True, guard=-1) == 0
    )
    more = of_transaction(-1, epoch=2)
    assert both.appender.append_coordinator_batch(both.one, more, read_header(more)) == 1
    old = of_transaction(-1, epoch=1)
    with pytest.raises(RequestError) as refused:
        both.appender.append_coordinator_batch(both.one, old, read_header(old), verified=True)
    assert refused.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
    both.appender.end_transactions([both.one], ABORT._replace(producer_epoch=2))
    await both.group.committed()
    assert both.one.aborted_between(0, 9) == [AbortedTransaction(9, 0, 2, 3)]
    await both.group.close()
    with pytest.raises(NotLeader):
        both.appender.append_coordinator_batch(both.one, more, read_header(more))


async def test_after_a_restart_all_is_as_it_was(tmp_path: Path) -> None:
    before = await Transactional(tmp_path).open()
    before.append(before.one, 0, verified=True)
    before.append(before.two, 0, verified=True)
    before.appender.end_transactions([before.one], COMMIT)
    own = of_transaction(-1, 0, producer_id=8)
    before.appender.append_coordinator_batch(before.one, own, read_header(own), verified=True)
    after, live = await before.replayed()
    assert after.producers.snapshot(NOW_MS) == live
    assert after.guard(after.one, 1) == 1
    assert after.append(after.two, 1) == 1
    await after.group.close()  # with a checkpoint
    again = await Transactional(tmp_path).open()
    assert again.producers.snapshot(NOW_MS) == after.producers.snapshot(NOW_MS)
    assert again.append(again.two, 2) == 2
    await again.group.close()


async def test_times_beyond_64_bits_are_refused_where_records_are_opened(world: World) -> None:
    """Compaction could not make such a batch again as every client would; what it is on other topics nobody
    looks at."""
    builder = BatchBuilder()
    for at in range(3):
        builder.append(timestamp_ms=NOW_MS + at, key=b"k", value=b"v")
    compacted = Limits(is_compacted=True)
    beyond = changed(bytearray(builder.build()), base_timestamp=(1 << 63) - 2)
    message = world.refuse(beyond, ErrorCode.INVALID_TIMESTAMP, compacted)
    assert message == "record 2 of the batch has a time beyond 64 bits"
    assert world.append(bytes(builder.build()), compacted) == 0
    assert world.append(beyond, Limits(is_compacted=True, log_append_time=True)) == 3


async def test_several_producers_end_together_after_their_batch(both: Transactional) -> None:
    stage = staged_producer_id("query", 1)
    both.append(both.one, 0, verified=True)
    data = bytes(of_transaction(0, producer_id=stage))
    both.appender.append_transactional(both.two, data, LIMITS, 12, ID, verified=True)
    await both.group.committed()
    index = both.group.log.last_index
    beside = both.appender.validate_for_markers((both.two, bytes(batch(b"told")), LIMITS), 12)
    other = COMMIT._replace(producer_id=stage, producer_epoch=1, version=2)
    appended = both.appender.end_several([(COMMIT, [both.one]), (other, [both.two])], beside)
    assert appended is not None and appended.base_offset == 1
    await both.group.committed()
    (frame,) = both.group.log.frames_cold(index + 1, 1 << 20)
    assert [(e.partition, e.base_offset) for e in frame.directory] == [(2, 1), (1, 1), (2, 2)]
    assert both.appender.end_several([(other, [both.two])]) is None  # it has ended
    late = bytes(of_transaction(1, producer_id=stage))
    with pytest.raises(RequestError) as refused:
        both.appender.append_transactional(both.two, late, LIMITS, 12, ID, verified=True)
    assert refused.value.error is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_what_goes_with_markers_has_no_producer(both: Transactional) -> None:
    plain = bytes(batch(producer_id=5, producer_epoch=0, base_sequence=0))
    for _ in range(2):  # new, and sent again
        with pytest.raises(RequestError) as refused:
            both.appender.validate_for_markers((both.one, plain, LIMITS), 12)
        assert refused.value.error is ErrorCode.INVALID_RECORD
        both.appender.append(both.one, plain, LIMITS, 12)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (StorageFull("full"), ErrorCode.KAFKA_STORAGE_ERROR),
        (WriteFailed("Input/output error"), ErrorCode.KAFKA_STORAGE_ERROR),
        (BatchTooLarge("large"), ErrorCode.MESSAGE_TOO_LARGE),
        (NotLeader("moved"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (Backlogged("busy"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_ends_that_the_log_does_not_take_are_refused(
    both: Transactional, monkeypatch: pytest.MonkeyPatch, failure: Exception, error: ErrorCode
) -> None:
    both.append(both.one, 0, verified=True)

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(both.group, "append_together", fail)
    with pytest.raises(RequestError) as refused:
        both.appender.end_several([(ABORT, [both.one])])
    assert refused.value.error is error
    monkeypatch.undo()
    assert both.appender.end_several([(ABORT, [both.one])]) is None
    assert both.one.next_offset == 2


# --- several batches in one frame ---------------------------------------------------------------------------


async def test_batches_appended_together_are_one_frame_and_known_when_sent_again(both: Transactional) -> None:
    both.append(both.two, 0, verified=True)
    await both.group.committed()
    index = both.group.log.last_index
    both_new = idempotent(0), bytes(batch(producer_id=8, producer_epoch=0, base_sequence=0))
    assert both.together(*both_new) == both.together(*both_new) == [0, 1]
    await both.group.committed()
    (frame,) = both.group.log.frames_cold(index + 1, 1 << 20)
    assert [(e.partition, e.base_offset) for e in frame.directory] == [(1, 0), (2, 1)]
    assert both.group.log.last_index == index + 1


async def test_of_batches_appended_together_one_refusal_is_everybodys(
    both: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = idempotent(0)
    both.refuse_together(ErrorCode.CORRUPT_MESSAGE, 1, good, good[:-1] + bytes([good[-1] ^ 1]))
    assert both.together(good, good) == [0, 0]
    both.refuse_together(ErrorCode.INVALID_RECORD, 1, idempotent(1), good)
    monkeypatch.setattr(both.group.log, "has_space_for", lambda *args, **named: False)
    both.refuse_together(ErrorCode.KAFKA_STORAGE_ERROR, 0, idempotent(1), idempotent(1))


# --- locks --------------------------------------------------------------------------------------------------


def locking(name: str, **builder: Any) -> bytes:
    """Of somebody who has read nothing."""
    return asking.batch(asking.asks(-1, write_lock=name), **builder)


async def test_locks_are_raised_in_the_frame_of_their_batch(both: Transactional) -> None:
    first = locking("a", producer_id=9, producer_epoch=0, base_sequence=0)
    for _ in range(2):  # new, and sent again
        assert both.appender.append(both.one, first, LOCKED, 9).base_offset == 0
    both.refuse_batch(ErrorCode.POLICY_VIOLATION, locking("a"), LOCKED)
    assert both.appender.append(both.one, locking("a"), LIMITS, 9).base_offset == 1, "kept no more"
    await both.group.committed()
    (frame,) = both.group.log.frames_cold(both.group.log.last_index, 1 << 20)
    assert [e.partition for e in frame.directory] == [1, 1, NOTES_PARTITION]
    assert not both.locks.partitions


async def test_locks_of_batches_appended_together_are_raised_together_or_not(both: Transactional) -> None:
    assert both.together(locking("a"), locking("b"), LOCKED) == [0, 0]
    both.refuse_together(ErrorCode.POLICY_VIOLATION, 1, locking("c"), locking("b"), LOCKED)
    both.refuse_batch(ErrorCode.POLICY_VIOLATION, locking("a"), LOCKED)
    assert both.appender.append(both.one, locking("c"), LOCKED, 9).base_offset == 1


async def test_a_leader_that_cannot_know_the_locks_accepts_no_batch(
    both: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogGroup, "is_leader", False)
    both.refuse_batch(ErrorCode.NOT_LEADER_OR_FOLLOWER, bytes(batch()), LOCKED)
    monkeypatch.undo()
    monkeypatch.setattr(both.appender, "locks", None)
    both.refuse_batch(ErrorCode.NOT_LEADER_OR_FOLLOWER, bytes(batch()), LOCKED)


async def test_where_locks_are_kept_a_producer_goes_on_behind_what_it_aborted(both: Transactional) -> None:
    """The batch with sequence 1 was refused, and clients do not number those behind it anew."""
    both.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, both.one, 2, limits=LOCKED)
    both.append(both.one, 0, verified=True, limits=LOCKED)
    both.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, both.one, 2, limits=LOCKED)
    both.appender.end_transactions([both.one], ABORT)
    both.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, both.one, 2)
    assert both.append(both.one, 2, verified=True, limits=LOCKED) == 2
