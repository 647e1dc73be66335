"""The state machine of a transactional id: allowed requests and their results, pure rules.

Owns: the table of states, and one function per request, from the state of an id to its next state or to
Kafka's error. Invariants: nothing is under way for the id (`request_queue.py` sees to it), so that no rule
here knows of half-done changes; every change is one that the table allows. Two protocols live side by side:
up to transaction version 1 a producer keeps its epoch until it is fenced, from 2 on every end raises it
(KIP-890), so that what is late of an earlier transaction is known by its epoch. Does not: know time, take
producer ids (the caller passes a fresh one where `..._needs_new_id` returns True), or write. Source: Kafka's
TransactionMetadata and TransactionCoordinator; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.transactions.transaction_records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from lockstep.protocol.errors import ErrorCode

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
DEAD, PREPARE_EPOCH_FENCE = TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE

PREDECESSORS: Final = {
    EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset({ONGOING, PREPARE_EPOCH_FENCE, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}
"""State -> the states before it. A producer of transaction version 2 may abort a transaction not begun."""
IDLE: Final = PREDECESSORS[DEAD]
"""The states without a transaction under way: an id that is in one for long expires."""

LARGEST_EPOCH: Final = (1 << 15) - 1
LAST_EPOCH: Final = LARGEST_EPOCH - 1
"""A producer is never given a higher one: the largest is kept to fence it."""
RAISES_EPOCH_MIN_VERSION: Final = 2
"""The transaction version from which on every end of a transaction raises the producer's epoch."""

Identity = tuple[int, int]
"""A producer id and its epoch."""


def _transition(
    current: TransactionMetadata, state: TransactionState, time_ms: int, **changes: object
) -> TransactionMetadata:
    assert current.state in PREDECESSORS[state], f"{current.state.name} is not followed by {state.name}"
    changes = {"previous_producer_id": current.producer_id, **changes}
    return current._replace(state=state, update_ms=time_ms, **changes)  # type: ignore[arg-type]


def _error(error: ErrorCode, current: TransactionMetadata, producer: Identity) -> RequestError:
    return RequestError(
        error,
        f"producer {producer[0]} with epoch {producer[1]}; {current.producer_id} with "
        f"{current.producer_epoch} in state {current.state.label} is known",
    )


def is_exhausted(current: TransactionMetadata) -> bool:
    """Returns whether no epoch is left for the next producer."""
    return current.producer_epoch >= LAST_EPOCH


# --- InitProducerId ---------------------------------------------------------------------------------------


def begin(producer_id: int, timeout_ms: int, time_ms: int) -> TransactionMetadata:
    """An id that was not used before."""
    return TransactionMetadata(
        producer_id, 0, timeout_ms, EMPTY, update_ms=time_ms, previous_producer_id=producer_id
    )


def check_identity(current: TransactionMetadata, expected: Identity | None) -> None:
    """Raises RequestError (PRODUCER_FENCED) if `expected` is not the current producer id and epoch (KIP-360).

    The last epoch is accepted, too, from a producer that did not get the response that raised its epoch, or
    that replaced its id when the epochs were exhausted. During a transaction it did get it: the last epoch is
    then that of a late request, which must not abort the transaction. Kafka checks the epoch after aborting.
    """
    if expected is None:
        return
    is_same = expected[0] == current.producer_id
    ran_out = expected[0] == current.previous_producer_id and expected[1] >= LAST_EPOCH
    is_current = is_same and expected[1] == current.producer_epoch
    is_repeated = current.state is not ONGOING and expected[1] == current.last_producer_epoch
    if not (is_current or ((is_same or ran_out) and is_repeated)):
        raise _error(ErrorCode.PRODUCER_FENCED, current, expected)


def init_needs_new_id(current: TransactionMetadata, expected: Identity | None) -> bool:
    """Returns whether `initialize` needs a fresh producer id."""
    return is_exhausted(current) and (expected is None or expected[1] == current.producer_epoch)


