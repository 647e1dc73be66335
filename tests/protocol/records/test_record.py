"""Records: round trips, other clients' builders and readers, hostile bodies."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from lockstep.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    MalformedBatch,
    iter_headers,
    patch_whole,
    read_header,
    set_log_append_time,
    verify,
)
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.compression import Codec, DecompressedTooLarge
from lockstep.protocol.records.record import (
    BatchBuilder,
    Headers,
    Record,
    TooManyRecords,
    headers_with_prefix,
    iter_records,
    key_value_batch,
    key_values,
)
from tests.support.cases import each_case

GOLDEN = Path(__file__).parent / "java"
DAY_MS = 86_400_000

header_names = st.text(max_size=12)
maybe_bytes = st.none() | st.binary(max_size=200)
entries = st.lists(
    st.tuples(
        maybe_bytes,
        maybe_bytes,
        st.integers(0, 10 * DAY_MS),
        st.lists(st.tuples(header_names, maybe_bytes), max_size=4),
    ),
    min_size=1,
    max_size=20,
)
Entry = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def records_of(entries: list[Entry], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + number, timestamp, key, value, headers)
        for number, (key, value, timestamp, headers) in enumerate(entries)
    ]


def built(entries: list[Entry], codec: Codec = Codec.NONE, base_offset: int = 0) -> bytes:
    builder = BatchBuilder(codec)
    for key, value, timestamp, headers in entries:
        builder.append(value, key, timestamp_ms=timestamp, headers=headers)
    return builder.build(base_offset)


def without_null_headers(entries: list[Entry]) -> list[Entry]:
    """Neither of the two clients takes a header without a value."""
    return [
        (key, value, timestamp, [pair for pair in headers if pair[1] is not None])
        for key, value, timestamp, headers in entries
    ]


def java_entries() -> list[Entry]:
    """The records in `java/*.bin`, as `java/Golden.java` made them."""
    return [
        (
            None if number % 3 == 0 else b"key-%d" % number,
            None if number % 5 == 0 else b"value " * 150 + b"%d" % number,
            1_700_000_000_000 + number % 7 * 1000,
            [] if number % 2 == 0 else [("h", b"x%d" % number), ("none", None), ("h", b"")],
        )
        for number in range(200)
    ]


@each_case("codec", Codec)
@given(entries=entries, base_offset=st.integers(0, 2**62))
@settings(max_examples=40, deadline=None)
def test_round_trip(codec: Codec, entries: list[Entry], base_offset: int) -> None:
    batch = built(entries, codec, base_offset)
    header = read_header(batch)
    verify(batch, 0, header)
    assert header.codec == codec
    assert header.total_bytes == len(batch)
    assert (header.base_offset, header.next_offset) == (base_offset, base_offset + len(entries))
    assert header.max_timestamp == max(timestamp for _, _, timestamp, _ in entries)
    assert list(iter_records(batch)) == records_of(entries, base_offset)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_timestamps_of_any_distance(timestamps: list[int]) -> None:
    builder = BatchBuilder()
    for timestamp in timestamps:
        builder.append(b"", timestamp_ms=timestamp)
    if max(abs(timestamp - timestamps[0]) for timestamp in timestamps) < 2**63:
        assert [record.timestamp for record in iter_records(builder.build())] == timestamps


@each_case("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_batches_of_apache_kafkas_own_producer(codec: Codec) -> None:
    batch = (GOLDEN / f"{codec.name.lower()}.bin").read_bytes()
    header = read_header(batch)
    verify(batch, 0, header)
    assert (header.codec, header.leader_epoch, header.is_transactional) == (codec, 3, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4242, 7, 100)
    assert list(iter_records(batch)) == records_of(java_entries(), 40)


def test_built_batches_are_those_of_apache_kafka_to_the_byte() -> None:
    """The checksum of `Golden.java`'s uncompressed batch, whose 150 KB are not kept here."""
    builder = BatchBuilder(
        producer_id=4242, producer_epoch=7, base_sequence=100, transactional=True, leader_epoch=3
    )
    for key, value, timestamp, headers in java_entries():
        builder.append(value, key, timestamp_ms=timestamp, headers=headers)
    assert builder.size_bytes == 148_884
    batch = builder.build(40)
    assert len(batch) == 148_884
    assert read_header(batch).crc == 0x7D86AA9A


@each_case("codec", Codec)
def test_kafka_python_and_aiokafka_read_what_we_build(codec: Codec) -> None:
    entries = without_null_headers(java_entries()[:20])
    batch = built(entries, codec, base_offset=7)
    for theirs in (KafkaPythonBatch(batch), AiokafkaBatch(batch)):
        assert theirs.validate_crc()
        found = [
            Record(record.offset, record.timestamp, record.key, record.value, list(record.headers))
            for record in theirs
        ]
        assert found == records_of(entries, 7)


