"""Columns hold what `lockstep.protocol.records` reads of a batch, whatever the codec; what is no batch is
refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.protocol.records.batch import Buffer, MalformedBatch, read_header, set_log_append_time
from lockstep.protocol.records.batch_filter import filter_batch, open_batch
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder, Headers, iter_records, write_varint
from spark_connector.source.batch_decoder import RecordColumns, append_records
from tests.support.cases import each_case

_EVERYTHING = (0, 1 << 62)
_MOST_MICROS = ((1 << 63) // 1000 - 1) * 1000


def columns_of(
    batch: Buffer, start: int = 0, end: int = _EVERYTHING[1], *, with_headers: bool = True
) -> RecordColumns:
    columns = RecordColumns()
    append_records(columns, batch, 0, read_header(batch), start, end, with_headers=with_headers)
    return columns


def rows(columns: RecordColumns) -> list[tuple[int, int, bytes | None, bytes | None, Headers]]:
    """As `iter_records` has them, but for times, which are microseconds here."""
    headers = [list(each or ()) for each in columns.headers]
    return list(zip(columns.offsets, columns.timestamps, columns.keys, columns.values, headers, strict=True))


def expected(batch: Buffer) -> list[tuple[int, int, bytes | None, bytes | None, Headers]]:
    return [
        (each.offset, each.timestamp * 1000, each.key, each.value, each.headers)
        for each in iter_records(batch)
    ]


def built(codec: Codec = Codec.NONE, base_offset: int = 0, count: int = 300) -> bytes:
    """Keys and values of lengths around those of one, two and three bytes of varint; nulls and headers."""
    builder = BatchBuilder(codec)
    sizes = (0, 1, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193, 20_000)
    for n in range(count):
        size = sizes[n % len(sizes)] if n < 3 * len(sizes) else n % 90
        builder.append(
            None if n % 7 == 3 else bytes([n % 251]) * size,
            None if n % 5 == 2 else b"k" * (size % 300),
            timestamp_ms=1_700_000_000_000 + (n * 37 if n % 2 else -n),
            headers=[(f"h{n}", None if n % 3 else b"x" * (n % 130))] * (n % 4 if n % 11 == 0 else 0),
        )
    return builder.build(base_offset)


@each_case("codec", list(Codec))
def test_as_records_are_read(codec: Codec) -> None:
    batch = built(codec, base_offset=5_000_000_000)
    columns = columns_of(batch)
    assert rows(columns) == expected(batch)
    assert len(columns) == 300 and set(columns.timestamp_types) == {0}
    assert columns.headers[1] is None, "no headers are null, as in Spark's own source"


@each_case("codec", [Codec.NONE, Codec.ZSTD])
def test_headers_that_nobody_wants_are_passed_over(codec: Codec) -> None:
    columns = columns_of(built(codec), with_headers=False)
    assert columns.headers == []
    assert [row[:4] for row in expected(built(codec))] == list(
        zip(columns.offsets, columns.timestamps, columns.keys, columns.values, strict=True)
    )


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=200),
            st.integers(-(1 << 40), 1 << 44),
            st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        min_size=1,
        max_size=80,
    ),
    st.sampled_from(list(Codec)),
    st.integers(0, 1 << 50),
)
def test_any_records(
    records: list[tuple[bytes | None, bytes | None, int, Headers]], codec: Codec, base_offset: int
) -> None:
    builder = BatchBuilder(codec)
    for key, value, timestamp_ms, headers in records:
        builder.append(value, key, timestamp_ms=timestamp_ms, headers=headers)
    batch = builder.build(base_offset)
    assert rows(columns_of(batch)) == expected(batch)


def test_offsets_of_a_large_batch() -> None:
    builder = BatchBuilder()
    for n in range(9000):  # from 8192 on a delta takes three bytes
        builder.append(None, timestamp_ms=n)
    columns = columns_of(builder.build(7), with_headers=False)
    assert list(columns.offsets) == list(range(7, 9007))
    assert list(columns.timestamps) == [n * 1000 for n in range(9000)]


def test_log_append_time() -> None:
    batch = bytearray(built(count=20))
    set_log_append_time(batch, 1_800_000_000_123)
    columns = columns_of(batch)
    assert set(columns.timestamps) == {1_800_000_000_123_000}
    assert set(columns.timestamp_types) == {1}


@each_case(("start", "end"), [(0, 107), (110, 120), (100, 101), (299, 400), (0, 100), (400, 500)])
def test_only_what_lies_in_the_range(start: int, end: int) -> None:
    batch = built(base_offset=100)
    found = rows(columns_of(batch, start, end))
    assert found == [row for row in expected(batch) if start <= row[0] < end]


def test_gaps_that_compaction_left() -> None:
    whole = open_batch(built(base_offset=100, count=90))
    batch = filter_batch(whole, [part for part in whole.spans if part.offset % 3 == 0]).batch
    assert [row[0] for row in rows(columns_of(batch))] == list(range(102, 190, 3))
    assert [row[0] for row in rows(columns_of(batch, 110, 121))] == [111, 114, 117, 120]


def test_several_batches_in_one() -> None:
    columns = RecordColumns()
    batches = [built(Codec.LZ4, 0, 50), built(Codec.NONE, 50, 60)]
    for batch in batches:
        append_records(columns, b"??" + batch, 2, read_header(batch), *_EVERYTHING, with_headers=True)
    assert rows(columns) == expected(batches[0]) + expected(batches[1])
    taken = columns.drain()
    assert len(taken) == 110 and len(columns) == 0 and columns.value_bytes == 0 and columns.keys == []
    assert rows(taken) == expected(batches[0]) + expected(batches[1])


@each_case("stamp", [1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63)])
def test_times_beyond_what_spark_can_hold_become_the_nearest(stamp: int) -> None:
    builder = BatchBuilder()
    builder.append(b"v", timestamp_ms=0)
    builder.append(b"v", timestamp_ms=stamp)
    columns = columns_of(builder.build())
    assert list(columns.timestamps) == [0, _MOST_MICROS if stamp > 0 else -_MOST_MICROS]


def damaged(body: bytes, count: int = 1) -> bytes:
    """A batch whose records are these bytes."""
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(b"", timestamp_ms=0)
    whole = bytearray(builder.build())[:61] + body
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    return bytes(whole)


def record(*fields: int, tail: bytes = b"", length: int | None = None) -> bytes:
    """A record of attributes and these varints."""
    body = bytearray(1)
    for number in fields:
        write_varint(body, number)
    body += tail
    out = bytearray()
    write_varint(out, len(body) if length is None else length)
    return bytes(out + body)


@each_case(
    ("body", "count"),
    [
        (b"", 1),
        (record(0, 0, -1, -1, 0), 2),
        (record(0, 0, -1, -1, 0) + b"\0", 1),
        (record(0, 0, -1, -1, 0, length=-1), 1),
        (record(0, 0, -1, -1, 0, length=50), 1),
        (record(0, 0, -1, -1, 0, length=5), 1),
        (record(0, 0, -2, -1, 0), 1),
        (record(0, 0, -1, -2, 0), 1),
        (record(0, 0, 9, -1, 0), 1),
        (record(0, 0, -1, 500, 0), 1),
        (record(0, 0, -1, -1, 1), 1),
        (record(0, 0, -1, -1, -1), 1),
        (record(0, 0, -1, -1, 1, -1, -1), 1),
        (record(0, 0, -1, -1, 1, 0, -5), 1),
        (record(0, 0, -1, -1, 1, 0, 40), 1),
        (b"\xff" * 11, 1),
    ],
)
def test_what_is_no_batch(body: bytes, count: int) -> None:
    columns = RecordColumns()
    batch = damaged(body, count)
    with pytest.raises(MalformedBatch):
        append_records(columns, batch, 0, read_header(batch), *_EVERYTHING, with_headers=False)
    assert len(columns) == 0 and columns.keys == [] and columns.values == []


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(1, 3))
def test_noise_is_refused_where_records_are(body: bytes, count: int) -> None:
    batch = damaged(body, count)
    try:
        wanted = [(each.key, each.value) for each in iter_records(batch)]
    except MalformedBatch:
        with pytest.raises(MalformedBatch):
            columns_of(batch)
    else:
        columns = columns_of(batch, -(1 << 80), 1 << 80)
        assert list(zip(columns.keys, columns.values, strict=True)) == wanted
