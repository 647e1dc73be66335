"""Idempotence rules, what a transaction adds to them, and that a snapshot carries all of it."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.metadata.lowest_sequences import LowestSequences
from lockstep.broker.produce.producer_state import (
    LAST_EPOCH,
    NEW,
    STAGED_EXPIRATION_MS,
    CoordinatorFenced,
    NotInTransaction,
    OutOfOrderSequence,
    ProducerState,
    StaleProducerEpoch,
)
from lockstep.broker.server import Broker
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from lockstep.protocol.records.batch import TRANSACTIONAL_FLAG, BatchHeader, MalformedBatch
from lockstep.protocol.records.control import ControlKind, build
from lockstep.protocol.records.record import BatchBuilder
from lockstep.protocol.staged_messages import staged_producer_id
from lockstep.storage.types import NOTES_PARTITION, Buffer, DirectoryEntry, NewerFormat
from tests.broker.wire import Client
from tests.support.cases import each_case

DAY_MS = 86_400_000


def header(
    sequence: int, count: int = 1, producer_epoch: int = 0, producer_id: int = 7, attributes: int = 0
) -> BatchHeader:
    return BatchHeader(
        0, 61, 0, 2, 0, attributes, count - 1, 0, 0, producer_id, producer_epoch, sequence, count
    )


def filled() -> ProducerState:
    state = ProducerState(DAY_MS)
    for place in range(7):
        each = header(place * 10, 10)
        assert state.check(1, each) == NEW
        state.record(1, each, 100 + place * 10, 1000 + place)
    return state


def test_a_sequence_must_follow_the_last() -> None:
    state = filled()
    assert state.check(1, header(70)) == NEW
    for sequence in (71, 5):
        with pytest.raises(OutOfOrderSequence, match="70 expected") as refused:
            state.check(1, header(sequence))
        assert refused.value.is_ahead == (sequence > 70)
    assert state.knows(1, 7) and not state.knows(1, 8) and not state.knows(2, 7)


def test_the_last_five_batches_are_recognised_and_older_ones_are_not() -> None:
    state = filled()
    for place in range(2, 7):
        assert state.check(1, header(place * 10, 10)) == 100 + place * 10
    with pytest.raises(OutOfOrderSequence):
        state.check(1, header(10, 10))
    with pytest.raises(OutOfOrderSequence):
        state.check(1, header(60, 9))  # same start, another batch


def test_an_unknown_producer_may_start_anywhere() -> None:
    state = filled()
    assert state.check(1, header(33, producer_id=8)) == NEW
    assert [producer_id for producer_id, _ in state.of(1)] == [7]
    assert state.check(2, header(33)) == NEW


def test_a_new_epoch_starts_at_zero_and_fences_the_old() -> None:
    state = filled()
    with pytest.raises(OutOfOrderSequence, match="not 0"):
        state.check(1, header(70, producer_epoch=1))
    fresh = header(0, producer_epoch=1)
    assert state.check(1, fresh) == NEW
    state.record(1, fresh, 170, 2000)
    with pytest.raises(StaleProducerEpoch):
        state.check(1, header(70))
    assert state.check(1, fresh) == 170


def test_only_the_next_batch_of_a_known_producer_continues_it() -> None:
    state = filled()
    assert state.producer_continued_by(1, 7, 0, 70) is dict(state.of(1))[7]
    assert state.producer_continued_by(2, 7, 0, 70) is None, "another partition"
    assert state.producer_continued_by(1, 8, 0, 70) is None, "another producer"
    assert state.producer_continued_by(1, 7, 1, 70) is None, "another epoch"
    assert state.producer_continued_by(1, 7, 0, 60) is None, "sent again"
    assert state.producer_continued_by(1, 7, 0, 71) is None, "a gap"
    dict(state.of(1))[7].open_at = 100
    assert state.producer_continued_by(1, 7, 0, 70) is None, "in a transaction"
    state.record(2, header(2**31 - 2, 3), 0, 0)
    assert state.producer_continued_by(2, 7, 0, 1) is not None


def test_sequences_wrap() -> None:
    state = ProducerState(DAY_MS)
    state.record(1, header(2**31 - 2, 3), 0, 0)
    assert state.check(1, header(1)) == NEW
    assert state.check(1, header(2**31 - 2, 3)) == 0


def test_where_a_producer_is_not_known_none_begins_in_the_place_of_what_was_refused() -> None:
    state = ProducerState(DAY_MS)
    assert state.check(1, header(5)) == NEW, "it may begin anywhere"
    state.track_lowest_sequence(1, header(0, 5))
    with pytest.raises(OutOfOrderSequence, match="5 arrived, but the rejected 0 must be") as refused:
        state.check(1, header(5))
    assert refused.value.is_ahead, "it may be right once that has come"
    assert state.snapshot(1) == b"", "no part of the state"
    for other in (header(0, 5), header(5, producer_epoch=1), header(5, producer_id=8)):
        assert state.check(1, other) == NEW
    assert state.check(2, header(5)) == NEW
    state.record(1, header(0, 5), 100, 0)
    assert state.check(1, header(5)) == NEW
    state.track_lowest_sequence(1, header(5))  # it is known by now: its sequences say what follows
    state.forget(1)
    assert state.check(1, header(9)) == NEW


def test_what_was_refused_does_not_count_for_ever() -> None:
    state = ProducerState(DAY_MS)
    state.track_lowest_sequence(1, header(0))
    state.record_end(1, 7, 0, 3, 100, 0)
    state.forget(1)
    assert state.check(1, header(5)) == NEW, "its transaction has ended here"
    for without in (header(-1), header(0, producer_id=-1)):
        state.track_lowest_sequence(1, without)
        assert state.check(1, header(5)) == NEW


def test_what_was_refused_counts_where_the_partition_is_open() -> None:
    """The node remembers it by topic and index; a state that is restored takes nothing from that."""
    state, firsts = ProducerState(DAY_MS), LowestSequences()
    state.first_sequences, state.partition_key = firsts, {1: (b"topic", 4)}.get
    state.track_lowest_sequence(1, header(3))
    state.track_lowest_sequence(2, header(3))
    assert len(firsts) == 1 and firsts.lowest(b"topic", 4, 7, 0) == 3
    state.restore(b"")
    with pytest.raises(OutOfOrderSequence):
        state.check(1, header(5))
    assert state.check(2, header(5)) == NEW
    state.record(2, header(5), 0, 0)
    assert len(firsts) == 1
    state.record(1, header(3), 0, 0)
    assert not firsts, "as followers see the batch: they may lead next"


def test_plain_batches_leave_no_trace() -> None:
    state = ProducerState(DAY_MS)
    state.record(1, header(-1, producer_id=-1), 0, 0)
    assert state.count() == 0


def test_a_snapshot_carries_everything_that_has_not_expired() -> None:
    state = filled()
    state.record(2, header(0, producer_id=9), 5, DAY_MS + 5000)
    again = ProducerState(DAY_MS)
    again.restore(state.snapshot(DAY_MS))
    assert again.count() == 2
    assert again.check(1, header(60, 10)) == 160
    assert again.check(1, header(70)) == NEW
    assert again.snapshot(DAY_MS) == state.snapshot(DAY_MS)
    late = ProducerState(DAY_MS)
    late.restore(state.snapshot(DAY_MS + 5000))
    assert late.count() == state.count() == 1
    late.restore(b"")
    assert late.count() == 0


def test_a_leader_whose_clock_was_ahead_makes_no_producer_expire() -> None:
    """Its time stays in the log when the clock is right again."""
    clock_ms = [6000]
    state = ProducerState(DAY_MS, lambda: clock_ms[0])
    state.record(1, header(0), 0, 5000)
    staged = staged_producer_id("query", 5)
    state.record(1, header(0, producer_id=staged, attributes=TRANSACTIONAL_FLAG), 1, 5000)
    state.record_end(1, staged, 0, -1, 2, 5000)
    state.record(2, header(0, producer_id=9), 0, 10 * DAY_MS)
    state.snapshot(10 * DAY_MS)
    assert state.count() == 3
    clock_ms[0] = 5000 + STAGED_EXPIRATION_MS + 1
    state.snapshot(10 * DAY_MS)
    assert state.count() == 2
    clock_ms[0] = 5000 + DAY_MS + 1
    state.snapshot(10 * DAY_MS)
    assert [producer_id for producer_id, _ in state.of(2)] == [9] and state.count() == 1
    clock_ms[0] = 20 * DAY_MS
    state.snapshot(10 * DAY_MS)
    assert state.count() == 1, "a log that nothing is written to stands still"


def test_a_partition_that_a_replay_brings_back_is_forgotten_with_the_next_snapshot() -> None:
    state = filled()
    staged = staged_producer_id("query", 5)
    state.record(1, header(0, producer_id=staged, attributes=TRANSACTIONAL_FLAG), 300, 1000)
    assert state.open_stages and state.snapshot(2000)
    state.is_closed = {1}.__contains__
    assert state.snapshot(2000) == b""
    assert not state.open_stages and state.count() == 0


async def test_a_broker_s_producers_know_which_partitions_are_gone(broker: Broker, client: Client) -> None:
    await client.create("t")
    partition = broker.assembly.cluster.partition("t", 0)
    assert partition is not None
    producers, number = broker.assembly.appenders[1].producers, partition.log.local_id
    assert not producers.is_closed(number) and not producers.is_closed(number + 1)
    await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5)
    assert producers.is_closed(number)


def test_a_closed_partition_is_forgotten() -> None:
    state = filled()
    state.forget(1)
    state.forget(1)
    assert state.count() == 0


def transactional(sequence: int, producer_epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return header(
        sequence, producer_epoch=producer_epoch, producer_id=producer_id, attributes=TRANSACTIONAL_FLAG
    )


def begun(producer_epoch: int = 0) -> ProducerState:
    """Producer 7's transaction is open in partition 1 from offset 100 on."""
    state = ProducerState(DAY_MS)
    state.record(1, transactional(0, producer_epoch), 100, 1000)
    state.record(1, transactional(1, producer_epoch), 101, 1001)
    return state


