"""Batches opened for their keys and made again with fewer records: every client reads what was kept."""

from __future__ import annotations

import random

import pytest

from lockstep.protocol.records.batch import MalformedBatch, read_header, set_log_append_time, verify
from lockstep.protocol.records.batch_filter import (
    MAX_RECORDS,
    filter_batch,
    keyless_indexes,
    open_batch,
    overflowing_timestamps,
    rebuild_batch,
    replace_value,
    timestamps,
)
from lockstep.protocol.records.compression import Codec, DecompressedTooLarge
from lockstep.protocol.records.record import BatchBuilder, iter_records
from tests.support.cases import each_case


def some(codec: Codec = Codec.NONE, count: int = 9, base_offset: int = 40) -> bytes:
    """Records with and without key, value and headers, their timestamps going back and forth."""
    builder = BatchBuilder(codec, producer_id=7, producer_epoch=2, base_sequence=11, leader_epoch=5)
    for at in range(count):
        builder.append(
            None if at % 4 == 3 else b"v" * (at * 30),
            None if at % 5 == 4 else b"k" * (at * 20),
            timestamp_ms=1_000_000 + (at * 7919) % 1000 - 500,
            headers=[("h", None), ("i", b"x" * at)] if at % 2 else (),
        )
    return builder.build(base_offset)


@each_case("codec", Codec)
def test_parts_are_the_records(codec: Codec) -> None:
    batch = some(codec)
    was = open_batch(batch)
    records = list(iter_records(batch))
    assert [part.key for part in was.spans] == [record.key for record in records]
    assert [part.has_value for part in was.spans] == [record.value is not None for record in records]
    assert [part.offset for part in was.spans] == [record.offset for record in records]
    assert keyless_indexes(was) == [4] and not overflowing_timestamps(was)


@each_case("horizon_ms", [None, 0, 999_999, 90_000_000])
@each_case("codec", Codec)
def test_what_is_kept_reads_as_it_was(codec: Codec, horizon_ms: int | None) -> None:
    batch = some(codec)
    was, records = open_batch(batch), list(iter_records(batch))
    for rows in ([0], [8], [1, 4, 7], list(range(9))):
        made, newest = filter_batch(was, [was.spans[row] for row in rows], horizon_ms)
        assert list(iter_records(made)) == [records[row] for row in rows]
        header, before = read_header(made), was.header
        verify(made, 0, header)
        assert newest == header.max_timestamp == max(records[row].timestamp for row in rows)
        assert header.has_delete_horizon == (horizon_ms is not None)
        assert horizon_ms is None or header.base_timestamp == horizon_ms
        for name in ("base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch"):
            assert getattr(header, name) == getattr(before, name)
        assert (header.base_sequence, header.codec) == (11, codec)
        again = open_batch(made)
        assert filter_batch(again, again.spans).batch == made


def test_the_time_of_a_batch_that_the_broker_stamped_stays() -> None:
    batch = bytearray(some())
    set_log_append_time(batch, 5_000_000)
    was = open_batch(batch)
    for horizon_ms in (None, 6_000_000):
        made, newest = filter_batch(was, was.spans[2:4], horizon_ms)
        assert newest == read_header(made).max_timestamp == 5_000_000
        assert [record.timestamp for record in iter_records(made)] == [5_000_000] * 2


def test_whatever_is_no_batch_is_refused() -> None:
    good = some(count=4)
    rng = random.Random(5)
    refused = 0
    for _ in range(3000):
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(61, len(bad))] = rng.randrange(256)
        try:
            open_batch(bad)
        except MalformedBatch:
            refused += 1
    assert refused > 100
    for size in range(len(good)):
        with pytest.raises(MalformedBatch):
            open_batch(good[:size])
    with pytest.raises(DecompressedTooLarge):
        open_batch(some(Codec.ZSTD), max_decompressed_bytes=100)


def test_more_records_than_are_worth_looking_at_are_not_looked_at() -> None:
    many = bytearray(some(Codec.ZSTD))
    many[57:61] = (MAX_RECORDS + 1).to_bytes(4, "big")
    with pytest.raises(MalformedBatch, match="200001 records in a batch, 200000 are looked at"):
        open_batch(many, max_decompressed_bytes=0)


@each_case("count", [3, 5])
def test_a_count_that_lies_is_refused(count: int) -> None:
    bad = bytearray(some(count=4))
    bad[57:61] = count.to_bytes(4, "big")
    with pytest.raises(MalformedBatch, match=r"after the last record|before them|left"):
        open_batch(bad)


@each_case(("at", "value"), [(61, 0x7F), (61, 1), (64, 9), (64, 1), (65, 0x7F), (67, 3)])
def test_lengths_and_deltas_that_lie_are_refused(at: int, value: int) -> None:
    builder = BatchBuilder()
    builder.append(b"v", b"k", timestamp_ms=5)
    bad = bytearray(builder.build())
    bad[at] = value
    with pytest.raises(MalformedBatch):
        open_batch(bad)


LIMIT = 1 << 63


@each_case("codec", [Codec.NONE, Codec.ZSTD])
@each_case("base", [LIMIT - 1, -LIMIT, -LIMIT + 7, 0])
def test_batches_are_built_with_impossible_timestamps(base: int, codec: Codec) -> None:
    builder = BatchBuilder(codec)
    for at in range(4):
        builder.append(b"v", b"k%d" % at, timestamp_ms=at * 1000)
    batch = bytearray(builder.build())
    batch[27:35] = base.to_bytes(8, "big", signed=True)
    was, records = open_batch(batch), list(iter_records(batch))
    assert overflowing_timestamps(was) == ([1, 2, 3] if base == LIMIT - 1 else [])
    assert (
        timestamps(was.header, was.spans)
        == [r.timestamp for r in records]
        == [(base + at * 1000 + LIMIT) % (2 * LIMIT) - LIMIT for at in range(4)]
    )
    for horizon_ms in (None, 1_700_000_000_000, LIMIT - 1):
        made, newest = filter_batch(was, was.spans[1:], horizon_ms)
        assert list(iter_records(made)) == records[1:]
        assert newest == read_header(made).max_timestamp == max(r.timestamp for r in records[1:])


def test_a_horizon_of_too_many_bits_makes_no_batch() -> None:
    was = open_batch(some())
    with pytest.raises(MalformedBatch, match="cannot be made again"):
        filter_batch(was, was.spans, 1 << 63)


@each_case("value", [None, b"", b"v", b"x" * 200])
def test_a_record_with_another_value_is_the_same_otherwise(value: bytes | None) -> None:
    batch = some(count=6)
    was, records = open_batch(batch), list(iter_records(batch))
    body = b"".join([replace_value(was.data, part.start, part.end, value) for part in was.spans])
    made = rebuild_batch(was.header, body, len(records), was.header.max_timestamp, Codec.LZ4)
    header = read_header(made)
    verify(made, 0, header)
    assert header.codec == Codec.LZ4
    for record in records:
        record.value = value
    assert list(iter_records(made)) == records
