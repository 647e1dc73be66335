"""Records of a batch: reading them one by one, and building batches of them.

Owns: the record format inside a batch (zigzag varints, deltas against the batch header).

Invariants: a batch yields exactly `record_count` records and nothing is left over, or MalformedBatch is
raised; a size in a record is checked against the bytes that are there before anything is made from it.

Not for the produce, replicate and fetch paths, which never open a batch: this serves clients, offset
lookup by time inside one batch, and lock headers. `iter_records` does not verify the checksum
(`batch.verify` does) and yields control batches' records like any others.

Source: Kafka's DefaultRecord and DefaultRecordBatch; KIP-82 (headers).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lockstep.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    CONTROL_FLAG,
    CURRENT_MAGIC,
    LENGTH_PREFIX_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    MalformedBatch,
    crc_of,
    read_header,
)
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, compress, decompress

Headers = list[tuple[str, bytes | None]]

_CRC_AT: Final = 17
_LARGEST_VARINT_BYTES: Final = 10
_HALF: Final = 1 << 63


class TooManyRecords(ValueError):
    """The batch, or a record's headers, exceed the caller's limit."""


class Record:
    """One record as an application sees it. `timestamp` is in milliseconds since 1970."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def _values(self) -> tuple[object, ...]:
        return self.offset, self.timestamp, self.key, self.value, self.headers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


