"""Record batches to columns: a task runs this for each byte that it fetches, so every step counts.

Owns: the columns of one coming Arrow batch. Records go straight from the batch's bytes into lists of keys,
values, offsets and times, without an object of their own; `lockstep.protocol.records.record.iter_records`
yields the same records, and the tests compare both.

Invariants: a batch is appended as a whole or not at all: MalformedBatch leaves the columns as they were.
Records outside of [start, end) are left out; gaps of compaction are no error.

Does not: verify checksums, decide whether a batch is visible (`lockstep.protocol.records.committed`), know
Arrow. Source: Kafka's DefaultRecord and DefaultRecordBatch; KIP-82 (headers).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from lockstep.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, Buffer, MalformedBatch
from lockstep.protocol.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, decompress
from lockstep.protocol.records.record import read_varint, wrap_int64

HeaderList = list[tuple[str, bytes | None]]

_MICROS: Final = 1000
_MAX_MILLIS: Final = (1 << 63) // _MICROS - 1
"""The largest time in milliseconds whose microseconds have 64 bits, as Spark needs them."""


class RecordColumns:
    """Records of one partition, column by column; `headers` stays empty unless they are included.

    Times are in microseconds since 1970, as Spark has them; types of times as Kafka numbers them.
    """

    __slots__ = ("headers", "keys", "offsets", "timestamp_types", "timestamps", "value_bytes", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.offsets = array("q")
        self.timestamps = array("q")
        self.timestamp_types = array("i")
        self.headers: list[HeaderList | None] = []
        self.value_bytes = 0
        """The decompressed bytes of the appended batches."""

    def __len__(self) -> int:
        return len(self.offsets)

    def drain(self) -> RecordColumns:
        """Moves the content to new columns; these are empty afterwards."""
        found = RecordColumns()
        for name in RecordColumns.__slots__:
            mine, others = getattr(self, name), getattr(found, name)
            setattr(self, name, others)
            setattr(found, name, mine)
        return found


def append_records(
    columns: RecordColumns,
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    start: int,
    end: int,
    *,
    with_headers: bool,
) -> None:
    """Appends the records at `pos` whose offsets are in [start, end). MalformedBatch,
    DecompressedTooLarge."""
    body = memoryview(buf)[pos + BATCH_HEADER_BYTES : pos + header.total_bytes]
    if header.codec != Codec.NONE:
        body = memoryview(decompress(header.codec, body, DEFAULT_MAX_DECOMPRESSED_BYTES))
    data = bytes(body)  # indexed and cut faster than a view
    opened = _DecodedBatch(header.record_count)
    try:
        opened.read(data, header.record_count, with_headers)
    except IndexError:
        raise MalformedBatch(f"{header.record_count} records announced, the data end before them") from None
    first, last = 0, header.record_count
    if header.base_offset < start or header.last_offset >= end:
        first = bisect_left(opened.offset_deltas, start - header.base_offset)
        last = bisect_left(opened.offset_deltas, end - header.base_offset)
    _append(columns, header, opened, first, last, with_headers)
    columns.value_bytes += len(data)


class _DecodedBatch:
    """One batch's records; times and offsets relative to its header."""

    __slots__ = ("headers", "keys", "offset_deltas", "timestamp_deltas", "values")

    def __init__(self, count: int) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.offset_deltas: list[int] = []
        self.timestamp_deltas: list[int] = []
        self.headers: list[HeaderList | None] = []

    def read(self, data: bytes, count: int, with_headers: bool) -> None:
        """Reads all records in `data`. IndexError where they are cut, MalformedBatch where they are
        malformed.

        Varints of one and two bytes, nearly all of them, are read in place. A slice that runs over its
        record's end is detected there, and that end is checked against the data.
        """
        add_key, add_value = self.keys.append, self.values.append
        add_offset, add_timestamp = self.offset_deltas.append, self.timestamp_deltas.append
        total = len(data)
        at = 0
        for _ in range(count):
            byte, after = data[at], data[at + 1]
            if byte < 0x80:
                size, at = byte >> 1, at + 1
            elif after < 0x80:
                size, at = (byte & 0x7F | after << 7) >> 1, at + 2
            else:
                size, at = read_varint(data, at)
            end = at + size
            if not at < end <= total:
                raise MalformedBatch(f"record from {at} to {end}, the data end at {total}")
            byte, after = data[at + 1], data[at + 2]  # behind the attributes, of which none is defined yet
            if byte < 0x80:
                delta, at = (byte >> 1) ^ -(byte & 1), at + 2
            elif after < 0x80 and not byte & 1:
                delta, at = (byte & 0x7F | after << 7) >> 1, at + 3
            else:
                delta, at = read_varint(data, at + 1)
            add_timestamp(delta)
            byte, after = data[at], data[at + 1]
            if byte < 0x80:
                delta, at = (byte >> 1) ^ -(byte & 1), at + 1
            elif after < 0x80 and not byte & 1:
                delta, at = (byte & 0x7F | after << 7) >> 1, at + 2
            else:
                delta, at = read_varint(data, at)
            add_offset(delta)
            size, at = (data[at] >> 1, at + 1) if not data[at] & 0x81 else _size(data, at)
            add_key(data[at : at + size] if size >= 0 else None)
            at += size if size > 0 else 0
            byte, after = data[at], data[at + 1]
            if byte & 0x81 == 0x80 and after < 0x80:
                value_at = at + 2
                at = value_at + ((byte & 0x7F | after << 7) >> 1)
                add_value(data[value_at:at])
            else:
                size, at = (byte >> 1, at + 1) if not byte & 0x81 else _size(data, at)
                add_value(data[at : at + size] if size >= 0 else None)
                at += size if size > 0 else 0
            at = self._read_headers(data, at, with_headers) if with_headers or data[at] else at + 1
            if at != end:
                raise MalformedBatch(f"record ends at {at}, its length reports {end}")
        if at != total:
            raise MalformedBatch(f"{total - at} bytes after the last record")

    def _read_headers(self, data: bytes, at: int, with_headers: bool) -> int:
        count, at = read_varint(data, at)
        if not 0 <= count <= len(data) - at:  # each takes two bytes at least
            raise MalformedBatch(f"{count} headers in {len(data) - at} bytes")
        found: HeaderList = []
        for _ in range(count):
            size, at = _size(data, at)
            if size < 0:
                raise MalformedBatch("a header without a name")
            name = data[at : at + size].decode("utf-8", "replace")
            at += size
            size, at = _size(data, at)
            found.append((name, None if size < 0 else data[at : at + size]))
            at += max(size, 0)
        if with_headers:
            self.headers.append(found or None)
        return at


