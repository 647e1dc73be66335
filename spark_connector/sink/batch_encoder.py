"""Rows to record batches: the bytes of Kafka's format 2, a batch at a time.

Owns: `bodies`, which cuts a partition's rows into batches of a bounded size, and `build_batch`. Pure.
Invariants: rows keep their order; a batch has at least one record, and more than `batch_bytes` only where a
single record is larger. Its records have the bytes that `lockstep.protocol.records.record.BatchBuilder`
writes. Does not: choose partitions, or know producers: `build_batch` gets one. Source: KIP-98 (format 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lockstep.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    CURRENT_MAGIC,
    LENGTH_PREFIX_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_of,
)
from lockstep.protocol.records.compression import Codec, compress
from lockstep.protocol.records.record import write_varint

Headers = Sequence[tuple[str, bytes | None]]

NO_EPOCH: Final = -1
_CRC_AT: Final = 17
_MAX_LENGTH_BYTES: Final = 5
_MAX_HEAD_BYTES: Final = 32
"""The most bytes of a record's length, and of all its fields beside key, value and headers."""


def varint(number: int) -> bytes:
    """Encodes a zigzag varint, as in records."""
    if 0 <= number < len(_VARINTS):
        return _VARINTS[number]
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


def _small_varints() -> list[bytes]:
    found = []
    for number in range(4096):
        out = bytearray()
        write_varint(out, number)
        found.append(bytes(out))
    return found


_VARINTS: Final = _small_varints()


class Body(NamedTuple):
    """The records of one batch, and their fields of its header."""

    data: bytes
    record_count: int
    base_timestamp: int
    max_timestamp: int


def bodies(
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    headers: Sequence[Headers | None] | None,
    timestamps: Sequence[int] | int,
    batch_bytes: int,
) -> Iterator[Body]:
    """The rows as bodies of batches, in order.

    Args:
        keys, headers: None where no row has any.
        timestamps: in milliseconds, or one for all.
        batch_bytes: the size at which a batch ends.
    """
    if keys is None and headers is None and isinstance(timestamps, int):
        yield from _values_alone(values, timestamps, batch_bytes)
        return
    first, size = 0, 0
    pieces: list[bytes] = []
    base = newest = 0
    for row, value in enumerate(values):
        stamp = timestamps if isinstance(timestamps, int) else timestamps[row]
        key = None if keys is None else keys[row]
        rest = _nullable(key) + _nullable(value) + _headers(None if headers is None else headers[row])
        if pieces and size + len(rest) + _MAX_HEAD_BYTES > batch_bytes:
            yield Body(b"".join(pieces), row - first, base, newest)
            first, size, pieces = row, 0, []
        if not pieces:
            base = newest = stamp
        body = b"".join((b"\0", varint(stamp - base), varint(row - first), rest))
        newest = max(newest, stamp)
        pieces += (varint(len(body)), body)
        size += len(body) + _MAX_LENGTH_BYTES
    if pieces:
        yield Body(b"".join(pieces), len(values) - first, base, newest)


def _values_alone(values: Sequence[bytes | None], timestamp: int, batch_bytes: int) -> Iterator[Body]:
    """`bodies` for rows that are values alone, of one time: the usual case, in half the time."""
    first, size = 0, 0
    pieces: list[bytes] = []
    small, known = _VARINTS, len(_VARINTS)
    for row, value in enumerate(values):
        length = 0 if value is None else len(value)
        if pieces and size + length + _MAX_HEAD_BYTES > batch_bytes:
            yield Body(b"".join(pieces), row - first, timestamp, timestamp)
            first, size, pieces = row, 0, []
        delta = row - first
        at = small[delta] if delta < known else varint(delta)
        if value is None:
            pieces += (varint(len(at) + 5), b"\0\0", at, b"\1\1\0")
            size += _MAX_HEAD_BYTES
            continue
        value_length = small[length] if length < known else varint(length)
        total = len(at) + len(value_length) + length + 4
        pieces += (
            small[total] if total < known else varint(total),
            b"\0\0",
            at,
            b"\1",
            value_length,
            value,
            b"\0",
        )
        size += total + _MAX_LENGTH_BYTES
    if pieces:
        yield Body(b"".join(pieces), len(values) - first, timestamp, timestamp)


def build_batch(
    body: Body, producer_id: int, producer_epoch: int, base_sequence: int, codec: Codec = Codec.NONE
) -> bytes:
    """Builds the whole batch with its checksum; a transactional one where there is a producer."""
    data = compress(codec, body.data) if codec else body.data
    header = BatchHeader(
        0,
        BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES + len(data),
        NO_EPOCH,
        CURRENT_MAGIC,
        0,
        int(codec) | (TRANSACTIONAL_FLAG if producer_id >= 0 else 0),
        body.record_count - 1,
        body.base_timestamp,
        body.max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        body.record_count,
    )
    batch = bytearray(header.pack())
    batch += data
    batch[_CRC_AT : _CRC_AT + 4] = crc_of(batch, 0, len(batch)).to_bytes(4, "big")
    return bytes(batch)


def _nullable(data: bytes | None) -> bytes:
    return b"\1" if data is None else varint(len(data)) + data


def _headers(headers: Headers | None) -> bytes:
    if not headers:
        return b"\0"
    pieces = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        pieces += (varint(len(encoded)), encoded, _nullable(value))
    return b"".join(pieces)
