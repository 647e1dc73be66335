"""Kafka requests and record batches made by hand: what no client library would send.

Owns: record batches built field by field so that each may lie, a Produce request around them, and a reader of
fetched batches. Deliberately independent of Lockstep's own codec, so that a fault there is not repeated here.
Connections and honest requests are `compat_tests.raw`'s. Sources: Kafka's protocol guide; KIP-98 (batch v2).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

import crc32c

PRODUCE = 0
_BATCH_TAIL = struct.Struct(">hiqqqhii")


def varint(value: int) -> bytes:
    """Zigzag varint, as inside records."""
    return uvarint((value << 1) ^ (value >> 63))


def uvarint(value: int) -> bytes:
    """Unsigned varint, as in flexible messages; negative values are taken as 64-bit patterns."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text: str | bytes) -> bytes:
    """INT16 length and bytes."""
    octets = text.encode() if isinstance(text, str) else text
    return struct.pack(">h", len(octets)) + octets


def header(api_key: int, api_version: int, *, correlation_id: int = 1, client_id: str = "campaign") -> bytes:
    """Request header v1 (non-flexible)."""
    return struct.pack(">hhi", api_key, api_version, correlation_id) + string(client_id)


def record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """One record of batch v2, without headers."""

    def field(octets: bytes | None) -> bytes:
        return varint(-1) if octets is None else varint(len(octets)) + octets

    body = b"\0" + varint(0) + varint(offset_delta) + field(key) + field(value) + varint(0)
    return varint(len(body)) + body


def batch(
    records: bytes,
    count: int,
    *,
    base_offset: int = 0,
    magic: int = 2,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    length_error: int = 0,
    crc_error: int = 0,
) -> bytes:
    """A v2 batch around (possibly compressed) `records`; every claim of its header can be made to lie."""
    when = int(time.time() * 1000) if timestamp is None else timestamp
    last = count - 1 if last_offset_delta is None else last_offset_delta
    tail = (
        _BATCH_TAIL.pack(attributes, last, when, when, producer_id, producer_epoch, base_sequence, count)
        + records
    )
    crc = crc32c.crc32c(tail) ^ crc_error
    length = 9 + len(tail) + length_error
    return struct.pack(">qiibI", base_offset, length & 0x7FFFFFFF, -1, magic, crc) + tail


def values_batch(values: Sequence[bytes]) -> bytes:
    """An honest batch of these values."""
    return batch(b"".join(record(n, None, value) for n, value in enumerate(values)), len(values))


def produce(
    topic: str | bytes, partition: int, records: bytes, *, correlation_id: int = 1, acks: int = -1
) -> bytes:
    """Produce v7 of one batch set to one partition."""
    body = struct.pack(">hhii", -1, acks, 10_000, 1) + string(topic) + struct.pack(">i", 1)
    body += struct.pack(">ii", partition, len(records)) + records
    return header(PRODUCE, 7, correlation_id=correlation_id) + body


def next_offset(data: bytes, offset: int) -> int | None:
    """The offset after the last whole batch in fetched `data`; None when it holds none from `offset` on."""
    place, following = 0, None
    while len(data) - place >= 61:
        base_offset, length = struct.unpack_from(">qi", data, place)
        if length < 49 or place + 12 + length > len(data):
            break
        (last_offset_delta,) = struct.unpack_from(">i", data, place + 23)
        if base_offset + last_offset_delta >= offset:
            following = base_offset + last_offset_delta + 1
        place += 12 + length
    return following


def whole_batches(data: bytes) -> list[tuple[int, list[bytes | None]]]:
    """(base offset, values) of the whole, uncompressed batches in `data`; CRCs are checked. ValueError."""
    found: list[tuple[int, list[bytes | None]]] = []
    place = 0
    while len(data) - place >= 61:
        base_offset, length = struct.unpack_from(">qi", data, place)
        end = place + 12 + length
        if end > len(data):
            break
        (crc,) = struct.unpack_from(">I", data, place + 17)
        (count,) = struct.unpack_from(">i", data, place + 57)
        if crc != crc32c.crc32c(data[place + 21 : end]):
            raise ValueError(f"batch at offset {base_offset}: wrong CRC")
        found.append((base_offset, _values(data, place + 61, count)))
        place = end
    return found


def _values(data: bytes, place: int, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    for _ in range(count):
        length, place = _read_varint(data, place)
        end = place + length
        _, place = _read_varint(data, place + 1)
        _, place = _read_varint(data, place)
        size, place = _read_varint(data, place)
        place += max(0, size)
        size, place = _read_varint(data, place)
        values.append(None if size < 0 else data[place : place + size])
        place = end
    return values


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = data[place]
        place += 1
        value |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            return (value >> 1) ^ -(value & 1), place