def initialize(
    current: TransactionMetadata,
    expected: Identity | None,
    fresh_id: int | None,
    timeout_ms: int,
    time_ms: int,
) -> TransactionMetadata:
    """A producer begins, or continues after an error that its epoch must rise for; no transaction is under
    way.

    Raises RequestError.
    """
    if current.state in PREPARED:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
        raise _error(error, current, expected or (current.producer_id, current.producer_epoch))
    check_identity(current, expected)
    producer_id, epoch = current.producer_id, current.producer_epoch
    last_epoch, previous_id = current.last_producer_epoch, producer_id
    if fresh_id is not None:
        last_epoch = NO_EPOCH if expected is None else epoch
        producer_id, epoch = fresh_id, 0
    elif expected is None:
        last_epoch = NO_EPOCH
        epoch += 1
    elif expected == (producer_id, epoch):
        last_epoch = epoch
        epoch += 1
    else:  # a retry of a request whose response was lost: the same response again
        previous_id = current.previous_producer_id
    return _transition(
        current, EMPTY, time_ms, producer_id=producer_id, producer_epoch=epoch, timeout_ms=timeout_ms,
        partitions=(), start_ms=-1, previous_producer_id=previous_id, last_producer_epoch=last_epoch,
    )  # fmt: skip


def fence_needs_new_id(current: TransactionMetadata, version: int) -> bool:
    """Returns whether `fence` needs a fresh producer id, because the epochs are exhausted (KAFKA-20090)."""
    return version >= RAISES_EPOCH_MIN_VERSION and is_exhausted(current)


def fence(
    current: TransactionMetadata, version: int, fresh_id: int | None, time_ms: int
) -> TransactionMetadata:
    """The ongoing transaction is aborted, by a newer producer's InitProducerId or its timeout.

    Args: version: the transaction version that this broker serves.
    Returns: the state PREPARE_ABORT with the epoch raised. From version 2 on the old epoch is kept as the
    last epoch: an abort that the producer itself sends then succeeds. If the raised epoch is the largest
    one, only the marker has it, and the next producer gets the fresh id.
    """
    assert current.state is ONGOING
    raises = version >= RAISES_EPOCH_MIN_VERSION
    return _transition(
        current,
        PREPARE_ABORT,
        time_ms,
        producer_epoch=min(current.producer_epoch + 1, LARGEST_EPOCH),
        version=version if raises else 0,
        next_producer_id=NO_PRODUCER_ID if fresh_id is None else fresh_id,
        last_producer_epoch=current.producer_epoch if raises else NO_EPOCH,
    )


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------


def add_partitions(
    current: TransactionMetadata | None,
    producer: Identity,
    partitions: Sequence[TopicPartition],
    version: int,
    time_ms: int,
) -> TransactionMetadata | None:
    """Partitions take part from now on; None: they all do already. Raises RequestError."""
    current = _of_producer(current, producer)
    topic_partitions = dict.fromkeys((*current.partitions, *partitions))
    if current.state is ONGOING and len(topic_partitions) == len(current.partitions):
        return None
    start_ms = current.start_ms if current.state is ONGOING else time_ms
    return _transition(
        current, ONGOING, time_ms, partitions=tuple(topic_partitions), start_ms=start_ms, version=version
    )


