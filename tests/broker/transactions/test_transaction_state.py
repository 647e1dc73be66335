"""What is committed of transactional ids: replay, snapshots, and records that are not understood."""

from __future__ import annotations

import pytest

from lockstep.broker.transactions import transaction_state as module
from lockstep.broker.transactions.transaction_records import (
    Record,
    TransactionMetadata,
    TransactionState,
    record,
)
from lockstep.broker.transactions.transaction_state import STATE_VERSION, WARNINGS, TransactionsState
from lockstep.protocol.records.control import ControlKind, build
from lockstep.protocol.records.record import key_value_batch
from lockstep.storage.types import DirectoryEntry, NewerFormat

ENTRY = DirectoryEntry(1, 0, 1, 0, 0, 0, 0)


def at(state: TransactionState, producer_id: int = 7) -> TransactionMetadata:
    partitions = () if state is TransactionState.EMPTY else (("t", 0), ("u", 1))
    return TransactionMetadata(producer_id, 3, 60_000, state, partitions, 5, 6, 7)


def replay(state: TransactionsState, *records: Record) -> None:
    state.replay(ENTRY, bytes(key_value_batch(records, 1)[0]), 1)


def filled() -> TransactionsState:
    state = TransactionsState()
    for name, each in zip("abcdef", sorted(TransactionState), strict=False):
        replay(state, record(name, at(each)))
    return state


def test_each_record_replaces_the_one_before() -> None:
    state = TransactionsState()
    replay(state, record("a", at(TransactionState.EMPTY)), record("b", at(TransactionState.ONGOING)))
    assert state.get("a") == at(TransactionState.EMPTY)
    assert list(state.ongoing_ids) == ["b"]
    replay(state, record("a", at(TransactionState.ONGOING)), record("b", at(TransactionState.PREPARE_COMMIT)))
    assert (list(state.ongoing_ids), list(state.prepared_ids)) == (["a"], ["b"])
    assert state.get("a") == at(TransactionState.ONGOING)
    replay(state, record("a", at(TransactionState.PREPARE_ABORT)), record("b", None), record("c", None))
    assert (list(state.ongoing_ids), list(state.prepared_ids), list(state.ids)) == ([], ["a"], ["a"])
    assert state.get("b") is None


def test_a_snapshot_gives_the_same_state_and_the_same_bytes() -> None:
    state = filled()
    replay(state, record("g", at(TransactionState.ONGOING)), record("b", at(TransactionState.ONGOING)))
    restored = TransactionsState()
    restored.restore(state.snapshot(9))
    assert restored == state
    assert restored.snapshot(10) == state.snapshot(9)
    assert list(restored.ongoing_ids) == list(state.ongoing_ids) == ["g", "b"]
    assert list(restored.prepared_ids) == list(state.prepared_ids) == ["c", "d"]
    replay(restored, record("a", None))
    assert restored != state
    assert state != "something else"


def test_empty_bytes_are_the_empty_state() -> None:
    state = filled()
    state.restore(b"")
    assert state == TransactionsState()
    assert not list(state.ongoing_ids)
    state.restore(TransactionsState().snapshot(1))
    assert state == TransactionsState()


def test_a_snapshot_of_a_newer_version_is_refused() -> None:
    newer = (STATE_VERSION + 1).to_bytes(2, "big") + bytes(4)
    with pytest.raises(NewerFormat):
        TransactionsState().restore(newer)


def test_unknown_records_are_skipped_and_logged_a_few_times() -> None:
    told: list[str] = []
    state = TransactionsState(told.append)
    key, value = record("a", at(TransactionState.EMPTY))
    assert value is not None
    replay(state, (b"\0\7", value), (key, value), (key, b"\0\1"), (key, b"\0\7" + value))
    assert state.get("a") == at(TransactionState.EMPTY)
    assert len(told) == 3
    cut = bytearray(key_value_batch([(key, None)], 1)[0])
    cut[57:61] = (9).to_bytes(4, "big")  # more records than there are
    for _ in range(WARNINGS):
        state.replay(ENTRY, bytes(cut), 1)
    assert state.get("a") is not None
    assert len(told) == WARNINGS
    assert "cannot be read" in told[-1]
    replay(TransactionsState(), (b"", None))  # and nobody has to listen
    assert module.SECTION == "transactional_ids"


def test_markers_among_the_records_are_ignored() -> None:
    told: list[str] = []
    state = TransactionsState(told.append)
    marker = build(ControlKind.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=1, timestamp_ms=1)
    state.replay(ENTRY, marker, 1)
    assert state == TransactionsState()
    assert not told


def test_each_transaction_under_way_has_a_serial_of_its_own() -> None:
    state = TransactionsState()
    ongoing, done = at(TransactionState.ONGOING), at(TransactionState.COMPLETE_COMMIT)
    assert state.serial("a") is None
    replay(state, record("a", ongoing), record("b", ongoing))
    first = state.serial("a")
    assert first is not None and first != state.serial("b")
    replay(state, record("a", ongoing))  # another partition takes part
    assert state.serial("a") == first
    replay(state, record("a", done))
    assert state.serial("a") is None
    replay(state, record("a", ongoing))
    assert state.serial("a") not in (None, first), "though it began at the same time"
    again = TransactionsState()
    again.restore(state.snapshot(0))
    assert None not in (again.serial("a"), again.serial("b")) and again.serial("a") != again.serial("b")
