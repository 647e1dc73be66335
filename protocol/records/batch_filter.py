"""Opens a batch only as far as its keys, and rebuilds it with fewer records, for compaction and for a player
that sends each target its own records.

Owns: the position of each record of a batch, its key and whether it has a value; and the rebuilt batch. That
keeps base offset, last offset delta, leader epoch and the producer's fields, so that offsets and sequences
stay what they were; count, checksum, length and newest timestamp are its own.

Invariants: a record keeps its bytes, unless the batch gets a delete horizon (KIP-534): then the base
timestamp is that horizon, and every record's timestamp counts from there, in 64 bits that wrap around, so
that impossible times do not prevent the rebuild. Bytes that do not verify yield no batch: MalformedBatch,
DecompressedTooLarge.

Does not: verify the checksum of what it opens (`batch.verify`), decide which records stay.

Source: Kafka's DefaultRecordBatch, MemoryRecords.filterTo; KIP-534.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from lockstep.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Buffer,
    MalformedBatch,
    crc_of,
    read_header,
)
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, compress
from lockstep.protocol.records.record import read_varint, wrap_int64, write_varint

_CRC_AT = 17
MAX_RECORDS = 200_000
"""LIMIT. A batch of a megabyte holds half as many where it is not compressed. A small one that expands
to more would take seconds and gigabytes to read."""


class RecordSpan(NamedTuple):
    """One record: its position in the decompressed batch and the fields that compaction needs."""

    offset: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool
    start: int
    """The position of its length; the record ends at `end`."""
    rest: int
    """The position behind its timestamp."""
    end: int


class OpenedBatch(NamedTuple):
    """A batch, decompressed."""

    header: BatchHeader
    data: memoryview
    spans: list[RecordSpan]


def open_batch(buf: Buffer, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> OpenedBatch:
    """The one batch in `buf`. Raises as `record.iter_records`, whatever headers its records have, and
    MalformedBatch for one of more than `MAX_RECORDS`."""
    return open_body(BatchBody(buf, read_header(buf)), max_decompressed_bytes)


def open_body(body: BatchBody, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> OpenedBatch:
    """The batch of `body`. Raises as `open_batch`."""
    header = body.header
    if header.record_count > MAX_RECORDS:
        raise MalformedBatch(f"{header.record_count} records in a batch, {MAX_RECORDS} are looked at")
    data = memoryview(body.data(max_decompressed_bytes))
    return OpenedBatch(header, data, _read_spans(header, data))


def _read_spans(header: BatchHeader, data: memoryview) -> list[RecordSpan]:
    spans: list[RecordSpan] = []
    at, base_offset = 0, header.base_offset
    try:
        for _ in range(header.record_count):
            start = at
            length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > len(data):
                raise MalformedBatch(f"record of {length} bytes at {at}, {len(data) - at} are left")
            timestamp_delta, rest = read_varint(data, at + 1)
            offset_delta, at = read_varint(data, rest)
            size, at = read_varint(data, at)
            key = None if size < 0 else bytes(data[at : at + size])
            at += max(size, 0)
            size, at = read_varint(data, at)
            if size < -1 or at + max(size, 0) > end or not 0 <= offset_delta <= header.last_offset_delta:
                raise MalformedBatch(f"a record that does not fit its batch at {start}")
            spans.append(
                RecordSpan(base_offset + offset_delta, timestamp_delta, key, size >= 0, start, rest, end)
            )
            at = end
    except IndexError:
        raise MalformedBatch(f"{header.record_count} records announced, the data end before them") from None
    if at != len(data):
        raise MalformedBatch(f"{len(data) - at} bytes after the last record")
    return spans


def keyless_indexes(batch: OpenedBatch) -> list[int]:
    """The indexes of the records without a key."""
    return [at for at, span in enumerate(batch.spans) if span.key is None]


def timestamps(header: BatchHeader, spans: Sequence[RecordSpan]) -> list[int]:
    """The timestamps of these records of a batch."""
    return [wrap_int64(header.base_timestamp + span.timestamp_delta) for span in spans]


def overflowing_timestamps(batch: OpenedBatch) -> list[int]:
    """The indexes of the records whose timestamp has more than 64 bits."""
    base = batch.header.base_timestamp
    stamps = [base + span.timestamp_delta for span in batch.spans]
    return [at for at, stamp in enumerate(stamps) if stamp != wrap_int64(stamp)]


class FilteredBatch(NamedTuple):
    """A batch with some of its records."""

    batch: bytes
    max_timestamp: int


def filter_batch(
    batch: OpenedBatch, kept: Sequence[RecordSpan], horizon_ms: int | None = None
) -> FilteredBatch:
    """Rebuilds the batch with these of its records, at least one, and with a delete horizon, if there is one.

    MalformedBatch where the result is no batch: the horizon, or its length, has too many bits."""
    header = batch.header
    if horizon_ms is None:
        body = b"".join([batch.data[span.start : span.end] for span in kept])
    else:
        body = b"".join(
            [_rebase_record(batch.data, span, header.base_timestamp - horizon_ms) for span in kept]
        )
    newest = header.max_timestamp
    if not header.is_log_append_time:
        newest = max(timestamps(header, kept))
    return FilteredBatch(
        rebuild_batch(header, body, len(kept), newest, Codec(header.codec), horizon_ms), newest
    )


def rebuild_batch(
    header: BatchHeader, body: Buffer, count: int, newest: int, codec: Codec, horizon_ms: int | None = None
) -> bytes:
    """Rebuilds a batch with other records. Raises as `filter_batch`.

    Args:
        header: the former header, whose other fields are kept.
        body: the records, not compressed.
        newest: the largest timestamp among them.
        codec: what to compress them with.
    """
    records = compress(codec, body)
    attributes = header.attributes & ~CODEC_MASK | codec
    try:
        packed = HEADER.pack(
            header.base_offset,
            BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES + len(records),
            header.leader_epoch,
            header.magic,
            0,
            attributes if horizon_ms is None else attributes | DELETE_HORIZON_FLAG,
            header.last_offset_delta,
            header.base_timestamp if horizon_ms is None else horizon_ms,
            newest,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            count,
        )
    except struct.error as error:
        raise MalformedBatch(f"batch {header.base_offset} cannot be made again: {error}") from None
    batch = bytearray(packed)
    batch += records
    batch[_CRC_AT : _CRC_AT + 4] = crc_of(batch, 0, len(batch)).to_bytes(4, "big")
    return bytes(batch)


def replace_value(data: memoryview, start: int, end: int, value: bytes | None) -> bytes:
    """The record from `start` to `end` with another value, and all else as it was."""
    _, body_at = read_varint(data, start)
    _, at = read_varint(data, body_at + 1)
    _, at = read_varint(data, at)
    key_bytes, at = read_varint(data, at)
    value_at = at + max(key_bytes, 0)
    value_bytes, at = read_varint(data, value_at)
    body = bytearray(data[body_at:value_at])
    write_varint(body, -1 if value is None else len(value))
    body += value or b""
    body += data[at + max(value_bytes, 0) : end]
    record = bytearray()
    write_varint(record, len(body))
    return bytes(record + body)


def _rebase_record(data: memoryview, span: RecordSpan, by_ms: int) -> bytes:
    """A record whose timestamp counts from another base."""
    body = bytearray(1)
    write_varint(body, wrap_int64(span.timestamp_delta + by_ms))
    body += data[span.rest : span.end]
    record = bytearray()
    write_varint(record, len(body))
    return bytes(record + body)