def seen(state: ProducerState, partition: int = 1, producer_id: int = 7) -> Sequence[int]:
    """(epoch, last sequence, coordinator epoch, where its transaction began, where the last one ended)."""
    producer = state.find(partition, producer_id)
    assert producer is not None
    return (
        producer.producer_epoch,
        producer.last_sequence,
        producer.coordinator_epoch,
        producer.open_at,
        producer.ended_at,
    )


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    state = begun()
    assert seen(state) == (0, 1, -1, 100, -1)
    assert state.check(1, transactional(2)) == NEW
    state.record_end(1, 7, 0, 3, 102, 1002)
    assert seen(state) == (0, 1, 3, -1, 102)
    assert state.check(1, transactional(2)) == NEW
    assert state.check(1, transactional(1)) == 101, "a marker is no reason to forget batches"


def test_what_is_no_part_of_the_open_transaction_is_refused() -> None:
    state = begun()
    for refused in (header(2), header(0, producer_epoch=1)):
        with pytest.raises(NotInTransaction):
            state.check(1, refused)
    assert state.check(1, transactional(0, producer_epoch=1)) == NEW
    state.record(1, transactional(0, producer_epoch=1), 102, 1002)
    assert seen(state) == (1, 0, -1, 100, -1), "a higher epoch goes on with it"


