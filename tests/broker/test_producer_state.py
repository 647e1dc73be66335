"""Idempotence rules, and that a snapshot carries them."""

import pytest

from broker.producer_state import NEW, OutOfOrderSequence, ProducerState, StaleProducerEpoch
from protocol.records.batch import BatchHeader

DAY_MS = 86_400_000


def header(sequence: int, count: int = 1, producer_epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return BatchHeader(0, 61, 0, 2, 0, 0, count - 1, 0, 0, producer_id, producer_epoch, sequence, count)


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
        with pytest.raises(OutOfOrderSequence, match="70 expected"):
            state.check(1, header(sequence))


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


def test_sequences_wrap() -> None:
    state = ProducerState(DAY_MS)
    state.record(1, header(2**31 - 2, 3), 0, 0)
    assert state.check(1, header(1)) == NEW
    assert state.check(1, header(2**31 - 2, 3)) == 0


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


def test_a_closed_partition_is_forgotten() -> None:
    state = filled()
    state.forget(1)
    state.forget(1)
    assert state.count() == 0
