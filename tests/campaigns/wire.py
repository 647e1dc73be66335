"""A bare Kafka connection and hand-made frames: what no client library would send.

Owns: one blocking socket with frames (`Wire`), record batches built field by field so that each may lie,
and the few requests the campaigns need. Deliberately independent of Lockstep's own codec, so that a
fault there is not repeated here. Sources: Kafka's protocol guide; KIP-98 (batch v2).
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
_BATCH_TAIL = struct.Struct(">hiqqqhii")


class Wire:
    """One connection: `send` does not wait, `receive` gives one answer, unframed. OSError, EOFError."""

    def __init__(self, host: str, port: int, timeout_s: float = 5.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def send(self, frame: bytes) -> None:
        """One frame with its true length."""
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def send_raw(self, octets: bytes) -> None:
        """Bytes as they are, whatever they claim to be."""
        self._socket.sendall(octets)

    def receive(self) -> bytes:
        """The next whole answer."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def ask(self, frame: bytes) -> bytes:
        """`send`, then `receive`."""
        self.send(frame)
        return self.receive()

    def outcome(self) -> str:
        """What comes next: "answer", "closed" or "silence" (nothing before the time-out)."""
        try:
            self.receive()
        except TimeoutError:
            return "silence"
        except (OSError, EOFError):
            return "closed"
        return "answer"

    def set_timeout(self, timeout_s: float) -> None:
        """For every later wait."""
        self._socket.settimeout(timeout_s)

    def half_close(self) -> None:
        """No more bytes from us."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """At once; unread answers are dropped."""
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        while len(self._received) < count:
            part = self._socket.recv(65536)
            if not part:
                raise EOFError("connection closed")
            self._received += part
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


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


def produce_result(answer: bytes, topic: str) -> tuple[int, int]:
    """(error code, base offset) of a Produce v7 answer for one partition."""
    place = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    error, base_offset = struct.unpack_from(">hq", answer, place)
    return error, base_offset


def fetch(topic: str, partition: int, offset: int, *, correlation_id: int = 1, max_wait_ms: int = 0) -> bytes:
    """Fetch v4 of one partition."""
    body = struct.pack(">iiiibi", -1, max_wait_ms, 1, 1 << 20, 0, 1) + string(topic)
    body += struct.pack(">iiqi", 1, partition, offset, 1 << 20)
    return header(FETCH, 4, correlation_id=correlation_id) + body


def fetch_result(answer: bytes, topic: str) -> tuple[int, int, bytes]:
    """(error code, high watermark, records) of a Fetch v4 answer for one partition."""
    place = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    error, high_watermark, _, aborted = struct.unpack_from(">hqqi", answer, place)
    place += 22 + 16 * max(0, aborted)
    (size,) = struct.unpack_from(">i", answer, place)
    return error, high_watermark, answer[place + 4 : place + 4 + max(0, size)]


def list_earliest(topic: str, partition: int, *, correlation_id: int = 1) -> bytes:
    """ListOffsets v1 of the earliest offset of one partition."""
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, -2)
    return header(LIST_OFFSETS, 1, correlation_id=correlation_id) + body


def list_result(answer: bytes, topic: str) -> tuple[int, int]:
    """(error code, offset) of a ListOffsets v1 answer for one partition."""
    place = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    error, _, offset = struct.unpack_from(">hqq", answer, place)
    return error, offset


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


def read_partition(host: str, port: int, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record up to the high watermark; no compression. RuntimeError, ValueError."""
    records: list[tuple[int, bytes | None]] = []
    connection = Wire(host, port, timeout_s=30)
    offset = 0
    try:
        while True:
            error, end, data = fetch_result(connection.ask(fetch(topic, partition, offset)), topic)
            if error:
                raise RuntimeError(f"fetching {topic}-{partition} at {offset}: error {error}")
            for base_offset, values in whole_batches(data):
                records += [(base_offset + number, value) for number, value in enumerate(values)]
            following = next_offset(data, offset)
            if offset >= end:
                return records
            if following is None:
                raise RuntimeError(f"fetching {topic}-{partition}: nothing at {offset} of {end}")
            offset = following
    finally:
        connection.close()


def metadata(topic: str, *, correlation_id: int = 1) -> bytes:
    """Metadata v4 of one topic, which may be created by it."""
    return (
        header(METADATA, 4, correlation_id=correlation_id)
        + struct.pack(">i", 1)
        + string(topic)
        + struct.pack(">?", True)
    )


def api_ranges(wire: Wire) -> dict[int, tuple[int, int]]:
    """The broker's own ApiVersions v0 answer: key -> (lowest, highest)."""
    answer = wire.ask(header(API_VERSIONS, 0))
    error, count = struct.unpack_from(">hi", answer, 4)
    if error:
        raise ValueError(f"ApiVersions answered error {error}")
    rows = (struct.unpack_from(">hhh", answer, 10 + 6 * row) for row in range(count))
    return {key: (lowest, highest) for key, lowest, highest in rows}


def first_ack(host: str, port: int, topic: str, deadline_s: float, value: bytes = b"probe") -> int:
    """Tries until one record is acknowledged; its offset. TimeoutError after `deadline_s`."""
    end = time.monotonic() + deadline_s
    said = "nothing"
    while time.monotonic() < end:
        try:
            wire = Wire(host, port, timeout_s=min(5.0, deadline_s))
        except OSError as error:
            said = str(error)
            time.sleep(0.005)
            continue
        try:
            while time.monotonic() < end:
                error_code, offset = produce_result(wire.ask(produce(topic, 0, values_batch([value]))), topic)
                if error_code == 0:
                    return offset
                said = f"error {error_code}"
                wire.ask(metadata(topic))
                time.sleep(0.005)
        except (OSError, EOFError, struct.error) as error:
            said = repr(error)
        finally:
            wire.close()
    raise TimeoutError(f"no record acknowledged within {deadline_s} s; last answer: {said}")
