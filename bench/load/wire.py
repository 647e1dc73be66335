"""The few Kafka messages the load generator sends, encoded once and patched in place.

Owns: Produce v9, Fetch v12, OffsetCommit v7 and one uncompressed v2 record batch, written out by hand on
purpose. A timed loop must not share an encoder with the broker it measures, and both brokers must get the
same bytes.
Does not do: any other API, version negotiation, or decoding of records. Field order: Apache Kafka 4.4.0's
ProduceRequest.json, FetchRequest.json and OffsetCommitRequest.json.
"""

from __future__ import annotations

import random
import struct

from crc32c import crc32c

PRODUCE, FETCH, OFFSET_COMMIT = 0, 1, 8
PRODUCE_VERSION, FETCH_VERSION, OFFSET_COMMIT_VERSION = 9, 12, 7
NO_ERROR = 0
BATCH_OVERHEAD_BYTES = 12
"""Base offset and batch length: what `batch_length` does not count."""
LEAST_BATCH_BYTES = 61
"""A batch without records."""

_CLIENT_ID = b"bench"
_NULL_STRING = b"\xff\xff"
_CORRELATION_POS = 8
_PRODUCE_PARTITION = struct.Struct(">ihqqq")
_BATCH_HEAD = struct.Struct(">qi")
_LAST_DELTA_POS = 23


class UnexpectedResponse(RuntimeError):
    """A response that is not the expected one: another correlation id, shape or an error code."""


def string(text: str) -> bytes:
    """A string with its 2-byte length."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def uvarint(value: int) -> bytes:
    """Kafka's unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def _compact(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def check_correlation_id(frame: memoryview | bytearray, correlation_id: int) -> None:
    """Raise UnexpectedResponse unless a response (with its length prefix) answers the request of this id."""
    (got,) = struct.unpack_from(">i", frame, 4)
    if got != correlation_id:
        raise UnexpectedResponse(f"correlation id {got} instead of {correlation_id}")


