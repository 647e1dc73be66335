"""The append path of a Produce batch: validate, check sequences, append to the log.

Work is per batch: one header read and one CRC-32C (`broker/produce/batch_validation.py`), one copy out of the
receive buffer; records are opened only where a topic is compacted, limits their size, has locks
(`broker/locks/`), or where its times require it (`broker/produce/batch_times.py`). An error changes nothing:
no offset, no sequence. An appended batch, or a duplicate of one, may be acknowledged only after the group's
next `when_committed`.

A transactional batch begins a transaction in its partition only after its coordinator has verified the
partition (`VerificationRequired`); a transaction ends in all partitions of the group at once, by the markers
that `broker/produce/marker_batches.py` builds.

Source: Kafka's UnifiedLog for which error is returned when; KIP-98 and KIP-890 for transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from lockstep.broker.locks.lock_check import LockChecks
from lockstep.broker.produce.append_result import (
    AppendResult,
    Unverified,
    VerificationGuardMismatch,
    VerificationRequired,
)
from lockstep.broker.produce.batch_times import validate_timestamps
from lockstep.broker.produce.batch_validation import AppendLimits, check, check_transactional, header_of
from lockstep.broker.produce.duplicate_append_time import append_time_of_duplicate
from lockstep.broker.produce.marker_batches import (
    MarkerBatch,
    TxnMarkerEntry,
    build_marker_batches,
    record_appended_markers,
)
from lockstep.broker.produce.producer_state import (
    NEW,
    NotInTransaction,
    OutOfOrderSequence,
    ProducerState,
    StaleProducerEpoch,
)
from lockstep.broker.produce.recompression import recompress
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.config import COMPRESSED_AS_SENT
from lockstep.broker.settings.topic_config import LOCKS_IGNORED, LOCKS_KEPT
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import (
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    clear_log_append_time,
    read_header,
    set_log_append_time,
)
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Backlogged, BatchTooLarge, Buffer, NotLeader, StorageFull, WriteFailed

if TYPE_CHECKING:
    from lockstep.storage.log_group import LogGroup

STARTS_AT_0_MIN_PRODUCE_VERSION: Final = 12
"""Producers of transaction version 2 speak this or later, and begin with sequence 0 (KIP-890)."""
APPEND_ERRORS: Final = (StorageFull, WriteFailed, BatchTooLarge, NotLeader, Backlogged)
"""The errors with which a log group rejects an append."""
_CODES: Final[dict[type[Exception], ErrorCode]] = {
    StorageFull: ErrorCode.KAFKA_STORAGE_ERROR,
    WriteFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Backlogged: ErrorCode.REQUEST_TIMED_OUT,
}


class ValidatedBatch:
    """A batch that may be appended: its bytes, owned by the log from now on, its header and its lock
    updates."""

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


AppendRequest = tuple[PartitionLog, Buffer, AppendLimits]
"""One of several batches to be appended together."""


class BatchRejected:
    """The error for which several batches were not appended together; `index` is the rejected batch."""

    __slots__ = ("error", "index")

    def __init__(self, index: int, error: RequestError) -> None:
        self.index = index
        self.error = error


class Appender:
    """The append path into one log group."""

    def __init__(self, group: LogGroup, producers: ProducerState, clock_ms: Callable[[], int]) -> None:
        self.group = group
        self.producers = producers
        self.locks: LockChecks | None = None
        """None before clients are served."""
        self.clock_ms = clock_ms

    def append(
        self, partition: PartitionLog, records: Buffer, limits: AppendLimits, produce_version: int
    ) -> AppendResult:
        """Append the one batch in `records`, which is copied and not transactional.

        Raises:
            RequestError: nothing has changed.
        """
        validated = self._validate(partition, records, limits, produce_version, None)
        if isinstance(validated, AppendResult):
            return validated
        assert isinstance(validated, ValidatedBatch), "only a transactional batch is verified"
        return self._append_validated(validated)

    def append_transactional(
        self,
        partition: PartitionLog,
        records: Buffer,
        limits: AppendLimits,
        produce_version: int,
        transactional_id: str,
        *,
        verified: bool = False,
        guard: int | None = None,
    ) -> AppendResult | Unverified:
        """Append the one batch in `records`, of a request with a transactional id, like `append`.

        Args:
            verified: the coordinator has confirmed that this partition is part of the transaction.
            guard: the guard of the `Unverified` result that started the verification.
        """
        validated = self._validate(
            partition, records, limits, produce_version, transactional_id, verified=verified, guard=guard
        )
        return self._append_validated(validated) if isinstance(validated, ValidatedBatch) else validated

    def _append_validated(self, validated: ValidatedBatch) -> AppendResult:
        if validated.notes:
            return self._append_together([validated])[0]
        header, group, partition = validated.header, self.group, validated.partition
        try:
            base_offset = group.append(partition, validated.batch, header)
        except APPEND_ERRORS as error:
            self.producers.track_lowest_sequence(partition.local_id, header)
            raise _log_error(error) from None
        if header.producer_id >= 0:
            self.producers.record(partition.local_id, header, base_offset, group.append_time_ms)
        return AppendResult(base_offset, validated.append_time_ms)

    def append_atomically(
        self, requests: Iterable[AppendRequest], produce_version: int
    ) -> list[AppendResult] | BatchRejected:
        """Append one batch to each of several partitions of the group, in one frame: all of them or none.

        Locks are checked against the log without these batches. If all are duplicates, their offsets are
        returned again. After BatchRejected nothing has changed. Raises what `requests` raises.
        """
        checked: list[ValidatedBatch | AppendResult] = []
        for index, (partition, records, limits) in enumerate(requests):
            try:
                validated = self._validate(partition, records, limits, produce_version, None)
            except RequestError as error:
                return BatchRejected(index, error)
            assert isinstance(validated, ValidatedBatch | AppendResult), "no batch is transactional"
            checked.append(validated)
        new = [each for each in checked if isinstance(each, ValidatedBatch)]
        if new and len(new) < len(checked):
            index = next(index for index, each in enumerate(checked) if isinstance(each, AppendResult))
            problem = "this batch has been appended before, others have not"
            return BatchRejected(index, RequestError(ErrorCode.INVALID_RECORD, problem))
        try:
            return (
                self._append_together(new)
                if new
                else [each for each in checked if isinstance(each, AppendResult)]
            )
        except RequestError as error:
            return BatchRejected(0, error)

    def _validate(
        self,
        partition: PartitionLog,
        records: Buffer,
        limits: AppendLimits,
        produce_version: int,
        transactional_id: str | None,
        *,
        verified: bool = False,
        guard: int | None = None,
    ) -> ValidatedBatch | AppendResult | Unverified:
        """The validated batch, or the result of its earlier append. Raises as `append`."""
        header = header_of(records)
        body = BatchBody(records, header)
        check(body, limits, produce_version)
        if header.attributes & TRANSACTIONAL_FLAG:
            check_transactional(header, transactional_id)
        time_ms = self.clock_ms()
        mode = limits.lockstep_locks
        if header.producer_id >= 0:
            self._require_leader()
            keeps_locks = mode == LOCKS_KEPT
            duplicate_offset = self._check_sequence(
                partition, header, verified, guard, produce_version, keeps_locks
            )
            if duplicate_offset != NEW:
                if not isinstance(duplicate_offset, int):
                    return duplicate_offset
                if not limits.log_append_time:
                    return AppendResult(duplicate_offset, NO_TIMESTAMP)
                return AppendResult(
                    duplicate_offset,
                    append_time_of_duplicate(self.group, self.producers, partition, header, duplicate_offset),
                )
        notes = b""
        locks = self.locks
        if mode != LOCKS_IGNORED or (locks is not None and locks.table.partitions):
            notes = self._check_locks(partition, body, mode)
        if limits.compression_type != COMPRESSED_AS_SENT:
            records = recompress(body, limits.compression_type, limits.max_message_bytes)
            header = header if records is body.buf else read_header(records)
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
            validate_timestamps(batch, header, body, before_ms, after_ms, time_ms)
        return ValidatedBatch(partition, batch, header, notes, append_time_ms)

    def _require_leader(self) -> None:
        """A former leader's producer state may be stale, so only the leader checks it. Raises
        RequestError."""
        if not self.group.is_leader:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")

    def _check_locks(self, partition: PartitionLog, body: BatchBody, mode: str) -> bytes:
        """The lock updates of the batch. Raises RequestError for a conflict."""
        self._require_leader()
        if self.locks is None:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not serve the partition yet")
        return self.locks.check_and_encode(partition, body, mode)

    def _append_together(self, validated: Sequence[ValidatedBatch]) -> list[AppendResult]:
        """Append them in one frame. Raises RequestError."""
        notes = b"".join([each.notes for each in validated])
        batches = [(each.partition, each.batch, each.header) for each in validated]
        try:
            offsets = self.group.append_together(batches, notes=notes)
        except APPEND_ERRORS as error:
            for each in validated:
                self.producers.track_lowest_sequence(each.partition.local_id, each.header)
            raise _log_error(error) from None
        return self._record_appended(validated, offsets, notes)

    def _record_appended(
        self, validated: Sequence[ValidatedBatch], offsets: Sequence[int], notes: bytes
    ) -> list[AppendResult]:
        """Apply the lock updates and the producer states of batches that were just appended."""
        if notes and self.locks is not None:
            self.locks.table.take(notes)
        appended = []
        for each, base_offset in zip(validated, offsets, strict=True):
            if each.header.producer_id >= 0:
                # The log's time, as at replay: a clock set back must not make live producers look expired.
                time_ms = self.group.append_time_ms
                self.producers.record(each.partition.local_id, each.header, base_offset, time_ms)
            appended.append(AppendResult(base_offset, each.append_time_ms))
        return appended

    def _check_sequence(
        self,
        partition: PartitionLog,
        header: BatchHeader,
        verified: bool,
        guard: int | None,
        produce_version: int,
        keeps_locks: bool,
    ) -> int | Unverified:
        """The offset of a duplicate, NEW, or that the batch is to be verified. Raises RequestError."""
        try:
            duplicate_offset = self._check_duplicate(partition, header, keeps_locks)
            starts_late = duplicate_offset == NEW and header.base_sequence > 0 and self.group.is_newly_led
            if starts_late and not self.producers.knows(partition.local_id, header.producer_id):
                raise _earlier_batches_missing(
                    f"producer {header.producer_id} starts with sequence {header.base_sequence}"
                )
            if duplicate_offset == NEW and header.is_transactional:
                unverified = self._check_verified(partition, header, verified, guard)
                if unverified is not None:
                    return unverified
            if duplicate_offset == NEW and (
                keeps_locks
                or (header.is_transactional and produce_version >= STARTS_AT_0_MIN_PRODUCE_VERSION)
            ):
                self._check_start(partition, header)
            return duplicate_offset
        except OutOfOrderSequence as error:
            if error.is_ahead and self.group.is_newly_led:
                raise _earlier_batches_missing(error) from None
            raise RequestError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from None
        except StaleProducerEpoch as stale:
            raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, str(stale)) from None
        except NotInTransaction as outside:
            raise RequestError(ErrorCode.INVALID_TXN_STATE, str(outside)) from None

    def _check_duplicate(self, partition: PartitionLog, header: BatchHeader, keeps_locks: bool) -> int:
        try:
            return self.producers.check(partition.local_id, header)
        except OutOfOrderSequence as error:
            # Clients continue behind a batch that was rejected once they have aborted its transaction.
            if (
                keeps_locks
                and error.is_ahead
                and self.producers.has_newest_marker(partition.local_id, header.producer_id)
            ):
                return NEW
            raise

    def _check_start(self, partition: PartitionLog, header: BatchHeader) -> None:
        """An unknown producer must start with sequence 0: each transaction of version 2 has its own epoch,
        and a topic with locks requires it of all."""
        if header.base_sequence != 0 and not self.producers.knows(partition.local_id, header.producer_id):
            raise OutOfOrderSequence(
                f"producer {header.producer_id} is not known here: sequence {header.base_sequence} arrived, "
                "0 expected"
            )

    def _check_verified(
        self, partition: PartitionLog, header: BatchHeader, verified: bool, guard: int | None
    ) -> Unverified | None:
        """Only the first batch of a transaction in a partition need be verified."""
        producer = self.producers.find(partition.local_id, header.producer_id)
        if producer is not None and producer.is_open and producer.producer_epoch == header.producer_epoch:
            return None
        ended_at = -1 if producer is None else producer.ended_at
        if not verified:
            self.producers.track_lowest_sequence(partition.local_id, header)
            return VerificationRequired(header.producer_id, header.producer_epoch, ended_at)
        if guard is not None and guard != ended_at:
            return VerificationGuardMismatch(ended_at)
        return None

    def append_coordinator_batch(
        self,
        partition: PartitionLog,
        batch: bytearray,
        header: BatchHeader,
        *,
        verified: bool = False,
        guard: int | None = None,
    ) -> int | Unverified:
        """Append a transactional batch that a coordinator of this node wrote; it has no sequence.

        Returns its base offset. Raises RequestError or StorageError.
        """
        if not self.group.is_leader:
            raise NotLeader("this node does not lead the partition")
        try:
            self.producers.check_epoch(partition.local_id, header)
        except StaleProducerEpoch as error:
            raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from None
        unverified = self._check_verified(partition, header, verified, guard)
        if unverified is not None:
            return unverified
        base_offset = self.group.append(partition, batch, header)
        self.producers.record(partition.local_id, header, base_offset, self.group.append_time_ms)
        return base_offset

    def end_transactions(
        self,
        partitions: Sequence[PartitionLog],
        marker: TxnMarkerEntry,
        extra: Sequence[tuple[PartitionLog, bytearray, BatchHeader]] = (),
        reserved: bool = True,
    ) -> None:
        """Write the marker to each partition, and the extra batches, in one frame: all of it or nothing.

        Partitions where this very transaction has ended, or that are gone, are left out. `reserved`: may use
        the space that is kept for the group's own, as open transactions must end on a full disk, too.

        Raises:
            RequestError: TRANSACTION_COORDINATOR_FENCED or INVALID_PRODUCER_EPOCH; nothing has changed.
            StorageError: nothing has changed.
        """
        if not self.group.is_leader:
            raise NotLeader("this node does not lead the partitions")
        markers = self._markers_of(partitions, marker)
        if not markers and not extra:
            return
        offsets = self.group.append_together([*[each.entry for each in markers], *extra], reserved=reserved)
        time_ms = self.group.append_time_ms
        record_appended_markers(self.producers, markers, offsets, time_ms)
        for (partition, _, own_header), offset in zip(extra, offsets[len(markers) :], strict=True):
            self.producers.record(partition.local_id, own_header, offset, time_ms)

    def validate_for_markers(self, request: AppendRequest, produce_version: int) -> ValidatedBatch:
        """Validate a batch without a producer id for `end_several`. Raises RequestError."""
        self._require_leader()
        checked = self._validate(*request, produce_version, None)
        if not isinstance(checked, ValidatedBatch) or checked.header.producer_id >= 0:
            raise RequestError(ErrorCode.INVALID_RECORD, "a batch that goes with markers has no producer id")
        return checked

    def end_several(
        self,
        ends: Sequence[tuple[TxnMarkerEntry, Sequence[PartitionLog]]],
        batch: ValidatedBatch | None = None,
    ) -> AppendResult | None:
        """Write the markers of several producers, and one batch, in one frame: all of it or nothing.

        A transaction that has ended gets no marker. Returns the batch's result. Raises RequestError; then
        nothing has changed.
        """
        markers = [each for marker, partitions in ends for each in self._markers_of(partitions, marker)]
        # the batch comes first: its locks were checked, and its offset computed, with nothing before it
        first = [] if batch is None else [(batch.partition, batch.batch, batch.header)]
        notes = b"" if batch is None else batch.notes
        if not first and not markers:
            return None
        batches = [*first, *[each.entry for each in markers]]
        try:
            offsets = self.group.append_together(batches, notes=notes, reserved=not first)
        except APPEND_ERRORS as error:
            raise _log_error(error) from None
        record_appended_markers(self.producers, markers, offsets[len(first) :], self.group.append_time_ms)
        return None if batch is None else self._record_appended([batch], offsets[:1], notes)[0]

    def _markers_of(self, partitions: Sequence[PartitionLog], marker: TxnMarkerEntry) -> list[MarkerBatch]:
        return build_marker_batches(
            self.producers, self.group.partitions, partitions, marker, self.clock_ms()
        )


def _log_error(error: Exception) -> RequestError:
    """Kafka's error for an error of the log group."""
    return RequestError(next(code for kind, code in _CODES.items() if isinstance(error, kind)), str(error))


def _earlier_batches_missing(problem: object) -> RequestError:
    """This node became the leader just now and rejected batches before this one, which the client resends.

    librdkafka raises its epoch after the error that Kafka has for this, and writes batches of other
    partitions twice (librdkafka 4953); after NOT_LEADER_OR_FOLLOWER it sends all in order.
    """
    text = f"this node became the leader just now and batches before this one are missing: {problem}"
    return RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