@each_case("codec", Codec)
@each_case("builder_class", [KafkaPythonBuilder, AiokafkaBuilder])
@given(entries=entries)
@settings(max_examples=20, deadline=None)
def test_we_read_what_they_build(builder_class: type, codec: Codec, entries: list[Entry]) -> None:
    entries = without_null_headers(entries)
    builder = builder_class(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 22,
    )
    for number, (key, value, timestamp, headers) in enumerate(entries):
        builder.append(number, timestamp, key, value, headers)
    batch = bytes(builder.build())
    verify(batch, 0, read_header(batch))
    assert list(iter_records(batch)) == records_of(entries, 0)


def test_offsets_keep_the_gaps_of_compaction() -> None:
    builder = KafkaPythonBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset in (0, 3, 9):
        builder.append(offset, 5, None, b"v", [])
    batch = bytearray(builder.build())
    patch_whole(batch, 1000, 0)
    assert [record.offset for record in iter_records(batch)] == [1000, 1003, 1009]


def test_a_time_beyond_64_bits_goes_on_from_the_least_as_in_java() -> None:
    batch = bytearray(built([(None, b"v", at, []) for at in range(3)]))
    for base, times in (
        ((1 << 63) - 2, [(1 << 63) - 2, (1 << 63) - 1, -(1 << 63)]),
        (-(1 << 63), [-(1 << 63), 1 - (1 << 63), 2 - (1 << 63)]),
    ):
        header = read_header(batch)
        header.base_timestamp = base
        batch[:BATCH_HEADER_BYTES] = header.pack()
        assert [record.timestamp for record in iter_records(batch)] == times


def test_a_records_repr_has_all_fields() -> None:
    text = "Record(offset=7, timestamp=5, key=b'k', value=None, headers=[('a', b'x')])"
    assert repr(Record(7, 5, b"k", None, [("a", b"x")])) == text


def test_log_append_time_stands_for_every_record() -> None:
    batch = bytearray(built([(None, b"a", 1, []), (None, b"b", 2, [])]))
    set_log_append_time(batch, 77)
    assert [record.timestamp for record in iter_records(batch)] == [77, 77]


def test_batches_one_after_the_other() -> None:
    one, two = built([(None, b"a", 1, [])], Codec.LZ4, 5), built([(None, b"b", 2, [])], Codec.ZSTD, 6)
    found = [record for pos, _ in iter_headers(one + two) for record in iter_records(one + two, pos)]
    assert [(record.offset, record.value) for record in found] == [(5, b"a"), (6, b"b")]


@example(pairs=[(b"k" * 1023, b"v" * 1024), (b"k" * 10_000, None)], transaction=None)
@given(
    pairs=st.lists(
        st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=2000)), min_size=1, max_size=80
    ),
    transaction=st.none() | st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)),
)
@settings(max_examples=60, deadline=None)
def test_a_batch_of_keys_and_values_is_the_builders_to_the_byte(
    pairs: list[tuple[bytes, bytes | None]], transaction: tuple[int, int] | None
) -> None:
    builder = BatchBuilder()
    if transaction is not None:
        producer_id, producer_epoch = transaction
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=producer_epoch, transactional=True)
    for key, value in pairs:
        builder.append(value, key, timestamp_ms=1_700_000_000_000)
    batch, header = key_value_batch(pairs, 1_700_000_000_000, transaction)
    assert bytes(batch) == builder.build()
    assert header == read_header(batch)
    assert key_values(batch) == pairs


@each_case("codec", Codec)
@given(entries=entries)
@settings(max_examples=20, deadline=None)
def test_keys_and_values_are_those_of_the_records(codec: Codec, entries: list[Entry]) -> None:
    data = built(entries, codec)
    assert key_values(data) == [(record.key, record.value) for record in iter_records(data)]


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        key_value_batch([], 0)
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().build()


def test_the_cap_reaches_the_codec() -> None:
    batch = built([(None, bytes(100_000), 1, [])], Codec.ZSTD)
    with pytest.raises(DecompressedTooLarge):
        list(iter_records(batch, max_decompressed_bytes=100_000))
    assert len(list(iter_records(batch, max_decompressed_bytes=100_100))) == 1


def test_header_names_that_are_not_utf_8() -> None:
    body = bytes([1 + 1 + 1 + 1 + 1 + 1 + 2 + 1]) + b"\0\0\0\1\1\2\2\xff\1"
    body = bytes([(len(body) - 1) * 2]) + body[1:]
    assert [record.headers for record in iter_records(batch_of(body, 1))] == [[("\ufffd", None)]]


def batch_of(body: bytes, count: int, attributes: int = 0) -> bytes:
    header = BatchHeader(0, 49 + len(body), 0, 2, 0, attributes, 0, 0, 0, -1, -1, -1, count)
    return header.pack() + body


GOOD = bytes([14]) + b"\0\0\0\1\1\0"  # length 7 is wrong on purpose below; see `record`


def record(content: bytes) -> bytes:
    assert len(content) < 64
    return bytes([len(content) * 2]) + content


