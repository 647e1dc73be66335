"""The committed state of the transactional ids of one data log group.

Owns: `TransactionsState`, a commit machine: it changes in `replay` alone, live and at recovery alike.
Invariants: `restore(snapshot())` gives an equal state; an unknown record changes nothing and is skipped, as
in Kafka: another version may have written it. Ids keep the order of their first record, so that every copy of
the log group gives the same bytes. Does not: know partitions of `__transaction_state`, time, or what is under
way (`transaction_coordinator.py` does).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from itertools import count
from struct import Struct
from typing import Final

from lockstep.broker.transactions.transaction_records import (
    PREPARED,
    TransactionMetadata,
    TransactionState,
    UnknownTransactionRecord,
    transaction_metadata,
    transactional_id,
)
from lockstep.protocol.primitives import MalformedMessage
from lockstep.protocol.records.batch import CONTROL_FLAG, MalformedBatch
from lockstep.protocol.records.record import key_values
from lockstep.storage.types import Buffer, DirectoryEntry, NewerFormat

SECTION: Final = "transactional_ids"
"""The name of the state's section in a checkpoint."""
STATE_VERSION: Final = 1
WARNINGS: Final = 10
"""The most warnings that are logged about unknown records; another tool may have written a million."""
_PREFIX: Final = Struct(">HI")
_ATTRIBUTES_AT: Final = 22
"""The low byte of a batch's attributes."""


def _ignore(text: str) -> None:
    """The default of `warn`."""


class TransactionsState:
    """The state of each id. A `StateMachine`. Args: warn: called for skipped records."""

    __slots__ = ("_begun", "_ids", "_ongoing", "_prepared", "_values", "_warn", "_warned")

    def __init__(self, warn: Callable[[str], None] = _ignore) -> None:
        self._ids: dict[str, TransactionMetadata] = {}
        self._values: dict[str, bytes] = {}
        """The records of `_ids`, for snapshots."""
        self._ongoing: dict[str, int] = {}
        self._begun = count(1)
        self._prepared: dict[str, None] = {}
        self._warn = warn
        self._warned = 0

    # --- what is committed --------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Returns the state of an id; None for an unknown one."""
        return self._ids.get(transactional_id)

    @property
    def ids(self) -> Mapping[str, TransactionMetadata]:
        """Returns all ids with their states, read-only."""
        return self._ids

    @property
    def ongoing_ids(self) -> Collection[str]:
        """The ids with a transaction under way, longest first."""
        return self._ongoing

    def serial(self, name: str) -> int | None:
        """Returns the serial of the transaction under way: another one of the same id has another. None where
        there is none. The time when it began does not distinguish them, since the log's time may stand
        still."""
        return self._ongoing.get(name)

    @property
    def prepared_ids(self) -> Collection[str]:
        """The ids whose transaction is decided, and without a marker in some partition."""
        return self._prepared

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionsState) and self._ids == other._ids

    __hash__ = None  # type: ignore[assignment]

    # --- replay -------------------------------------------------------------------------------------------

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """Applies one committed batch; see StateMachine."""
        if payload[_ATTRIBUTES_AT] & CONTROL_FLAG:
            return  # another client added a partition of `__transaction_state` to a transaction
        try:
            pairs = key_values(payload)
        except MalformedBatch as error:
            self._log_once(f"a batch of records about transactions cannot be read: {error}")
            return
        for key, value in pairs:
            try:
                self._apply(transactional_id(key), value)
            except (MalformedMessage, UnknownTransactionRecord) as error:
                self._log_once(f"a record about transactions is passed over: {error}")

    def _apply(self, name: str, value: bytes | None) -> None:
        metadata = None if value is None else transaction_metadata(value)
        serial = self._ongoing.pop(name, None)
        self._prepared.pop(name, None)
        if metadata is None or value is None:
            self._ids.pop(name, None)
            self._values.pop(name, None)
            return
        self._ids[name] = metadata
        self._values[name] = value
        if metadata.state is TransactionState.ONGOING:
            self._ongoing[name] = next(self._begun) if serial is None else serial
        elif metadata.state in PREPARED:
            self._prepared[name] = None

    def _log_once(self, text: str) -> None:
        self._warned += 1
        if self._warned <= WARNINGS:
            self._warn(text)

    # --- snapshot -----------------------------------------------------------------------------------------

    def snapshot(self, time_ms: int) -> bytes:
        """Returns a JSON head with the ids and the sizes of their records, then the records."""
        values = self._values
        head = {"ids": list(values), "sizes": list(map(len, values.values())), "ongoing": list(self._ongoing)}
        written = json.dumps(head, separators=(",", ":")).encode()
        return b"".join((_PREFIX.pack(STATE_VERSION, len(written)), written, *values.values()))

    def restore(self, data: bytes) -> None:
        """Replaces the state by a snapshot; empty bytes are the empty state. Raises NewerFormat."""
        self._ids, self._values, self._ongoing, self._prepared = {}, {}, {}, {}
        if not data:
            return
        version, size = _PREFIX.unpack_from(data)
        if version > STATE_VERSION:
            raise NewerFormat(f"transactional ids of version {version}, known up to {STATE_VERSION}")
        at = _PREFIX.size + size
        head = json.loads(data[_PREFIX.size : at])
        self._ongoing = dict(zip(head["ongoing"], self._begun, strict=False))
        for name, length in zip(head["ids"], head["sizes"], strict=True):
            self._apply_restored(name, data[at : at + length])
            at += length

    def _apply_restored(self, name: str, value: bytes) -> None:
        metadata = self._ids[name] = transaction_metadata(value)
        self._values[name] = value
        if metadata.state in PREPARED:
            self._prepared[name] = None