def test_a_marker_may_raise_the_epoch() -> None:
    state = begun()
    state.record_end(1, 7, 1, 3, 102, 1002)
    assert seen(state) == (1, -1, 3, -1, 102)
    with pytest.raises(StaleProducerEpoch):
        state.check(1, transactional(2))
    with pytest.raises(OutOfOrderSequence):
        state.check(1, transactional(2, producer_epoch=1))
    assert state.check(1, transactional(0, producer_epoch=1)) == NEW


def test_a_marker_of_a_producer_that_wrote_nothing_fences_older_ones() -> None:
    state = ProducerState(DAY_MS)
    state.record_end(1, 7, 4, 3, 0, 1000)
    assert seen(state) == (4, -1, 3, -1, 0)
    with pytest.raises(StaleProducerEpoch):
        state.check(1, transactional(0, producer_epoch=3))


def test_batches_of_a_coordinator_have_no_sequences() -> None:
    state = ProducerState(DAY_MS)
    state.record(1, transactional(-1, producer_epoch=2), 5, 1000)
    assert seen(state) == (2, -1, -1, 5, -1)
    state.check_epoch(1, transactional(-1, producer_epoch=2))
    state.check_epoch(1, transactional(-1, producer_epoch=0, producer_id=8))
    with pytest.raises(StaleProducerEpoch):
        state.check_epoch(1, transactional(-1, producer_epoch=1))