def record_batch(records: int, record_bytes: int, timestamp_ms: int, seed: int = 1) -> bytes:
    """An uncompressed v2 batch of `records` null-keyed records with `record_bytes` of value each.

    Values are capital letters, as ProducerPerformance makes them; the same seed gives the same bytes.
    """
    rng = random.Random(seed)
    body = bytearray()
    for delta in range(records):
        value = bytes(rng.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=record_bytes))
        record = b"\x00\x00" + _varint(delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
        body += _varint(len(record)) + record
    after_crc = (
        struct.pack(">hiqqqhii", 0, records - 1, timestamp_ms, timestamp_ms, -1, -1, -1, records) + body
    )
    checked = struct.pack(">ibI", 0, 2, crc32c(after_crc)) + after_crc
    return _BATCH_HEAD.pack(0, len(checked)) + checked


def _request_header(api_key: int, api_version: int) -> bytes:
    return struct.pack(">hhih", api_key, api_version, 0, len(_CLIENT_ID)) + _CLIENT_ID + b"\x00"


def _with_length(payload: bytes) -> bytearray:
    return bytearray(struct.pack(">i", len(payload)) + payload)


class ProduceTemplate:
    """One Produce request to fixed partitions of one topic; only its correlation id changes.

    `request` is what goes on the socket after `stamp()`. A response without errors has a known length, so
    `verify` looks at fixed positions only.
    """

    __slots__ = ("_error_positions", "batch_bytes", "records", "request", "response_bytes")

    def __init__(
        self, topic: str, batches: dict[int, bytes], records: int, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> None:
        name = topic.encode()
        partitions = b"".join(
            struct.pack(">i", partition) + _compact(batch) + b"\x00"
            for partition, batch in sorted(batches.items())
        )
        body = (
            b"\x00"
            + struct.pack(">hi", acks, timeout_ms)
            + uvarint(2)
            + _compact(name)
            + uvarint(len(batches) + 1)
            + partitions
            + b"\x00\x00"
        )
        self.request = _with_length(_request_header(PRODUCE, PRODUCE_VERSION) + body)
        self.batch_bytes = sum(len(batch) for batch in batches.values())
        self.records = records
        """Records in the whole request."""
        first = 4 + 4 + 1 + 1 + len(_compact(name)) + len(uvarint(len(batches) + 1))
        stride = _PRODUCE_PARTITION.size + 3
        self._error_positions = [first + index * stride + 4 for index in range(len(batches))]
        self.response_bytes = first + len(batches) * stride + 1 + 4 + 1

    def stamp(self, correlation_id: int) -> bytearray:
        """The request with this correlation id; the same buffer every time."""
        struct.pack_into(">i", self.request, _CORRELATION_POS, correlation_id)
        return self.request

    def verify(self, frame: memoryview | bytearray, correlation_id: int) -> None:
        """Raise UnexpectedResponse unless `frame` (with its length prefix) acknowledges the request."""
        length = len(frame)
        check_correlation_id(frame, correlation_id)
        for position in self._error_positions:
            if position + 2 > length:
                raise UnexpectedResponse(f"short produce response of {length} bytes: {bytes(frame)!r}")
            code = struct.unpack_from(">h", frame, position)[0]
            if code != NO_ERROR:
                raise UnexpectedResponse(f"produce refused with error code {code}")
        if length != self.response_bytes:
            raise UnexpectedResponse(f"produce response of {length} bytes instead of {self.response_bytes}")


class CommitTemplate:
    """One OffsetCommit of one partition from outside a group; only its correlation id and offset change.

    Has the face of `ProduceTemplate`, so that the same closed loop drives it.
    """

    __slots__ = ("_offset_pos", "batch_bytes", "records", "request", "response_bytes")

    def __init__(self, group: str, topic: str, partition: int) -> None:
        before = (
            string(group)
            + struct.pack(">i", -1)
            + string("")
            + _NULL_STRING
            + struct.pack(">i", 1)
            + string(topic)
            + struct.pack(">ii", 1, partition)
        )
        body = before + struct.pack(">qi", 0, -1) + string("")
        self.request = _with_length(
            struct.pack(">hhih", OFFSET_COMMIT, OFFSET_COMMIT_VERSION, 0, len(_CLIENT_ID)) + _CLIENT_ID + body
        )
        self._offset_pos = len(self.request) - len(body) + len(before)
        self.records = 1
        self.batch_bytes = len(body)
        self.response_bytes = 4 + 4 + 4 + 4 + len(string(topic)) + 4 + 4 + 2

    def stamp(self, correlation_id: int) -> bytearray:
        """The request with this correlation id, which is also the offset; the same buffer every time."""
        struct.pack_into(">i", self.request, _CORRELATION_POS, correlation_id)
        struct.pack_into(">q", self.request, self._offset_pos, correlation_id)
        return self.request

    def verify(self, frame: memoryview | bytearray, correlation_id: int) -> None:
        """Raise UnexpectedResponse unless `frame` (with its length prefix) reports the commit."""
        length = len(frame)
        check_correlation_id(frame, correlation_id)
        if length != self.response_bytes:
            raise UnexpectedResponse(f"a commit response of {length} bytes instead of {self.response_bytes}")
        code = struct.unpack_from(">h", frame, length - 2)[0]
        if code != NO_ERROR:
            raise UnexpectedResponse(f"commit refused with error code {code}")


class FetchTemplate:
    """One sessionless Fetch request for one partition; its offset and correlation id change."""

    __slots__ = ("_offset_pos", "_records_pos", "request")

    def __init__(
        self, topic: str, partition: int, *, max_bytes: int, partition_max_bytes: int, max_wait_ms: int = 500
    ) -> None:
        name = topic.encode()
        head = (
            struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1)
            + uvarint(2)
            + _compact(name)
            + uvarint(2)
            + struct.pack(">ii", partition, -1)
        )
        header = _request_header(FETCH, FETCH_VERSION)
        tail = struct.pack(">qiqi", 0, -1, -1, partition_max_bytes) + b"\x00\x00" + b"\x01\x01\x00"
        self._offset_pos = 4 + len(header) + len(head)
        self.request = _with_length(header + head + tail)
        self._records_pos = 4 + 4 + 1 + 4 + 2 + 4 + 1 + len(_compact(name)) + 1

    def stamp(self, correlation_id: int, offset: int) -> bytearray:
        """The request for `offset`; the same buffer every time."""
        struct.pack_into(">i", self.request, _CORRELATION_POS, correlation_id)
        struct.pack_into(">q", self.request, self._offset_pos, offset)
        return self.request

    def records(self, frame: memoryview, correlation_id: int) -> tuple[int, int, int]:
        """(high watermark, start, end) of the record bytes in a whole response frame, prefix included.

        UnexpectedResponse on another correlation id, an error code, or a shape this client does not expect.
        """
        check_correlation_id(frame, correlation_id)
        _, _, error = struct.unpack_from(">bih", frame, 8)
        if error != NO_ERROR:
            raise UnexpectedResponse(f"fetch refused with error code {error}")
        pos = self._records_pos
        _, error, high_watermark, _, _ = struct.unpack_from(">ihqqq", frame, pos)
        if error != NO_ERROR:
            raise UnexpectedResponse(f"fetch of the partition refused with error code {error}")
        pos += 30
        if frame[pos] > 1:
            raise UnexpectedResponse("aborted transactions in a topic without transactions")
        pos += 1 + 4
        length, pos = read_uvarint(frame, pos)
        return high_watermark, pos, pos + max(length - 1, 0)


def read_uvarint(buf: memoryview | bytes, pos: int) -> tuple[int, int]:
    """(value, position behind it)."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7


def batch_span(buf: memoryview, pos: int) -> tuple[int, int, int]:
    """(base offset, next offset, total bytes) of the batch that starts at `pos`."""
    base_offset, batch_length = _BATCH_HEAD.unpack_from(buf, pos)
    last_delta = struct.unpack_from(">i", buf, pos + _LAST_DELTA_POS)[0]
    return base_offset, base_offset + last_delta + 1, batch_length + BATCH_OVERHEAD_BYTES


def batch_is_sound(buf: memoryview, pos: int, total_bytes: int) -> bool:
    """True if the CRC-32C of a whole batch holds."""
    stored: int = struct.unpack_from(">I", buf, pos + 17)[0]
    return crc32c(buf[pos + 21 : pos + total_bytes]) == stored
