"""Validates that a Produce request's bytes are one batch a client may write: shape, checksum, counts, codec.

Only the header is read, and the CRC-32C counted; records are opened for a compacted topic, which requires
keys, and for one that limits their size. Does not: know the log; the appender checks sequences, open
transactions, locks and times (`broker/produce/appender.py`).

Source: Kafka's ProduceRequest.validateRecords and LogValidator for the errors.
"""

from __future__ import annotations

from typing import Final, Protocol

from lockstep.broker.produce.record_keys import check_keys
from lockstep.broker.produce.record_sizes import check_record_sizes
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_FLAG,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    CorruptBatch,
    MalformedBatch,
    read_header,
    verify,
)
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.compression import Codec
from lockstep.storage.types import Buffer

ZSTD_MIN_PRODUCE_VERSION: Final = 7
"""Older Produce versions may not carry zstd (KIP-110)."""
MAGIC_POSITION: Final = 16
MIN_RECORD_BYTES: Final = 7
"""A record without key, value and headers."""


class AppendLimits(Protocol):
    """The parts of a topic's configuration that limit its batches."""

    @property
    def is_compacted(self) -> bool:
        """True if every record needs a key."""

    @property
    def compression_type(self) -> str:
        """A codec, or COMPRESSED_AS_SENT."""

    @property
    def lockstep_locks(self) -> str:
        """LOCKS_KEPT, LOCKS_REJECTED or LOCKS_IGNORED."""

    @property
    def max_message_bytes(self) -> int:
        """The largest batch."""

    @property
    def max_decompressed_message_bytes(self) -> int:
        """The largest record of a compressed batch."""

    @property
    def log_append_time(self) -> bool:
        """True if records get the broker's time, not the producer's."""

    @property
    def timestamp_before_max_ms(self) -> int:
        """The furthest that a record's time may lie behind the broker's clock."""

    @property
    def timestamp_after_max_ms(self) -> int:
        """The furthest that it may lie ahead."""


def header_of(records: Buffer) -> BatchHeader:
    """The header of the one batch that `records` is. Raises RequestError."""
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < 2:
        raise RequestError(
            ErrorCode.INVALID_RECORD,
            f"message format {records[MAGIC_POSITION]} is no longer accepted; record batches have 2",
        )
    try:
        header = read_header(records)
    except MalformedBatch as error:
        raise RequestError(_code_of_malformed(records), str(error)) from None
    if header.total_bytes != len(records):
        raise RequestError(
            ErrorCode.INVALID_RECORD,
            f"{len(records)} bytes of records, one batch of {header.total_bytes}: exactly one is allowed",
        )
    return header


def _code_of_malformed(records: Buffer) -> ErrorCode:
    """Kafka's error for a malformed batch: CORRUPT_MESSAGE, which a client retries, or INVALID_RECORD for a
    truncated batch or wrong counts, which it does not."""
    if len(records) < BATCH_HEADER_BYTES:
        return ErrorCode.INVALID_RECORD
    length = int.from_bytes(records[8:12], "big", signed=True)
    if length + LENGTH_PREFIX_BYTES < BATCH_HEADER_BYTES or records[MAGIC_POSITION] != 2:
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.INVALID_RECORD


def check(body: BatchBody, limits: AppendLimits, produce_version: int) -> None:
    """Check that a client may write the batch to a topic with these limits. Raises RequestError."""
    records, header = body.buf, body.header
    total_bytes, record_count, attributes = len(records), header.record_count, header.attributes
    if total_bytes > limits.max_message_bytes:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {total_bytes} bytes; max.message.bytes is {limits.max_message_bytes}",
        )
    try:
        verify(records, 0, header)
    except CorruptBatch as error:
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if record_count < 1 or header.last_offset_delta != record_count - 1:
        raise RequestError(
            ErrorCode.INVALID_RECORD,
            f"{record_count} records whose last offset delta is {header.last_offset_delta}",
        )
    codec = attributes & CODEC_MASK
    if codec == Codec.NONE:
        available = (total_bytes - BATCH_HEADER_BYTES) // MIN_RECORD_BYTES
        if record_count > available:
            raise RequestError(
                ErrorCode.INVALID_RECORD, f"{record_count} records in a batch with room for {available}"
            )
    if limits.is_compacted:
        check_keys(body, limits.log_append_time)
    if header.base_offset != 0:
        raise RequestError(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset}; a producer's is 0")
    if attributes & CONTROL_FLAG:
        raise RequestError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if codec > Codec.ZSTD:
        raise RequestError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {codec}")
    if codec == Codec.ZSTD and produce_version < ZSTD_MIN_PRODUCE_VERSION:
        raise RequestError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_MIN_PRODUCE_VERSION} or later"
        )
    check_record_sizes(body, limits.max_decompressed_message_bytes)
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise RequestError(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}",
        )


def check_transactional(header: BatchHeader, transactional_id: str | None) -> None:
    """Check a transactional batch against the transactional id of its request. Raises RequestError."""
    if transactional_id is None:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        raise RequestError(error, "a transactional batch in a request without a transactional id")
    if header.producer_id < 0:
        raise RequestError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")