def _size(data: bytes, at: int) -> tuple[int, int]:
    """A length, or -1 for null, and the position behind it."""
    size, at = read_varint(data, at)
    if size < -1:
        raise MalformedBatch(f"length {size} at {at}")
    return size, at


def _append(
    columns: RecordColumns,
    header: BatchHeader,
    opened: _DecodedBatch,
    first: int,
    last: int,
    with_headers: bool,
) -> None:
    base, count = header.base_offset, len(opened.keys)
    if header.is_log_append_time:
        times = [_micros(header.max_timestamp)] * (last - first)
    else:
        deltas = opened.timestamp_deltas
        base_ms = header.base_timestamp
        newest, oldest = base_ms + max(deltas, default=0), base_ms + min(deltas, default=0)
        if oldest >= -_MAX_MILLIS and newest <= _MAX_MILLIS:
            times = [(base_ms + delta) * _MICROS for delta in deltas[first:last]]
        else:
            times = [_micros(wrap_int64(base_ms + delta)) for delta in deltas[first:last]]
    whole = first == 0 and last == count
    columns.keys += opened.keys if whole else opened.keys[first:last]
    columns.values += opened.values if whole else opened.values[first:last]
    columns.offsets.extend([base + delta for delta in opened.offset_deltas[first:last]])
    columns.timestamps.extend(times)
    columns.timestamp_types.extend([int(header.is_log_append_time)] * (last - first))
    if with_headers:
        columns.headers += opened.headers[first:last]


def _micros(time_ms: int) -> int:
    """Spark's own source fails on a time beyond its range; here the nearest possible time is kept."""
    return max(-_MAX_MILLIS, min(time_ms, _MAX_MILLIS)) * _MICROS