def iter_records(
    buf: Buffer, pos: int = 0, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """The records of the one batch at `pos`, in order.

    Raises MalformedBatch for bytes that are not the records the header announces, and DecompressedTooLarge
    beyond the cap; both may come after some records were yielded.
    """
    header = read_header(buf, pos)
    body = memoryview(buf)[pos + BATCH_HEADER_BYTES : pos + header.total_bytes]
    data = memoryview(decompress(header.codec, body, max_decompressed_bytes))
    for _, _, record in iter_record_spans(header, data):
        yield record


def iter_record_spans(header: BatchHeader, data: memoryview) -> Iterator[tuple[int, int, Record]]:
    """(start, end, record) of each in the decompressed `data`; raises MalformedBatch as `iter_records`."""
    base_offset = header.base_offset
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    at = 0
    try:
        for _ in range(header.record_count):
            start = at
            length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > len(data):
                raise MalformedBatch(f"record of {length} bytes at {at}, {len(data) - at} are left")
            record, at = _read_record(data, at, base_offset, header.base_timestamp)
            if at != end:
                raise MalformedBatch(f"record ends at {at}, its length reports {end}")
            if fixed_timestamp is not None:
                record.timestamp = fixed_timestamp
            yield start, end, record
    except IndexError:
        raise MalformedBatch(f"{header.record_count} records announced, the data end before them") from None
    if at != len(data):
        raise MalformedBatch(f"{len(data) - at} bytes after the last record")


def headers_with_prefix(
    body: BatchBody, prefix: bytes, most: int, max_decompressed_bytes: int
) -> list[Headers]:
    """The headers whose names begin with `prefix`, for each record of the batch.

    Empty, without a look at the records, where the batch does not contain the prefix. Raises as
    `iter_records`, and TooManyRecords where there are more than `most` records, or headers in one of them.
    """
    header, data = body.header, bytes(body.data(max_decompressed_bytes))
    if prefix not in data:
        return []
    if header.record_count > most:
        raise TooManyRecords(f"{header.record_count} records")
    view = memoryview(data)
    found: list[Headers] = []
    at = 0
    try:
        for _ in range(header.record_count):
            length, at = read_varint(view, at)
            end = at + length
            if length < 0 or end > len(data):
                raise MalformedBatch(f"record of {length} bytes at {at}, {len(data) - at} are left")
            _, at = read_varint(view, at + 1)
            _, at = read_varint(view, at)
            count, at = read_varint(view, _skip_bytes(view, _skip_bytes(view, at)))
            if count > most:
                raise TooManyRecords(f"{count} headers of a record")
            headers: Headers = []
            for _ in range(count):
                name, at = _read_bytes(view, at)
                if name is None:
                    raise MalformedBatch("a header without a name")
                if name.startswith(prefix):
                    content, at = _read_bytes(view, at)
                    headers.append((name.decode("utf-8", "replace"), content))
                else:
                    at = _skip_bytes(view, at)
            if at != end or count < 0:
                raise MalformedBatch(f"record ends at {at}, its length reports {end}")
            found.append(headers)
    except IndexError:
        raise MalformedBatch(f"{header.record_count} records announced, the data end before them") from None
    if at != len(data):
        raise MalformedBatch(f"{len(data) - at} bytes after the last record")
    return found


def _read_record(data: memoryview, at: int, base_offset: int, base_timestamp: int) -> tuple[Record, int]:
    at += 1  # attributes: nothing is defined yet
    timestamp_delta, at = read_varint(data, at)
    offset_delta, at = read_varint(data, at)
    key, at = _read_bytes(data, at)
    value, at = _read_bytes(data, at)
    count, at = read_varint(data, at)
    if not 0 <= count <= len(data) - at:  # each takes two bytes at least
        raise MalformedBatch(f"{count} headers in {len(data) - at} bytes")
    headers: Headers = []
    for _ in range(count):
        name, at = _read_bytes(data, at)
        if name is None:
            raise MalformedBatch("a header without a name")
        content, at = _read_bytes(data, at)
        headers.append((name.decode("utf-8", "replace"), content))
    timestamp = base_timestamp + timestamp_delta
    if not -_HALF <= timestamp < _HALF:
        timestamp = wrap_int64(timestamp)
    return Record(base_offset + offset_delta, timestamp, key, value, headers), at


def _skip_bytes(data: memoryview, at: int) -> int:
    size, at = read_varint(data, at)
    if size < -1 or size > len(data) - at:
        raise MalformedBatch(f"{size} bytes at {at}, {len(data) - at} are left")
    return at + max(size, 0)


def wrap_int64(timestamp: int) -> int:
    """Wraps a sum of 64-bit numbers as Java and C do: a record's time stays the same after its batch got
    another base."""
    return (timestamp + _HALF) % (2 * _HALF) - _HALF


def _read_bytes(data: memoryview, at: int) -> tuple[bytes | None, int]:
    size = data[at]
    if size & 0x81 == 0:  # one byte, not negative: nearly every length
        size >>= 1
        at += 1
    else:
        size, at = read_varint(data, at)
        if size < 0:
            if size == -1:
                return None, at
            raise MalformedBatch(f"length {size} at {at}")
    end = at + size
    if end > len(data):
        raise MalformedBatch(f"{size} bytes at {at}, {len(data) - at} are left")
    return bytes(data[at:end]), end


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the position after it. IndexError where it is cut."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 7 * _LARGEST_VARINT_BYTES:
            raise MalformedBatch(f"a varint of more than {_LARGEST_VARINT_BYTES} bytes at {at}")
    if value >> 64:
        raise MalformedBatch(f"a varint of more than 64 bits at {at}")
    return (value >> 1) ^ -(value & 1), at


def write_varint(out: bytearray, number: int) -> None:
    value = (number << 1) ^ (number >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
        return
    write_varint(out, len(data))
    out += data


def key_values(buf: Buffer) -> list[tuple[bytes | None, bytes | None]]:
    """The keys and values of the one batch in `buf`; raises as `iter_records`, which it agrees with."""
    header = read_header(buf)
    if header.codec == Codec.NONE:
        data = memoryview(buf)[: header.total_bytes]
        found: list[tuple[bytes | None, bytes | None]] = []
        at = BATCH_HEADER_BYTES
        try:
            for _ in range(header.record_count):
                length, at = read_varint(data, at)
                end = at + length
                _, at = read_varint(data, at + 1)
                _, at = read_varint(data, at)
                key, at = _read_bytes(data, at)
                value, at = _read_bytes(data, at)
                if data[at] != 0 or at + 1 != end:
                    break  # headers, or a length that lies
                at = end
                found.append((key, value))
            else:
                if at == len(data):
                    return found
        except (IndexError, MalformedBatch):
            pass  # reported below, with its reason
    return [(record.key, record.value) for record in iter_records(buf)]


def key_value_batch(
    pairs: Iterable[tuple[bytes, bytes | None]],
    timestamp_ms: int,
    transaction: tuple[int, int] | None = None,
) -> tuple[bytearray, BatchHeader]:
    """An uncompressed batch of records of one time, without headers: the output of `BatchBuilder` in a third
    of the time, for callers that often write few records. ValueError without a record.

    Args: transaction: the producer id and epoch whose transaction the records are part of.
    """
    records = bytearray()
    count = 0
    for key, value in pairs:
        if value is None:
            body = b"\0\0%b%b%b\1\0" % (_varint(count), _varint(len(key)), key)
        else:
            body = b"\0\0%b%b%b%b%b\0" % (
                _varint(count),
                _varint(len(key)),
                key,
                _varint(len(value)),
                value,
            )
        records += _varint(len(body))
        records += body
        count += 1
    if not count:
        raise ValueError("a batch needs at least one record")
    producer_id, producer_epoch = transaction or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    header = BatchHeader(
        0,
        0,
        NO_LEADER_EPOCH,
        CURRENT_MAGIC,
        0,
        TRANSACTIONAL_FLAG if transaction else 0,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        count,
    )
    return _checksummed_batch(header, records), header


def _checksummed_batch(header: BatchHeader, body: Buffer) -> bytearray:
    """The whole batch; its length and checksum are put into `header`, too."""
    header.batch_length = BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
    batch = bytearray(header.pack())
    batch += body
    header.crc = crc_of(batch, 0, len(batch))
    batch[_CRC_AT : _CRC_AT + 4] = header.crc.to_bytes(4, "big")
    return batch


def _varint(number: int) -> bytes:
    """A varint of a number that is not negative."""
    if number < len(_VARINTS):
        return _VARINTS[number]
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


def _small_varints() -> list[bytes]:
    found = []
    for number in range(1024):
        out = bytearray()
        write_varint(out, number)
        found.append(bytes(out))
    return found


_VARINTS: Final = _small_varints()


class BatchBuilder:
    """Collects records and makes one batch of them; offsets are dense from the batch's base offset."""

    __slots__ = (
        "_base_timestamp",
        "_body",
        "_codec",
        "_control",
        "_max_timestamp",
        "_transactional",
        "base_sequence",
        "leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(
        self,
        codec: Codec = Codec.NONE,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: int = NO_LEADER_EPOCH,
    ) -> None:
        self._codec = codec
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self._transactional = transactional
        self._control = control
        self.leader_epoch = leader_epoch
        self.record_count = 0
        self._body = bytearray()
        self._base_timestamp = 0
        self._max_timestamp = 0

    @property
    def size_bytes(self) -> int:
        """The size of the batch before compression."""
        return BATCH_HEADER_BYTES + len(self._body)

    def append(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        timestamp_ms: int,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> int:
        """Add a record; returns its offset relative to the batch's base offset."""
        if not self.record_count:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        elif timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        record = bytearray(1)
        write_varint(record, timestamp_ms - self._base_timestamp)
        write_varint(record, self.record_count)
        _write_bytes(record, key)
        _write_bytes(record, value)
        pairs = list(headers)
        write_varint(record, len(pairs))
        for name, content in pairs:
            _write_bytes(record, name.encode())
            _write_bytes(record, content)
        write_varint(self._body, len(record))
        self._body += record
        self.record_count += 1
        return self.record_count - 1

    def build(self, base_offset: int = 0) -> bytes:
        """The batch, checksummed. ValueError when there is no record in it."""
        if not self.record_count:
            raise ValueError("a batch needs at least one record")
        body = compress(self._codec, self._body)
        attributes = int(self._codec)
        attributes |= TRANSACTIONAL_FLAG if self._transactional else 0
        attributes |= CONTROL_FLAG if self._control else 0
        header = BatchHeader(
            base_offset,
            0,
            self.leader_epoch,
            CURRENT_MAGIC,
            0,
            attributes,
            self.record_count - 1,
            self._base_timestamp,
            self._max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        return bytes(_checksummed_batch(header, body))
