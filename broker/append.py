"""From a Produce request's bytes to a batch in the log: validate, check sequences, append.

Work is per batch: one header read and one CRC-32C (`broker/batch_checks.py`), one copy out of the receive
buffer; no record is opened but where a topic is compacted, whose records need keys, or has locks
(`broker/locks/`), and where times ask for it (`broker/batch_times.py`).
A refusal changes nothing: no offset, no sequence. What was appended, or found to be there already, may be
acknowledged only after the group's next `when_committed`.

A transactional batch begins a transaction in its partition only where its coordinator is known to know of it
(`Unverified`); a transaction ends in all partitions of the group at once, by the markers that
`broker/transaction_ends.py` makes.

Source: Kafka's UnifiedLog for which error answers what; KIP-98 and KIP-890 for transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from broker.batch_checks import AppendLimits, check, check_transactional, header_of
from broker.batch_times import settle_times
from broker.locks.checks import LockChecks
from broker.producer_state import (
    NEW,
    NotInTransaction,
    OutOfOrderSequence,
    ProducerState,
    StaleProducerEpoch,
)
from broker.recompression import recompressed
from broker.refused import Refused
from broker.sent_again import append_time_of
from broker.settings.config import COMPRESSED_AS_SENT
from broker.settings.topic_config import LOCKS_IGNORED, LOCKS_KEPT
from broker.transaction_ends import End, Marker, ends_of, note_ends
from protocol.errors import ErrorCode
from protocol.records.batch import (
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    clear_log_append_time,
    read_header,
    set_log_append_time,
)
from storage.partition import PartitionLog
from storage.types import Backlogged, BatchTooLarge, Buffer, NotLeader, StorageFull

if TYPE_CHECKING:
    from storage.group import LogGroup

STARTS_AT_0_SINCE_PRODUCE: Final = 12
"""Producers of transaction version 2 speak this or later, and begin with sequence 0 (KIP-890)."""
REFUSALS: Final = (StorageFull, BatchTooLarge, NotLeader, Backlogged)
"""What a log group may say to an append."""
_CODES: Final[dict[type[Exception], ErrorCode]] = {
    StorageFull: ErrorCode.KAFKA_STORAGE_ERROR,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Backlogged: ErrorCode.REQUEST_TIMED_OUT,
}


class Appended:
    """Where a batch is: just appended, or there since an earlier try of the same producer."""

    __slots__ = ("base_offset", "log_append_time_ms")

    def __init__(self, base_offset: int, log_append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms


class Ready:
    """A batch that may be appended: its bytes, which are the log's from now on, and what goes with it."""

    __slots__ = ("append_time_ms", "batch", "header", "notes", "partition")

    def __init__(
        self,
        partition: PartitionLog,
        batch: bytearray,
        header: BatchHeader,
        notes: bytes,
        append_time_ms: int,
    ) -> None:
        self.partition, self.batch, self.header = partition, batch, header
        self.notes, self.append_time_ms = notes, append_time_ms


Wanted = tuple[PartitionLog, Buffer, AppendLimits]
"""One of several batches to be appended together."""


class GuiltyBatch(Exception):
    """Why several batches were not appended together: `place` is the one that may not be."""

    def __init__(self, place: int, refused: Refused) -> None:
        super().__init__(str(refused))
        self.place = place
        self.refused = refused


class Unverified(Exception):
    """The batch would begin a transaction here of which its coordinator may not know: it is to be asked.

    `guard` is for the next try: a marker that was written meanwhile makes the coordinator's answer worthless.
    """

    def __init__(self, producer_id: int, producer_epoch: int, guard: int) -> None:
        super().__init__(f"producer {producer_id} has no open transaction here")
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.guard = guard


class Overtaken(Refused):
    """A marker was written while the coordinator was asked: its answer may be of a transaction that is over.

    A producer of transaction version 2 meets this without doing wrong: its next transaction begins when the
    last is decided, and a marker of that comes later. Asking again, with this `guard`, is safe there.
    """

    def __init__(self, guard: int) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, "the transaction ended while its coordinator was asked")
        self.guard = guard