@each_case("version", [0, 1])
def test_before_version_2_a_marker_has_the_epoch_of_its_batches(version: int) -> None:
    state = begun(producer_epoch=5)
    assert state.check_end(1, 7, 5, 3, version) and state.check_end(1, 7, 6, 3, version)
    assert state.check_end(1, 8, 0, 0, version) and state.check_end(2, 7, 0, 0, version)
    with pytest.raises(StaleProducerEpoch):
        state.check_end(1, 7, 4, 3, version)
    state.record_end(1, 7, 5, 3, 102, 1002)
    assert state.check_end(1, 7, 5, 3, version), "of the next one, whose first batch has not come yet"
    assert state.check_end(1, 7, 5, 4, version)
    with pytest.raises(CoordinatorFenced):
        state.check_end(1, 7, 5, 2, version)


def test_a_producer_has_ended_while_its_marker_is_the_newest_of_it() -> None:
    state = begun()
    assert not state.has_newest_marker(1, 7), "its transaction is open"
    state.record_end(1, 7, 0, 3, 102, 1002)
    assert state.has_newest_marker(1, 7)
    assert not state.has_newest_marker(1, 8) and not state.has_newest_marker(2, 7)
    state.record(1, header(2), 103, 1003)
    assert not state.has_newest_marker(1, 7), "it has gone on without a transaction"
    state.record_end(1, 8, 0, 3, 0, 1004)
    assert state.has_newest_marker(1, 8), "a marker is all there is of it"
    state.record(1, transactional(-1, producer_id=8), 104, 1005)
    assert not state.has_newest_marker(1, 8), "a coordinator has begun for it, without a sequence"


def test_since_version_2_a_marker_has_a_higher_epoch() -> None:
    state = begun(producer_epoch=5)
    for late in (4, 5):
        with pytest.raises(StaleProducerEpoch, match=f"a marker of epoch {late}, transaction version 2"):
            state.check_end(1, 7, late, 3, 2)
    assert state.check_end(1, 7, 6, 3, 2)
    state.record_end(1, 7, 6, 3, 102, 1002)
    assert not state.check_end(1, 7, 6, 3, 2) and not state.check_end(1, 7, 6, 9, 2)
    with pytest.raises(CoordinatorFenced):
        state.check_end(1, 7, 7, 2, 2)
    assert state.check_end(1, 7, 7, 3, 2)


def test_an_epoch_that_cannot_be_raised_ends_its_transaction() -> None:
    assert begun(LAST_EPOCH).check_end(1, 7, LAST_EPOCH, 3, 2)


def test_a_replay_notes_what_the_append_noted() -> None:
    state, again = begun(), ProducerState(DAY_MS)
    state.record_end(1, 7, 1, 3, 102, 1002)

    def replay(payload: bytes, offset: int, time_ms: int) -> None:
        again.replay(DirectoryEntry(1, offset, 1, len(payload), 0, 0, 0), payload, time_ms)

    for sequence in (0, 1):
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        builder.append(timestamp_ms=5, key=None, value=b"x")
        replay(builder.build(), 100 + sequence, 1000 + sequence)
    other = BatchBuilder(producer_id=7, producer_epoch=9, transactional=True, control=True)
    other.append(bytes(4), b"\0\0\0\7", timestamp_ms=5)
    replay(other.build(), 101, 1001)  # a control record of another kind
    marker = build(ControlKind.ABORT, producer_id=7, producer_epoch=1, coordinator_epoch=3, timestamp_ms=5)
    replay(marker, 102, 1002)
    again.replay(DirectoryEntry(NOTES_PARTITION, 0, 0, 5, 0, 0, 0), b"notes", 1002)
    assert seen(again) == seen(state) == (1, -1, 3, -1, 102)
    assert again.snapshot(DAY_MS) == state.snapshot(DAY_MS)