@each_case(
    ("body", "count"),
    [
        (b"", 1),
        (b"", 2**31 - 1),
        (record(b"\0\0\0\1\1\0"), 2),
        (record(b"\0\0\0\1\1\0") + b"x", 1),
        (record(b"\0\0\0\1\1\0"), 0),
        (GOOD, 1),
        (record(b"\0\0\0\1\1\0z"), 1),
        (b"\x01" + b"\0\0\0\1\1\0", 1),
        (b"\xfe\xff\xff\xff\x0f" + b"\0\0\0\1\1\0", 1),
        (record(b"\0\0\0\x03\1\0"), 1),
        (record(b"\0\0\0\xff\xff\xff\xff\x0f\1\0"), 1),
        (record(b"\0\0\0\xfe\xff\xff\xff\x0f\1\0"), 1),
        (record(b"\0\0\0\1\xfe\xff\xff\xff\x0f\0"), 1),
        (record(b"\0\0\0\1\1\x01"), 1),
        (record(b"\0\0\0\1\1\xfe\xff\xff\xff\x0f"), 1),
        (record(b"\0\0\0\1\1\x02\x01\x00"), 1),
        (record(b"\0\0\0\1\1\x02\x02a"), 1),
        (record(b"\0" + b"\xff" * 9 + b"\x02" + b"\0\1\1\0"), 1),
        (record(b"\0" + b"\x80" * 10 + b"\0" + b"\0\1\1\0"), 1),
        (b"\x80" * 70, 1),
    ],
)
def test_bodies_that_contradict_their_header(body: bytes, count: int) -> None:
    with pytest.raises(MalformedBatch):
        key_values(batch_of(body, count))
    for read in (iter_records, key_values, all_headers):
        with pytest.raises(MalformedBatch):
            list(read(batch_of(body, count)))


def all_headers(batch: bytes) -> list[Headers]:
    return headers_with_prefix(BatchBody(batch, read_header(batch)), b"", 2**31, 1 << 20)


@given(st.binary(max_size=200), st.integers(0, 2**31 - 1), st.integers(0, 7))
@settings(max_examples=400, deadline=None)
def test_noise_is_malformed_or_records(body: bytes, count: int, attributes: int) -> None:
    with contextlib.suppress(MalformedBatch):
        assert len(list(iter_records(batch_of(body, count, attributes)))) == count


@given(entries=entries, place=st.floats(0, 1), change=st.integers(1, 255), codec=st.sampled_from(Codec))
@settings(max_examples=200, deadline=None)
def test_damaged_batches_are_malformed_or_records(
    entries: list[Entry], place: float, change: int, codec: Codec
) -> None:
    batch = bytearray(built(entries, codec))
    batch[BATCH_HEADER_BYTES + int(place * (len(batch) - BATCH_HEADER_BYTES - 1))] ^= change
    with pytest.raises(MalformedBatch):
        verify(batch, 0, read_header(batch))
    with contextlib.suppress(MalformedBatch):
        assert len(list(iter_records(batch, max_decompressed_bytes=1 << 20))) == len(entries)


@each_case("codec", [Codec.NONE, Codec.GZIP])
def test_headers_alone_are_those_of_the_records(codec: Codec) -> None:
    builder = BatchBuilder(codec=codec)
    many: Headers = [(f"name {each}", b"v" * each) for each in range(200)]
    for value, key, headers in (
        (b"v" * 300, b"k", []),
        (None, None, [("a", None), ("a", b""), ("é", b"x" * 9000)]),
        (b"", b"k" * 70, many),
    ):
        builder.append(value, key, headers=headers, timestamp_ms=1 << 40)
    data = builder.build(base_offset=7)
    of_all = [each.headers for each in iter_records(data)]
    for prefix in ("a", "name ", "é", "name 1"):
        wanted = [[each for each in headers if each[0].startswith(prefix)] for headers in of_all]
        assert (
            headers_with_prefix(BatchBody(data, read_header(data)), prefix.encode(), 1000, 1 << 20) == wanted
        )
    assert headers_with_prefix(BatchBody(data, read_header(data)), b"nowhere", 0, 1 << 20) == []
    for most in (2, 199):
        with pytest.raises(TooManyRecords):
            headers_with_prefix(BatchBody(data, read_header(data)), b"a", most, 1 << 20)


def test_headers_of_what_is_no_batch() -> None:
    builder = BatchBuilder()
    builder.append(b"value", b"key", headers=[("a", b"b")], timestamp_ms=5)
    data = builder.build()
    for at in range(61, len(data)):
        for wrong in (data[at] ^ 1, 0xFF):
            broken = data[:at] + bytes([wrong]) + data[at + 1 :]
            try:
                mine = headers_with_prefix(BatchBody(broken, read_header(broken)), b"", 1000, 1 << 20)
            except MalformedBatch:
                with pytest.raises(MalformedBatch):
                    list(iter_records(broken))
            else:
                assert mine == [each.headers for each in iter_records(broken)]