class Appender:
    """The append path into one log group."""

    def __init__(self, group: LogGroup, producers: ProducerState, clock_ms: Callable[[], int]) -> None:
        self.group = group
        self.producers = producers
        self.locks: LockChecks | None = None
        """None before clients are served."""
        self._clock_ms = clock_ms

    def append(
        self,
        partition: PartitionLog,
        records: Buffer,
        limits: AppendLimits,
        produce_version: int,
        *,
        transactional_id: str | None = None,
        verified: bool = False,
        guard: int | None = None,
    ) -> Appended:
        """Append the one batch in `records`, which is copied.

        Args:
            transactional_id: the request's.
            verified: the coordinator has said since that this partition is part of the transaction.
            guard: that of the `Unverified` which made it be asked.
        Raises:
            Refused, Unverified: nothing has changed.
        """
        ready = self._judged(
            partition, records, limits, produce_version, transactional_id, verified=verified, guard=guard
        )
        if isinstance(ready, Appended):
            return ready
        if ready.notes:
            return self._put([ready])[0]
        header, group = ready.header, self.group
        try:
            base_offset = group.append(partition, ready.batch, header)
        except REFUSALS as error:
            self.producers.tried(partition.number, header)
            raise _refused(error) from None
        if header.producer_id >= 0:
            self.producers.record(partition.number, header, base_offset, group.append_time_ms)
        return Appended(base_offset, ready.append_time_ms)

    def append_atomically(self, wanted: Iterable[Wanted], produce_version: int) -> list[Appended]:
        """Append one batch to each of several partitions of the group, in one frame: all of them or none.

        Locks are checked against what is there before any of them. Where all have been appended before, their
        offsets are told again. Raises GuiltyBatch; nothing has changed.
        """
        judged: list[Ready | Appended] = []
        for place, (partition, records, limits) in enumerate(wanted):
            try:
                judged.append(self._judged(partition, records, limits, produce_version, None))
            except Refused as refused:
                raise GuiltyBatch(place, refused) from None
        new = [each for each in judged if isinstance(each, Ready)]
        if new and len(new) < len(judged):
            place = next(place for place, each in enumerate(judged) if isinstance(each, Appended))
            problem = "this batch has been appended before, others have not"
            raise GuiltyBatch(place, Refused(ErrorCode.INVALID_RECORD, problem))
        try:
            return self._put(new) if new else [each for each in judged if isinstance(each, Appended)]
        except Refused as refused:
            raise GuiltyBatch(0, refused) from None

    def _judged(
        self,
        partition: PartitionLog,
        records: Buffer,
        limits: AppendLimits,
        produce_version: int,
        transactional_id: str | None,
        *,
        verified: bool = False,
        guard: int | None = None,
    ) -> Ready | Appended:
        """The batch as it is to be appended, or where it is already. Raises as `append`."""
        header = header_of(records)
        check(records, header, limits, produce_version)
        if header.attributes & TRANSACTIONAL_FLAG:
            check_transactional(header, transactional_id)
        time_ms = self._clock_ms()
        mode = limits.lockstep_locks
        if header.producer_id >= 0:
            self._require_leader()
            keeps_locks = mode == LOCKS_KEPT
            known = self._check_sequence(partition, header, verified, guard, produce_version, keeps_locks)
            if known != NEW:
                if not limits.log_append_time:
                    return Appended(known, NO_TIMESTAMP)
                return Appended(known, append_time_of(self.group, self.producers, partition, header, known))
        notes = b""
        locks = self.locks
        if mode != LOCKS_IGNORED or (locks is not None and locks.table.partitions):
            notes = self._check_locks(partition, records, header, mode)
        if limits.compression_type != COMPRESSED_AS_SENT:
            sent = records
            records = recompressed(sent, header, limits.compression_type, limits.max_message_bytes)
            header = header if records is sent else read_header(records)
        batch = bytearray(records)
        append_time_ms = NO_TIMESTAMP
        if limits.log_append_time:
            append_time_ms = time_ms
            header.crc = set_log_append_time(batch, time_ms)
            header.max_timestamp = time_ms
        else:
            if header.attributes & LOG_APPEND_TIME_FLAG:
                clear_log_append_time(batch, header)
            before_ms, after_ms = limits.timestamp_before_max_ms, limits.timestamp_after_max_ms
            settle_times(batch, header, before_ms, after_ms, time_ms)
        return Ready(partition, batch, header, notes, append_time_ms)

    def _require_leader(self) -> None:
        """What a former leader remembers is nothing to answer from. Raises Refused."""
        if not self.group.is_leader:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")

    def _check_locks(self, partition: PartitionLog, records: Buffer, header: BatchHeader, mode: str) -> bytes:
        """What is to be noted with the batch."""
        self._require_leader()
        if self.locks is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not serve the partition yet")
        return self.locks.notes(partition, records, header, mode)

    def _put(self, ready: Sequence[Ready]) -> list[Appended]:
        """Append them in one frame. Raises Refused."""
        notes = b"".join([each.notes for each in ready])
        batches = [(each.partition, each.batch, each.header) for each in ready]
        try:
            offsets = self.group.append_together(batches, notes=notes)
        except REFUSALS as error:
            for each in ready:
                self.producers.tried(each.partition.number, each.header)
            raise _refused(error) from None
        return self._noted(ready, offsets, notes)

    def _noted(self, ready: Sequence[Ready], offsets: Sequence[int], notes: bytes) -> list[Appended]:
        """What was appended is known from now on: its locks, its producers."""
        if notes and self.locks is not None:
            self.locks.table.take(notes)
        appended = []
        for each, base_offset in zip(ready, offsets, strict=True):
            if each.header.producer_id >= 0:
                # The log's time, as at replay: a clock set back must not make live producers look expired.
                time_ms = self.group.append_time_ms
                self.producers.record(each.partition.number, each.header, base_offset, time_ms)
            appended.append(Appended(base_offset, each.append_time_ms))
        return appended

    def _check_sequence(
        self,
        partition: PartitionLog,
        header: BatchHeader,
        verified: bool,
        guard: int | None,
        produce_version: int,
        keeps_locks: bool,
    ) -> int:
        try:
            known = self._known(partition, header, keeps_locks)
            begins_late = known == NEW and header.base_sequence > 0 and self.group.is_newly_led
            if begins_late and not self.producers.knows(partition.number, header.producer_id):
                raise _refused_before(f"producer {header.producer_id} begins with {header.base_sequence}")
            if known == NEW and header.is_transactional:
                self._check_verified(partition, header, verified, guard)
            if known == NEW and (
                keeps_locks or (header.is_transactional and produce_version >= STARTS_AT_0_SINCE_PRODUCE)
            ):
                self._check_start(partition, header)
            return known
        except OutOfOrderSequence as error:
            if error.is_ahead and self.group.is_newly_led:
                raise _refused_before(error) from None
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from None
        except StaleProducerEpoch as stale:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, str(stale)) from None
        except NotInTransaction as outside:
            raise Refused(ErrorCode.INVALID_TXN_STATE, str(outside)) from None

    def _known(self, partition: PartitionLog, header: BatchHeader, keeps_locks: bool) -> int:
        try:
            return self.producers.check(partition.number, header)
        except OutOfOrderSequence as error:
            # Clients go on behind a batch that was refused once they have aborted its transaction.
            if (
                keeps_locks
                and error.is_ahead
                and self.producers.has_ended(partition.number, header.producer_id)
            ):
                return NEW
            raise

    def _check_start(self, partition: PartitionLog, header: BatchHeader) -> None:
        """Every transaction of version 2 has an epoch of its own, so whoever is unknown here begins; so does
        everyone where there are locks."""
        if header.base_sequence != 0 and not self.producers.knows(partition.number, header.producer_id):
            raise OutOfOrderSequence(
                f"producer {header.producer_id} is not known here: sequence {header.base_sequence} arrived, "
                "0 expected"
            )

    def _check_verified(
        self, partition: PartitionLog, header: BatchHeader, verified: bool, guard: int | None
    ) -> None:
        """Only the first batch of a transaction in a partition need be verified."""
        producer = self.producers.find(partition.number, header.producer_id)
        if producer is not None and producer.is_open and producer.producer_epoch == header.producer_epoch:
            return
        ended_at = -1 if producer is None else producer.ended_at
        if not verified:
            self.producers.tried(partition.number, header)
            raise Unverified(header.producer_id, header.producer_epoch, ended_at)
        if guard is not None and guard != ended_at:
            raise Overtaken(ended_at)

    def append_own(
        self,
        partition: PartitionLog,
        batch: bytearray,
        header: BatchHeader,
        *,
        verified: bool = False,
        guard: int | None = None,
    ) -> int:
        """Append a transactional batch that a coordinator of this node wrote; it has no sequence.

        Returns its base offset. Raises Refused, Unverified (as `append`) or StorageError.
        """
        if not self.group.is_leader:
            raise NotLeader("this node does not lead the partition")
        try:
            self.producers.check_epoch(partition.number, header)
        except StaleProducerEpoch as error:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from None
        self._check_verified(partition, header, verified, guard)
        base_offset = self.group.append(partition, batch, header)
        self.producers.record(partition.number, header, base_offset, self.group.append_time_ms)
        return base_offset

    def end_transactions(
        self,
        partitions: Sequence[PartitionLog],
        marker: Marker,
        extra: Sequence[tuple[PartitionLog, bytearray, BatchHeader]] = (),
        reserved: bool = True,
    ) -> None:
        """Write the marker to each partition, and the extra batches, in one frame: all of it or nothing.

        Partitions where this very transaction has ended, or that are gone, are left out. `reserved`: may use
        the space that is kept for the group's own, as open transactions must end on a full disk, too.

        Raises:
            Refused: TRANSACTION_COORDINATOR_FENCED or INVALID_PRODUCER_EPOCH; nothing has changed.
            StorageError: nothing has changed.
        """
        if not self.group.is_leader:
            raise NotLeader("this node does not lead the partitions")
        found = self._ends(partitions, marker)
        if not found and not extra:
            return
        offsets = self.group.append_together([*[each.entry for each in found], *extra], reserved=reserved)
        time_ms = self.group.append_time_ms
        note_ends(self.producers, found, offsets, time_ms)
        for (partition, _, own), offset in zip(extra, offsets[len(found) :], strict=True):
            self.producers.record(partition.number, own, offset, time_ms)

    def ready(self, wanted: Wanted, produce_version: int) -> Ready:
        """A batch of no producer that may be appended in this turn, by `end_together`. Raises Refused."""
        self._require_leader()
        judged = self._judged(*wanted, produce_version, None)
        if isinstance(judged, Appended) or judged.header.producer_id >= 0:
            raise Refused(ErrorCode.INVALID_RECORD, "a batch that goes with markers has no producer id")
        return judged

    def end_together(
        self, ends: Sequence[tuple[Marker, Sequence[PartitionLog]]], beside: Ready | None = None
    ) -> Appended | None:
        """Write the markers of several producers, and one batch, in one frame: all of it or nothing.

        Where a transaction has ended, its marker is left out. Returns where the batch is. Raises Refused;
        nothing has changed.
        """
        found = [each for marker, partitions in ends for each in self._ends(partitions, marker)]
        # the batch comes first: its locks were judged, and its offset foretold, with nothing before it
        first = [] if beside is None else [(beside.partition, beside.batch, beside.header)]
        notes = b"" if beside is None else beside.notes
        if not first and not found:
            return None
        batches = [*first, *[each.entry for each in found]]
        try:
            offsets = self.group.append_together(batches, notes=notes, reserved=not first)
        except REFUSALS as error:
            raise _refused(error) from None
        note_ends(self.producers, found, offsets[len(first) :], self.group.append_time_ms)
        return None if beside is None else self._noted([beside], offsets[:1], notes)[0]

    def _ends(self, partitions: Sequence[PartitionLog], marker: Marker) -> list[End]:
        return ends_of(self.producers, self.group.partitions, partitions, marker, self._clock_ms())


def _refused(error: Exception) -> Refused:
    """What the log says no with, as Kafka says it."""
    return Refused(next(code for kind, code in _CODES.items() if isinstance(error, kind)), str(error))


def _refused_before(problem: object) -> Refused:
    """A moment ago this was not the leader: it refused batches before this one, which are on their way again.

    librdkafka takes an epoch of its own for the error that Kafka has for this, and writes batches of other
    partitions twice (librdkafka 4953); asked to come again, it sends both in order.
    """
    text = f"led here only now, batches before this one are missing: {problem}"
    return Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