def test_what_is_open_does_not_expire() -> None:
    state = begun()
    late = ProducerState(DAY_MS)
    late.restore(state.snapshot(DAY_MS * 9))
    assert seen(late) == seen(state) == (0, 1, -1, 100, -1)
    late.record_end(1, 7, 1, 3, 102, 1002)
    again = ProducerState(DAY_MS)
    again.restore(late.snapshot(1000))
    assert seen(again) == (1, -1, 3, -1, 102)
    assert again.snapshot(1000) == late.snapshot(1000)
    assert (late.snapshot(DAY_MS * 9), late.count()) == (b"", 0)


def test_snapshots_from_before_transactions_are_understood() -> None:
    old = pack(">iqhqB", 1, 7, 2, 1000, 2) + pack(">iiq", 0, 4, 100) + pack(">iiq", 5, 9, 105)
    state = ProducerState(DAY_MS)
    state.restore(old)
    assert seen(state) == (2, 9, -1, -1, -1)
    assert state.check(1, header(5, 5, producer_epoch=2)) == 105
    with pytest.raises(NewerFormat, match="producers of version 2"):
        state.restore(b"\xff\xff\xff\xff\0\2")


def test_open_stages_are_known_and_ended_ones_soon_forgotten() -> None:
    first, second = staged_producer_id("query", 1), staged_producer_id("query", 2)
    state = ProducerState(DAY_MS)
    for producer_id in (first, second):
        state.record(1, transactional(0, producer_id=producer_id), 100, 1000)
    state.record(2, transactional(0, producer_id=first), 5, 1000)
    assert list(state.open_stages) == [(1, first), (1, second), (2, first)]
    state.record_end(1, first, 1, 0, 101, 1000)
    again = ProducerState(DAY_MS)
    again.restore(state.snapshot(1000))
    assert set(again.open_stages) == set(state.open_stages) == {(1, second), (2, first)}
    assert again.knows(1, first)
    again.snapshot(1000 + STAGED_EXPIRATION_MS + 1)
    assert not again.knows(1, first) and again.knows(1, second)
    again.forget(2)
    assert list(again.open_stages) == [(1, second)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([-1, 7, 7, 8]),  # producer id
            st.sampled_from([0, 0, 0, 1]),  # epoch
            st.sampled_from([-1, 0, 3, (1 << 31) - 1]),  # sequence
            st.integers(1, 3),  # records
            st.sampled_from([0, 0, 0, TRANSACTIONAL_FLAG]),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_a_run_leaves_what_its_batches_leave(
    batches: list[tuple[int, int, int, int, int]], in_one_buffer: bool
) -> None:
    by_batch, by_run = ProducerState(DAY_MS), ProducerState(DAY_MS)
    for each in (by_batch, by_run):
        each.record(1, header(5, 2, 0, 8), 3, 100)
    payloads: list[Buffer] = []
    offset = 10
    for producer_id, epoch, sequence, count, attributes in batches:
        found = BatchHeader(
            offset, 49 + 10 * count, 0, 2, 0, attributes, count - 1, 0, 0, producer_id, epoch, sequence, count
        )
        payload = found.pack() + b"r" * 10 * count
        by_batch.replay(DirectoryEntry(1, offset, count, len(payload), 0, 0, 0), payload, 200)
        payloads.append(payload)
        offset += count
    by_run.replay_run(1, [b"".join(payloads)] if in_one_buffer else payloads, 200)
    assert by_run.snapshot(200) == by_batch.snapshot(200)


@each_case("in_one_buffer", [False, True])
def test_a_run_with_a_marker_or_a_batch_cut_short(in_one_buffer: bool) -> None:
    """Neither is in a run of a frame that verifies; each is treated as it is alone."""
    good = header(0).pack()
    marker = bytes(
        build(ControlKind.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=3, timestamp_ms=9)
    )
    by_batch, by_run = filled(), filled()
    by_batch.replay(DirectoryEntry(1, 0, 1, len(marker), 0, 0, 0), marker, 9)
    by_run.replay_run(1, [marker], 9)
    assert by_run.snapshot(200) == by_batch.snapshot(200)
    for cut in (good[:60], good[:-1], good[:16] + b"\x01" + good[17:]):
        with pytest.raises(MalformedBatch):
            filled().replay_run(1, [b"".join([marker, cut])] if in_one_buffer else [marker, cut], 9)
