"""Who may do what in which state. What Kafka answers was asked of Apache Kafka 4.4.0, too:
`compat_tests/test_wire_transactions.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.transactions.transaction_records import (
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from lockstep.broker.transactions.transaction_rules import (
    LARGEST_EPOCH,
    LAST_EPOCH,
    PREDECESSORS,
    add_partitions,
    begin,
    check_added,
    check_identity,
    complete,
    end_needs_new_id,
    fence,
    fence_needs_new_id,
    init_needs_new_id,
    initialize,
    is_expired,
    is_overdue,
    prepare_end,
)
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

ME = (7, 3)
T0: TopicPartition = ("t", 0)
T1: TopicPartition = ("t", 1)
NOW = 1_000


def at(state: TransactionState, identity: tuple[int, int] = ME, /, **more: object) -> TransactionMetadata:
    """An id of producer 7 in a state."""
    metadata = TransactionMetadata(*identity, 60_000, state, update_ms=500, previous_producer_id=identity[0])
    if state is ONGOING:
        metadata = metadata._replace(partitions=(T0,), start_ms=400)
    return metadata._replace(**more)  # type: ignore[arg-type]


def error(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(RequestError) as refused:
        call()
    return refused.value.error


# --- InitProducerId ---------------------------------------------------------------------------------------


def test_an_id_begins_with_epoch_0() -> None:
    assert begin(9, 5_000, NOW) == TransactionMetadata(
        9, 0, 5_000, EMPTY, update_ms=NOW, previous_producer_id=9
    )


@each_case("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_next_producer_has_the_next_epoch(state: TransactionState) -> None:
    metadata = initialize(at(state, start_ms=5, last_producer_epoch=2), None, None, 5_000, NOW)
    # The last epoch is forgotten: its predecessor may not come back.
    assert metadata == TransactionMetadata(7, 4, 5_000, EMPTY, update_ms=NOW, previous_producer_id=7)


@each_case("state", [PREPARE_COMMIT, PREPARE_ABORT])
@each_case("expected", [None, ME])
def test_nobody_begins_while_a_transaction_ends(
    state: TransactionState, expected: tuple[int, int] | None
) -> None:
    call = lambda: initialize(at(state), expected, None, 1, NOW)  # noqa: E731
    assert error(call) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_producer_raises_its_own_epoch_and_may_repeat_that() -> None:
    metadata = initialize(at(EMPTY), ME, None, 5_000, NOW)
    assert (metadata.producer_epoch, metadata.last_producer_epoch) == (4, 3)
    for _ in range(2):
        metadata = initialize(metadata, ME, None, 5_000, NOW + 1)
        assert (metadata.producer_epoch, metadata.last_producer_epoch) == (4, 3)
    another = initialize(metadata, None, None, 5_000, NOW + 2)
    assert error(lambda: initialize(another, ME, None, 1, NOW)) is ErrorCode.PRODUCER_FENCED


@each_case("expected", [(7, 2), (7, 4), (8, 3), (6, 3)])
def test_a_producer_that_is_not_the_last_one_is_fenced(expected: tuple[int, int]) -> None:
    current = at(EMPTY, previous_producer_id=6)
    assert error(lambda: check_identity(current, expected)) is ErrorCode.PRODUCER_FENCED
    assert error(lambda: initialize(current, expected, None, 1, NOW)) is ErrorCode.PRODUCER_FENCED


def test_a_late_request_for_the_epoch_of_a_transaction_does_not_abort_it() -> None:
    raised = initialize(at(EMPTY), ME, None, 5_000, NOW)
    begun_since = add_partitions(raised, (7, 4), [T0], 2, NOW)
    assert begun_since is not None
    check_identity(begun_since, (7, 4))
    assert error(lambda: check_identity(begun_since, ME)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_epochs_ran_out_gets_a_new_id() -> None:
    current = at(EMPTY, (7, LAST_EPOCH))
    assert init_needs_new_id(current, None)
    assert init_needs_new_id(current, (7, LAST_EPOCH))
    assert not init_needs_new_id(current, (7, LAST_EPOCH - 1))
    assert not init_needs_new_id(at(EMPTY), None)
    assert not init_needs_new_id(at(EMPTY, (7, LAST_EPOCH - 1)), None)
    metadata = initialize(current, None, 8, 5_000, NOW)
    assert (metadata.producer_id, metadata.producer_epoch, metadata.last_producer_epoch) == (8, 0, -1)
    assert metadata.previous_producer_id == 7


def test_a_producer_that_missed_the_response_with_its_new_id_may_retry() -> None:
    old = (7, LAST_EPOCH)
    metadata = initialize(at(EMPTY, old), old, 8, 5_000, NOW)
    assert (metadata.producer_id, metadata.producer_epoch, metadata.last_producer_epoch) == (8, 0, LAST_EPOCH)
    for _ in range(2):
        assert not init_needs_new_id(metadata, old)
        again = initialize(metadata, old, None, 5_000, NOW)
        assert again == metadata
        metadata = again


def test_a_fenced_producers_transaction_is_aborted_with_the_next_epoch() -> None:
    assert not fence_needs_new_id(at(ONGOING), 2)
    prepared = fence(at(ONGOING, last_producer_epoch=2), 1, None, NOW)
    assert prepared == at(ONGOING, state=PREPARE_ABORT, producer_epoch=4, update_ms=NOW)
    prepared = fence(at(ONGOING), 2, None, NOW)
    assert (prepared.producer_epoch, prepared.version, prepared.last_producer_epoch) == (4, 2, 3)


@each_case("epoch", [LAST_EPOCH, LARGEST_EPOCH])
def test_the_largest_epoch_fences_and_is_given_to_nobody(epoch: int) -> None:
    """KAFKA-20090. Data directories of before may have an id at the largest epoch."""
    current = at(ONGOING, (7, epoch))
    assert fence_needs_new_id(current, 2)
    assert not fence_needs_new_id(current, 1)
    assert not fence_needs_new_id(at(ONGOING, (7, LAST_EPOCH - 1)), 2)
    prepared = fence(current, 2, 8, NOW)
    assert (prepared.producer_id, prepared.producer_epoch) == (7, LARGEST_EPOCH)  # of the markers
    over = complete(prepared, NOW)
    assert (over.producer_id, over.producer_epoch, over.previous_producer_id) == (8, 0, 7)
    assert over.last_producer_epoch == epoch


def test_the_producer_of_the_last_epoch_gets_its_timeout_and_continues() -> None:
    old = (7, LAST_EPOCH)
    over = complete(fence(at(ONGOING, old), 2, 8, NOW), NOW)
    assert prepare_end(over, old, False, 2, None, NOW) is None  # its late abort is answered with (8, 0)
    assert error(lambda: prepare_end(over, old, True, 2, None, NOW)) is ErrorCode.PRODUCER_FENCED
    assert error(lambda: prepare_end(over, old, True, 0, None, NOW)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert error(lambda: add_partitions(over, old, [T0], 2, NOW)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    again = initialize(over, old, None, 5_000, NOW)
    assert (again.producer_id, again.producer_epoch) == (8, 0)
    next_transaction = add_partitions(over, (8, 0), [T0], 2, NOW)
    assert next_transaction is not None
    late_again = complete(fence(next_transaction, 2, None, NOW), NOW)
    assert error(lambda: add_partitions(late_again, (8, 0), [T0], 2, NOW)) is ErrorCode.PRODUCER_FENCED


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------


@each_case("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_first_partition_begins_a_transaction(state: TransactionState) -> None:
    metadata = add_partitions(at(state), ME, [T1, T0, T1], 0, NOW)
    assert metadata == at(state, state=ONGOING, partitions=(T1, T0), start_ms=NOW, update_ms=NOW)


def test_partitions_join_the_others() -> None:
    metadata = add_partitions(at(ONGOING), ME, [T1, T0], 2, NOW)
    assert metadata == at(ONGOING, partitions=(T0, T1), update_ms=NOW, version=2)
    assert add_partitions(metadata, ME, [T1], 2, NOW) is None
    assert add_partitions(metadata, ME, [], 2, NOW) is None


@each_case(
    ("current", "asked", "expected"),
    [
        (None, ME, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (at(ONGOING), (8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (at(ONGOING), (7, 2), ErrorCode.PRODUCER_FENCED),
        (at(ONGOING), (7, 4), ErrorCode.PRODUCER_FENCED),
        (at(PREPARE_COMMIT), ME, ErrorCode.CONCURRENT_TRANSACTIONS),
        (at(PREPARE_ABORT), ME, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_producers_that_may_not_add_and_verify(
    current: TransactionMetadata | None, asked: tuple[int, int], expected: ErrorCode
) -> None:
    assert error(lambda: add_partitions(current, asked, [T0], 0, NOW)) is expected
    assert error(lambda: check_added(current, asked, [T0])) is expected


def test_verification_reports_which_partitions_were_added() -> None:
    told = check_added(at(ONGOING), ME, [T0, T1])
    assert told == {T0: ErrorCode.NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}
    assert check_added(at(COMPLETE_ABORT), ME, [T0]) == {T0: ErrorCode.TRANSACTION_ABORTABLE}


# --- EndTxn up to transaction version 1 ---------------------------------------------------------------------


@each_case(("commit", "state"), [(True, PREPARE_COMMIT), (False, PREPARE_ABORT)])
def test_a_transaction_ends(commit: bool, state: TransactionState) -> None:
    prepared = prepare_end(at(ONGOING, version=0), ME, commit, 0, None, NOW)
    assert prepared == at(ONGOING, state=state, update_ms=NOW)
    assert prepared is not None
    over = complete(prepared, NOW + 1)
    assert over.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    assert (over.producer_id, over.producer_epoch, over.partitions) == (7, 3, ())
    assert (over.start_ms, over.update_ms) == (400, NOW + 1)
    assert prepare_end(over, ME, commit, 0, None, NOW) is None  # asked again
    assert error(lambda: prepare_end(over, ME, not commit, 0, None, NOW)) is ErrorCode.INVALID_TXN_STATE


def end_error(
    state: TransactionState, asked: tuple[int, int], commit: bool = True, version: int = 2
) -> ErrorCode:
    return error(lambda: prepare_end(at(state), asked, commit, version, None, NOW))


ALL = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]


@each_case("version", [0, 1, 2])
def test_producers_that_may_not_end(version: int) -> None:
    unknown = error(lambda: prepare_end(None, ME, True, version, None, NOW))
    assert unknown is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for state in ALL:
        assert end_error(state, (8, 3), version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert end_error(state, (7, 1), version=version) is ErrorCode.PRODUCER_FENCED
        assert end_error(state, (7, 4), version=version) is ErrorCode.PRODUCER_FENCED


@each_case(
    ("state", "commit", "expected"),
    [
        (EMPTY, True, ErrorCode.INVALID_TXN_STATE),
        (EMPTY, False, ErrorCode.INVALID_TXN_STATE),
        (PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (PREPARE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (PREPARE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_nothing_to_end(state: TransactionState, commit: bool, expected: ErrorCode) -> None:
    assert error(lambda: prepare_end(at(state), ME, commit, 1, None, NOW)) is expected


# --- EndTxn from transaction version 2 on -------------------------------------------------------------------


def test_every_end_raises_the_epoch() -> None:
    assert not end_needs_new_id(at(ONGOING), 2)
    prepared = prepare_end(at(ONGOING), ME, True, 2, None, NOW)
    assert prepared == at(
        ONGOING, state=PREPARE_COMMIT, producer_epoch=4, version=2, update_ms=NOW, last_producer_epoch=3
    )
    assert prepared is not None
    over = complete(prepared, NOW)
    assert (over.producer_id, over.producer_epoch) == (7, 4)


@each_case(
    ("commit", "prepare", "complete"),
    [(True, PREPARE_COMMIT, COMPLETE_COMMIT), (False, PREPARE_ABORT, COMPLETE_ABORT)],
)
def test_the_epoch_before_is_a_repetition(
    commit: bool, prepare: TransactionState, complete: TransactionState
) -> None:
    before = 7, 2
    assert prepare_end(at(complete), before, commit, 2, None, NOW) is None
    assert end_error(prepare, before, commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert end_error(prepare, ME, commit) is ErrorCode.PRODUCER_FENCED
    assert end_error(EMPTY, before) is ErrorCode.PRODUCER_FENCED
    assert end_error(ONGOING, before) is ErrorCode.PRODUCER_FENCED


@each_case("state", [PREPARE_ABORT, COMPLETE_ABORT])
def test_a_commit_after_the_brokers_own_abort_is_fenced(state: TransactionState) -> None:
    """KAFKA-20785: INVALID_TXN_STATE would end its producer for good."""
    assert end_error(state, (7, 2), commit=True) is ErrorCode.PRODUCER_FENCED


@each_case("state", [PREPARE_COMMIT, COMPLETE_COMMIT])
def test_an_abort_after_its_own_commit_is_a_mistake(state: TransactionState) -> None:
    assert end_error(state, (7, 2), commit=False) is ErrorCode.INVALID_TXN_STATE


@each_case("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_what_has_not_begun_may_be_aborted_and_not_committed(state: TransactionState) -> None:
    prepared = prepare_end(at(state), ME, False, 2, None, NOW)
    assert prepared is not None
    assert (prepared.state, prepared.producer_epoch, prepared.start_ms) == (PREPARE_ABORT, 4, NOW)
    assert error(lambda: prepare_end(at(state), ME, True, 2, None, NOW)) is ErrorCode.INVALID_TXN_STATE


def test_the_last_epoch_brings_a_new_id() -> None:
    old = (7, LAST_EPOCH)
    assert end_needs_new_id(at(ONGOING, old), 2)
    assert not end_needs_new_id(at(ONGOING, old), 1)
    assert not end_needs_new_id(None, 2)
    prepared = prepare_end(at(ONGOING, old), old, True, 2, 8, NOW)
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (7, LARGEST_EPOCH, 8)
    over = complete(prepared, NOW)
    assert (over.producer_id, over.producer_epoch) == (8, 0)
    assert (over.previous_producer_id, over.next_producer_id) == (7, -1)
    assert prepare_end(over, old, True, 2, None, NOW) is None
    assert error(lambda: prepare_end(over, old, False, 2, None, NOW)) is ErrorCode.INVALID_TXN_STATE


# --- the table, and time ----------------------------------------------------------------------------------


def test_every_state_has_its_predecessors() -> None:
    assert set(PREDECESSORS) == set(TransactionState)
    with pytest.raises(AssertionError, match="COMPLETE_COMMIT is not followed by COMPLETE_ABORT"):
        complete(at(COMPLETE_COMMIT), NOW)


def test_a_transaction_is_overdue_after_its_timeout() -> None:
    current = at(ONGOING, start_ms=400, timeout_ms=100)
    assert not is_overdue(current, 500)
    assert is_overdue(current, 501)
    assert not is_overdue(at(PREPARE_COMMIT, start_ms=0, timeout_ms=1), 500)


def test_an_id_is_forgotten_where_nothing_is_under_way() -> None:
    for state in ALL:
        current = at(state, update_ms=500)
        assert not is_expired(current, 599, 100)
        assert is_expired(current, 600, 100) == (state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT))
