"""The batch header: layout, checksum, the two patches, and hostile headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from lockstep.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    HEADER,
    BatchHeader,
    CorruptBatch,
    MalformedBatch,
    clear_log_append_time,
    crc_of,
    empty_batch,
    iter_headers,
    patch_whole,
    peek_header,
    read_header,
    set_log_append_time,
    set_max_timestamp,
    verify,
)
from tests.support.cases import each_case


def foreign_batch(count: int = 3, producer_id: int = 77, base_sequence: int = 5) -> bytearray:
    """A batch as kafka-python builds it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=producer_id,
        producer_epoch=9,
        base_sequence=base_sequence,
        batch_size=1 << 20,
    )
    for number in range(count):
        builder.append(number, 1000 + number, b"key", b"value %d" % number, [("h", b"v")])
    return bytearray(builder.build())


header_values = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(49, 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.just(2),
    st.integers(0, 2**32 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**31 - 1),
)


@given(header_values, st.binary(max_size=9))
def test_headers_round_trip_at_any_position(values: tuple[int, ...], before: bytes) -> None:
    header = BatchHeader(*values)
    packed = header.pack()
    assert len(packed) == BATCH_HEADER_BYTES == HEADER.size
    assert peek_header(before + packed, len(before)) == header


def test_a_foreign_batch_reads_as_its_own_client_reads_it() -> None:
    batch = foreign_batch()
    header = read_header(batch)
    theirs = DefaultRecordBatch(bytes(batch))
    assert header.total_bytes == len(batch)
    assert (header.base_offset, header.crc, header.attributes) == (
        theirs.base_offset,
        theirs.crc,
        theirs.attributes,
    )
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 9, 5)
    assert (header.record_count, header.last_offset_delta, header.last_sequence) == (3, 2, 7)
    assert header.is_transactional and not header.is_control and not header.is_log_append_time
    assert header.codec == 0
    verify(batch, 0, header)
    verify(memoryview(b"junk" + batch), 4, header)


@each_case("position", [21, 40, 61, -1])
def test_one_changed_bit_is_corrupt(position: int) -> None:
    batch = foreign_batch()
    header = read_header(batch)
    batch[position] ^= 0x04
    with pytest.raises(CorruptBatch, match="CRC-32C"):
        verify(batch, 0, header)


def test_patch_leaves_the_checksum_valid() -> None:
    batch = foreign_batch()
    before = bytes(batch)
    patch_whole(batch, 123_456_789_012, 42)
    header = read_header(batch)
    verify(batch, 0, header)
    assert (header.base_offset, header.leader_epoch) == (123_456_789_012, 42)
    assert (header.last_offset, header.next_offset) == (123_456_789_014, 123_456_789_015)
    assert batch[8:12] == before[8:12] and batch[16:] == before[16:]


def test_log_append_time_changes_flag_and_max_timestamp_and_is_valid() -> None:
    batch = foreign_batch()
    crc = set_log_append_time(batch, 999_999)
    header = read_header(batch)
    assert header.crc == crc == crc_of(batch, 0, len(batch))
    assert header.is_log_append_time and header.is_transactional
    assert (header.base_timestamp, header.max_timestamp) == (1000, 999_999)
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert [record.timestamp for record in theirs] == [999_999] * 3


@each_case(
    ("base", "delta", "last"),
    [(0, 0, 0), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6), (-1, 4, -1)],
)
def test_sequences_wrap(base: int, delta: int, last: int) -> None:
    assert BatchHeader(0, 49, 0, 2, 0, 0, delta, 0, 0, 1, 1, base, delta + 1).last_sequence == last


@each_case("magic", [-1, 0, 1, 3, 127])
def test_other_magics_are_refused(magic: int) -> None:
    batch = foreign_batch()
    batch[16] = magic & 0xFF
    with pytest.raises(MalformedBatch, match=f"magic {magic} "):
        read_header(batch)


@each_case("length", [-1, -(2**31), 0, 48, 2**31 - 1])
def test_impossible_lengths_are_refused(length: int) -> None:
    batch = foreign_batch()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedBatch):
        read_header(batch)


@each_case("position", [23, 57])
def test_negative_counts_are_refused(position: int) -> None:
    batch = foreign_batch()
    batch[position] = 0xFF
    with pytest.raises(MalformedBatch, match="cannot be"):
        read_header(batch)


def test_short_buffers_are_refused() -> None:
    batch = foreign_batch()
    for size in range(BATCH_HEADER_BYTES):
        with pytest.raises(MalformedBatch):
            read_header(batch[:size])
    with pytest.raises(MalformedBatch, match="reports"):
        read_header(batch[:-1])
    with pytest.raises(MalformedBatch):
        read_header(batch, -1)
    assert peek_header(batch[:-1]).total_bytes == len(batch)


def test_iteration_stops_at_a_cut_batch_and_refuses_anything_else() -> None:
    one = bytes(foreign_batch())
    for cut in range(len(one)):
        assert [pos for pos, _ in iter_headers(one + one + one[:cut])] == [0, len(one)]
    with pytest.raises(MalformedBatch):
        list(iter_headers(one + b"\x07" * 100))
    assert list(iter_headers(b"")) == []


def test_a_brokers_own_changes_are_in_the_bytes_the_header_and_the_checksum() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, 5_000, None, b"v", [])
    batch = bytearray(builder.build())
    set_log_append_time(batch, 6_000)
    header = read_header(batch)
    clear_log_append_time(batch, header)
    assert header == read_header(batch) and not header.is_log_append_time
    set_max_timestamp(batch, header, 7_000)
    assert header == read_header(batch) and header.max_timestamp == 7_000
    verify(batch, 0, header)


@each_case(("end_offset", "last_offset"), [(8, 7), (1000, 999), (1 << 40, 7 + (1 << 31) - 1)])
def test_an_empty_batch_takes_clients_over_its_offsets(end_offset: int, last_offset: int) -> None:
    batch = empty_batch(7, end_offset)
    header = read_header(batch)
    verify(batch, 0, header)
    assert (header.base_offset, header.last_offset, header.record_count) == (7, last_offset, 0)
    assert header.total_bytes == len(batch) == BATCH_HEADER_BYTES
    theirs = DefaultRecordBatch(batch)
    assert theirs.validate_crc() and list(theirs) == []
    assert theirs.next_offset == last_offset + 1
