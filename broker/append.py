"""From a Produce request's bytes to a batch in the log: validate, check sequences, append.

Work is per batch: one header read, one CRC-32C, one copy out of the receive buffer; no record is opened.
A refusal changes nothing: no offset, no sequence. What was appended, or found to be there already, may be
acknowledged only after the group's next `when_committed`.

Source: Kafka's ProduceRequest.validateRecords, LogValidator and UnifiedLog for which error answers what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.producer_state import NEW, OutOfOrderSequence, ProducerState, StaleProducerEpoch
from broker.refused import Refused
from protocol.errors import ErrorCode
from protocol.records.batch import (
    BATCH_HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    CorruptBatch,
    MalformedBatch,
    clear_log_append_time,
    read_header,
    set_log_append_time,
    verify,
)
from protocol.records.compression import Codec
from storage.group import Backlogged, BatchTooLarge, LogGroup
from storage.partition import PartitionLog
from storage.types import Buffer, NotLeader, StorageFull

ZSTD_SINCE_PRODUCE: Final = 7
"""Older Produce versions may not carry zstd (KIP-110)."""
NO_TIMESTAMP: Final = -1
MAGIC_AT: Final = 16
LEAST_RECORD_BYTES: Final = 7
"""A record without key, value and headers."""


class AppendLimits(Protocol):
    """What a topic's configuration says about its batches."""

    @property
    def max_message_bytes(self) -> int: ...
    @property
    def log_append_time(self) -> bool: ...
    @property
    def timestamp_before_max_ms(self) -> int: ...
    @property
    def timestamp_after_max_ms(self) -> int: ...


class Appended:
    """Where a batch is: just appended, or there since an earlier try of the same producer."""

    __slots__ = ("base_offset", "log_append_time_ms")

    def __init__(self, base_offset: int, log_append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms


class Appender:
    """The append path into one log group."""

    def __init__(self, group: LogGroup, producers: ProducerState, clock_ms: Callable[[], int]) -> None:
        self.group = group
        self.producers = producers
        self._clock_ms = clock_ms

    def append(
        self, partition: PartitionLog, records: Buffer, limits: AppendLimits, produce_version: int
    ) -> Appended:
        """Append the one batch in `records`, which is copied. Raises Refused; then nothing has changed."""
        header = _read(records)
        _validate(records, header, limits, produce_version)
        time_ms = self._clock_ms()
        if header.producer_id >= 0:
            known = self._check_sequence(partition, header)
            if known != NEW:
                return Appended(known, NO_TIMESTAMP)
        batch = bytearray(records)
        append_time_ms = NO_TIMESTAMP
        if limits.log_append_time:
            append_time_ms = time_ms
            header.crc = set_log_append_time(batch, time_ms)
            header.max_timestamp = time_ms
        else:
            _check_timestamp(header, limits, time_ms)
            if header.is_log_append_time:
                clear_log_append_time(batch, header)
        try:
            base_offset = self.group.append(partition, batch, header)
        except StorageFull as full:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(full)) from None
        except BatchTooLarge as error:
            raise Refused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
        except NotLeader as error:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from None
        except Backlogged as error:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, str(error)) from None
        if header.producer_id >= 0:
            # The log's time, as at replay: a clock set back must not make live producers look expired.
            self.producers.record(partition.number, header, base_offset, max(time_ms, self.group.time_ms))
        return Appended(base_offset, append_time_ms)

    def _check_sequence(self, partition: PartitionLog, header: BatchHeader) -> int:
        try:
            return self.producers.check(partition.number, header)
        except OutOfOrderSequence as error:
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from None
        except StaleProducerEpoch as error:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from None


def _read(records: Buffer) -> BatchHeader:
    if len(records) > MAGIC_AT and records[MAGIC_AT] < 2:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"message format {records[MAGIC_AT]} is no longer accepted; record batches have 2",
        )
    try:
        header = read_header(records)
    except MalformedBatch as error:
        raise Refused(_code_of_malformed(records), str(error)) from None
    if header.total_bytes != len(records):
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"{len(records)} bytes of records, one batch of {header.total_bytes}: exactly one is allowed",
        )
    return header


def _code_of_malformed(records: Buffer) -> ErrorCode:
    """As Kafka: a batch that cannot be one is corrupt, which a client sends again; one that is cut, or whose
    counts are wrong, is invalid, which it does not."""
    if len(records) < BATCH_HEADER_BYTES:
        return ErrorCode.INVALID_RECORD
    length = int.from_bytes(records[8:12], "big", signed=True)
    if length + LENGTH_PREFIX_BYTES < BATCH_HEADER_BYTES or records[MAGIC_AT] != 2:
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.INVALID_RECORD


def _validate(records: Buffer, header: BatchHeader, limits: AppendLimits, produce_version: int) -> None:
    if header.total_bytes > limits.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.total_bytes} bytes; max.message.bytes is {limits.max_message_bytes}",
        )
    try:
        verify(records, 0, header)
    except CorruptBatch as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records whose last offset delta is {header.last_offset_delta}",
        )
    if header.codec == Codec.NONE:
        room = (header.total_bytes - BATCH_HEADER_BYTES) // LEAST_RECORD_BYTES
        if header.record_count > room:
            raise Refused(
                ErrorCode.INVALID_RECORD, f"{header.record_count} records in a batch with room for {room}"
            )
    if header.base_offset != 0:
        raise Refused(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset}; a producer's is 0")
    if header.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.is_transactional:
        raise Refused(ErrorCode.INVALID_TXN_STATE, "this broker does not serve transactions yet")
    if header.codec > Codec.ZSTD:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {header.codec}")
    if header.codec == Codec.ZSTD and produce_version < ZSTD_SINCE_PRODUCE:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_SINCE_PRODUCE} or later"
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}",
        )


def _check_timestamp(header: BatchHeader, limits: AppendLimits, time_ms: int) -> None:
    newest = header.max_timestamp
    if newest == NO_TIMESTAMP:
        return
    if newest - time_ms > limits.timestamp_after_max_ms or (
        time_ms - newest > limits.timestamp_before_max_ms
    ):
        raise Refused(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {newest} is out of range: the broker's clock says {time_ms}",
        )
