"""Plants in how transactions begin, end, and are known to readers of committed records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from lockstep.broker.produce.append_result import Unverified
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.protocol.records.batch import BatchHeader
from lockstep.storage import aborted_transactions
from lockstep.storage.aborted_transactions import (
    AbortedTransaction,
    AbortedTransactions,
    PartitionTransactions,
)
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.state_machines import TRANSACTIONS_SECTION, Sections, StateMachines
from tests.sim.faces import Plant
from tests.sim.plants.raft import ELECTIONS, replaced

OFTEN = {"think_ms": 50, "segment_bytes": 64 << 10}
LATE = {**ELECTIONS, "think_ms": 50, "late": 0.3}


@contextmanager
def two_frames() -> Iterator[None]:
    def append_together(
        self: LogGroup,
        batches: Sequence[tuple[PartitionLog, bytearray, BatchHeader]],
        *,
        reserved: bool = False,
    ) -> list[int]:
        offsets = []
        for partition, batch, header in batches:
            if self._open.batch_count:
                self._open._close()
            offsets.append(self.append(partition, batch, header, reserved=reserved))
        return offsets

    with patch.object(LogGroup, "append_together", append_together):
        yield


@contextmanager
def marker_noted_at_append() -> Iterator[None]:
    real = Appender.end_transactions

    def end_transactions(
        self: Appender,
        partitions: Sequence[PartitionLog],
        marker: TxnMarkerEntry,
        extra: Sequence[object] = (),
    ) -> None:
        real(self, partitions, marker)
        for partition in partitions:
            if partition.transactions is not None:
                partition.transactions.open.pop(marker.producer_id, None)

    with patch.object(Appender, "end_transactions", end_transactions):
        yield


@contextmanager
def not_in_checkpoints() -> Iterator[None]:
    real = StateMachines.add_committed

    def add_committed(self: StateMachines, sections: Sections, time_ms: int) -> None:
        real(self, sections, time_ms)
        sections[TRANSACTIONS_SECTION] = b""

    with patch.object(StateMachines, "add_committed", add_committed):
        yield


@contextmanager
def aborted_not_restored() -> Iterator[None]:
    """In nodes only: what the checks restore is as it was."""
    real = StateMachines.restore

    def restore(self: StateMachines, sections: Sections) -> None:
        real(self, sections)
        for partition in self.control.partitions.values():
            if partition.transactions is not None:
                partition.transactions.aborted = AbortedTransactions()

    with patch.object(StateMachines, "restore", restore):
        yield


@contextmanager
def tail_taken_back() -> Iterator[None]:
    """A truncation takes the committed view back to the checkpoint, as if it followed the tail."""
    real = StateMachines.restore_tail

    def restore_tail(self: StateMachines, sections: Sections) -> None:
        real(self, sections)
        data = sections.get(TRANSACTIONS_SECTION, b"")
        aborted_transactions.restore(self.control.partitions, data)

    with patch.object(StateMachines, "restore_tail", restore_tail):
        yield


@contextmanager
def guard_not_compared() -> Iterator[None]:
    real = Appender._check_verified

    def check(
        self: Appender, partition: PartitionLog, header: BatchHeader, verified: bool, guard: int | None
    ) -> Unverified | None:
        return real(self, partition, header, verified, None)

    with patch.object(Appender, "_check_verified", check):
        yield


@contextmanager
def never_verified() -> Iterator[None]:
    def check(
        self: Appender, partition: PartitionLog, header: BatchHeader, verified: bool, guard: int | None
    ) -> None:
        return

    with patch.object(Appender, "_check_verified", check):
        yield


@contextmanager
def stable_at_the_tail() -> Iterator[None]:
    def last_stable_offset(self: PartitionLog) -> int:
        first = self.transactions.first_open_offset if self.transactions is not None else None
        return self.next_offset if first is None else first

    with patch.object(PartitionLog, "last_stable_offset", property(last_stable_offset)):
        yield


@contextmanager
def aborted_from_where_it_is_read() -> Iterator[None]:
    """A transaction that began before the reader's offset is not told."""
    real = PartitionTransactions.aborted_between

    def aborted_between(self: PartitionTransactions, first: int, end: int) -> list[AbortedTransaction]:
        return [each for each in real(self, first, end) if each.first_offset >= first]

    with patch.object(PartitionTransactions, "aborted_between", aborted_between):
        yield


def _transactions(name: str, what: str, apply: object, overrides: object, source: str) -> Plant:
    return Plant(name, what, apply, workload="transactions", overrides=overrides, source=source)  # type: ignore[arg-type]


PLANTS = (
    _transactions(
        "ended-in-two-frames",
        "the markers of a transaction are entries of their own",
        two_frames,
        OFTEN,
        "docs/storage_rules.md: everything in one log group ends in one entry",
    ),
    _transactions(
        "stable-at-the-tail",
        "without open transactions all that is appended counts as stable",
        stable_at_the_tail,
        OFTEN,
        "docs/storage_rules.md: LSO = min(first open transaction, HW)",
    ),
    _transactions(
        "open-transactions-ignored",
        "readers of committed records read up to the high watermark",
        replaced(PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark)),
        OFTEN,
        "KIP-98",
    ),
    _transactions(
        "marker-noted-at-append",
        "a transaction counts as ended when its marker is appended",
        marker_noted_at_append,
        OFTEN,
        "decision 2: commit machines change when their batch commits",
    ),
    _transactions(
        "transactions-not-in-checkpoints",
        "checkpoints leave out open and aborted transactions",
        not_in_checkpoints,
        OFTEN,
        "Redpanda #3039 (state beside the log)",
    ),
    _transactions(
        "aborted-not-restored",
        "a start or an installation forgets which transactions were aborted",
        aborted_not_restored,
        OFTEN,
        "KAFKA-5621 (state of transactions rebuilt wrongly)",
    ),
    _transactions(
        "transactions-taken-back",
        "a truncation takes open and aborted transactions back to the checkpoint",
        tail_taken_back,
        LATE,
        "decision 2: what is committed stays",
    ),
    _transactions(
        "aborted-before-not-told",
        "a reader in the middle of an aborted transaction is not told of it",
        aborted_from_where_it_is_read,
        OFTEN,
        "KIP-98 (aborted transactions by their last offset)",
    ),
    _transactions(
        "guard-not-compared",
        "a marker written while a batch is verified does not matter",
        guard_not_compared,
        LATE,
        "KIP-890; Kafka's VerificationGuard",
    ),
    _transactions(
        "never-verified",
        "a batch that comes late begins a transaction that nobody ends",
        never_verified,
        LATE,
        "KIP-890 (hanging transactions)",
    ),
    _transactions(
        "late-marker-ends-the-next",
        "a marker that comes late, with an epoch that is old, ends what is open now",
        replaced(ProducerState, "check_end", lambda self, *what: True),
        LATE,
        "KIP-890, KIP-1228",
    ),
)