def check_added(
    current: TransactionMetadata | None, producer: Identity, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Returns whether each partition takes part in the producer's transaction. Raises RequestError."""
    taking_part = frozenset(_of_producer(current, producer).partitions)
    return {
        topic_partition: ErrorCode.NONE if topic_partition in taking_part else ErrorCode.TRANSACTION_ABORTABLE
        for topic_partition in partitions
    }


def _of_producer(current: TransactionMetadata | None, producer: Identity) -> TransactionMetadata:
    if current is None:
        raise RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id is not known")
    if producer[0] != current.producer_id:
        raise _error(ErrorCode.INVALID_PRODUCER_ID_MAPPING, current, producer)
    if producer[1] != current.producer_epoch:
        raise _error(ErrorCode.PRODUCER_FENCED, current, producer)
    if current.state in PREPARED:
        raise _error(ErrorCode.CONCURRENT_TRANSACTIONS, current, producer)
    return current


# --- EndTxn -----------------------------------------------------------------------------------------------


def end_needs_new_id(current: TransactionMetadata | None, version: int) -> bool:
    """Returns whether `prepare_end` needs a fresh producer id."""
    return current is not None and version >= RAISES_EPOCH_MIN_VERSION and is_exhausted(current)


def prepare_end(
    current: TransactionMetadata | None,
    producer: Identity,
    commit: bool,
    version: int,
    fresh_id: int | None,
    time_ms: int,
) -> TransactionMetadata | None:
    """The producer ends its transaction; None: it did so before and did not get the response. Raises
    RequestError."""
    if current is None:
        raise RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id is not known")
    if version >= RAISES_EPOCH_MIN_VERSION:
        return _prepare_end_raising_epoch(current, producer, commit, version, fresh_id, time_ms)
    if producer[0] != current.producer_id:
        raise _error(ErrorCode.INVALID_PRODUCER_ID_MAPPING, current, producer)
    if producer[1] != current.producer_epoch:
        raise _error(ErrorCode.PRODUCER_FENCED, current, producer)
    if current.state is ONGOING:
        prepare = PREPARE_COMMIT if commit else PREPARE_ABORT
        return _transition(current, prepare, time_ms, version=0, next_producer_id=NO_PRODUCER_ID)
    _check_repeated(current, producer, commit)
    return None


def _prepare_end_raising_epoch(
    current: TransactionMetadata,
    producer: Identity,
    commit: bool,
    version: int,
    fresh_id: int | None,
    time_ms: int,
) -> TransactionMetadata | None:
    """From transaction version 2 on: the same epoch is the next transaction, one less is a repetition."""
    ran_out = (producer, current.producer_epoch) == ((current.previous_producer_id, LAST_EPOCH), 0)
    repeated = ran_out or producer[1] + 1 == current.producer_epoch
    if producer[0] != current.producer_id and not ran_out:
        raise _error(ErrorCode.INVALID_PRODUCER_ID_MAPPING, current, producer)
    same = producer[1] == current.producer_epoch
    if not (same if current.state in (EMPTY, ONGOING) else repeated or (same and current.state in IDLE)):
        raise _error(ErrorCode.PRODUCER_FENCED, current, producer)
    if repeated:
        if commit and current.state in (PREPARE_ABORT, COMPLETE_ABORT):
            # A client retries its own EndTxn unchanged, so it was the coordinator that aborted. The producer
            # can recover from PRODUCER_FENCED; INVALID_TXN_STATE is fatal to it (KAFKA-20785).
            raise _error(ErrorCode.PRODUCER_FENCED, current, producer)
        _check_repeated(current, producer, commit)
        return None
    if current.state is not ONGOING and commit:
        raise _error(ErrorCode.INVALID_TXN_STATE, current, producer)
    return _transition(
        current,
        PREPARE_COMMIT if commit else PREPARE_ABORT,
        time_ms,
        producer_epoch=min(current.producer_epoch + 1, LARGEST_EPOCH),
        start_ms=current.start_ms if current.state is ONGOING else time_ms,
        next_producer_id=NO_PRODUCER_ID if fresh_id is None else fresh_id,
        version=version,
        last_producer_epoch=current.producer_epoch,
    )


def _check_repeated(current: TransactionMetadata, producer: Identity, commit: bool) -> None:
    """Raises RequestError unless the last transaction ended, or is about to end, in the way that is requested
    now."""
    if current.state is (PREPARE_COMMIT if commit else PREPARE_ABORT):
        raise _error(ErrorCode.CONCURRENT_TRANSACTIONS, current, producer)
    if current.state is not (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
        raise _error(ErrorCode.INVALID_TXN_STATE, current, producer)


def complete(prepared: TransactionMetadata, time_ms: int) -> TransactionMetadata:
    """Every partition has its marker."""
    state = COMPLETE_COMMIT if prepared.state is PREPARE_COMMIT else COMPLETE_ABORT
    producer_id, epoch = prepared.producer_id, prepared.producer_epoch
    if prepared.next_producer_id != NO_PRODUCER_ID:
        producer_id, epoch = prepared.next_producer_id, 0
    return _transition(
        prepared, state, time_ms, producer_id=producer_id, producer_epoch=epoch, partitions=(),
        next_producer_id=NO_PRODUCER_ID,
    )  # fmt: skip


# --- timeouts ---------------------------------------------------------------------------------------------


def is_overdue(current: TransactionMetadata, now_ms: int) -> bool:
    """Returns whether the transaction under way has taken longer than its producer's timeout."""
    return current.state is ONGOING and current.start_ms + current.timeout_ms < now_ms


def is_expired(current: TransactionMetadata, now_ms: int, expiration_ms: int) -> bool:
    """Returns whether the id was unused for so long that it expires."""
    return current.state in IDLE and current.update_ms <= now_ms - expiration_ms
