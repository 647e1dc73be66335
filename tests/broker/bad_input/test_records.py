"""Record batches that lie, bombs in what the broker opens, and bytes that end up where they do not belong."""

from __future__ import annotations

import asyncio
import gzip
import struct
import time
import tracemalloc
from typing import Any

import cramjam
import pytest

from lockstep.broker.fetch.api.list_offsets import first_record_at
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lockstep.protocol.records import control
from lockstep.protocol.records.batch import MalformedBatch, read_header
from lockstep.protocol.records.batch_filter import MAX_RECORDS
from lockstep.protocol.records.compression import Codec, decompress
from lockstep.protocol.records.record import BatchBuilder, iter_records
from tests.broker.bad_input.attack import INT_MAX, serves_others
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client, batch, frame, produce_request, records_of
from tests.support import handmade_frames as handmade
from tests.support.cases import each_case

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
ONE = handmade.record(0, None, b"value")
THREE = b"".join(handmade.record(number, b"k", b"v" * number) for number in range(3))

LIES: dict[str, tuple[bytes, ErrorCode]] = {
    "longer than its bytes": (handmade.batch(THREE, 3, length_error=1), ErrorCode.INVALID_RECORD),
    "shorter than its bytes": (handmade.batch(THREE, 3, length_error=-1), ErrorCode.INVALID_RECORD),
    "length INT_MAX": (
        handmade.batch(THREE, 3, length_error=INT_MAX + 12 - len(handmade.batch(THREE, 3))),
        ErrorCode.INVALID_RECORD,
    ),
    "length of less than a header": (handmade.batch(THREE, 3, length_error=-60), ErrorCode.CORRUPT_MESSAGE),
    "two batches": (handmade.values_batch([b"a"]) * 2, ErrorCode.INVALID_RECORD),
    "bytes behind it": (handmade.values_batch([b"a"]) + b"\0" * 11, ErrorCode.INVALID_RECORD),
    "base offset 1": (handmade.batch(ONE, 1, base_offset=1), ErrorCode.INVALID_RECORD),
    "base offset INT64_MAX": (handmade.batch(ONE, 1, base_offset=INT64_MAX), ErrorCode.INVALID_RECORD),
    "base offset INT64_MIN": (handmade.batch(ONE, 1, base_offset=INT64_MIN), ErrorCode.INVALID_RECORD),
    "delta below count": (handmade.batch(THREE, 3, last_offset_delta=1), ErrorCode.INVALID_RECORD),
    "delta above count": (handmade.batch(THREE, 3, last_offset_delta=3), ErrorCode.INVALID_RECORD),
    "delta INT_MAX": (handmade.batch(THREE, 3, last_offset_delta=INT_MAX), ErrorCode.INVALID_RECORD),
    "delta -1": (handmade.batch(THREE, 3, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    "count 0": (handmade.batch(b"", 0, last_offset_delta=0), ErrorCode.INVALID_RECORD),
    "count -1": (handmade.batch(THREE, -1, last_offset_delta=2), ErrorCode.INVALID_RECORD),
    "count and delta INT_MAX": (handmade.batch(THREE, INT_MAX), ErrorCode.INVALID_RECORD),
    "wrong CRC": (handmade.batch(THREE, 3, crc_error=1), ErrorCode.CORRUPT_MESSAGE),
    "inverted CRC": (handmade.batch(THREE, 3, crc_error=0xFFFFFFFF), ErrorCode.CORRUPT_MESSAGE),
    "magic 3": (handmade.batch(THREE, 3, magic=3), ErrorCode.CORRUPT_MESSAGE),
    "magic 127": (handmade.batch(THREE, 3, magic=127), ErrorCode.CORRUPT_MESSAGE),
    "magic -1": (handmade.batch(THREE, 3, magic=-1), ErrorCode.CORRUPT_MESSAGE),
    "codec 5": (handmade.batch(THREE, 3, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (handmade.batch(THREE, 3, attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "negative epoch": (
        handmade.batch(ONE, 1, producer_id=1, producer_epoch=-1, base_sequence=0),
        ErrorCode.INVALID_RECORD,
    ),
    "negative sequence": (
        handmade.batch(ONE, 1, producer_id=1, producer_epoch=0, base_sequence=-5),
        ErrorCode.INVALID_RECORD,
    ),
    "far future": (handmade.batch(ONE, 1, timestamp=INT64_MAX), ErrorCode.INVALID_TIMESTAMP),
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "half a header": (handmade.values_batch([b"a"])[:40], ErrorCode.INVALID_RECORD),
}


@pytest.fixture
async def client(target: Broker) -> Any:
    connected = await Client.connect(target.port)
    await connected.create("t")
    yield connected
    await connected.close()


@pytest.mark.parametrize(("records", "error"), LIES.values(), ids=LIES.keys())
async def test_a_batch_that_lies(client: Client, records: bytes, error: ErrorCode) -> None:
    """Length, offsets, counts, CRC, magic, codec, producer: refused, and nothing is stored."""
    answer = await client.produce("t", records)
    assert answer.error_code == error
    assert answer.base_offset == -1
    assert (await client.fetch("t", 0)).high_watermark == 0
    assert (await client.produce("t", batch(b"honest"))).base_offset == 0


@pytest.mark.parametrize("magic", [0, 1])
async def test_batches_of_old_magic(client: Client, magic: int) -> None:
    """Message sets of Kafka 0.7 to 0.10 are refused by name, never taken for a batch."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1) if magic else b"") + struct.pack(">ii", -1, 1)
    message = struct.pack(">qiI", 0, len(body) + 5, 0) + body + b"v"
    for records in (message, message * 3, handmade.batch(THREE, 3, magic=magic)):
        answer = await client.produce("t", records)
        assert answer.error_code == ErrorCode.INVALID_RECORD
    assert (await client.fetch("t", 0)).high_watermark == 0


async def test_control_batches_of_clients(client: Client) -> None:
    """CVE-2018-17196, CVE-2023-50976: a client may not end transactions by writing their markers."""
    marker = control.build(
        control.ControlKind.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    )
    for attributes in (0x20, 0x30, -1, 0x7FF0):
        for records in (
            marker,
            handmade.batch(ONE, 1, attributes=attributes, producer_id=1, producer_epoch=0),
        ):
            answer = await client.produce("t", records)
            assert answer.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    assert (await client.fetch("t", 0)).high_watermark == 0


async def test_transactional_batches_outside_a_transaction(client: Client) -> None:
    """CVE-2018-17196, CVE-2023-50976: the transactional flag is no way around the transaction's checks."""
    records = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    records.append(b"v", timestamp_ms=1)
    request = produce_request("t", records.build())
    for name in (None, "", "mine", "x" * 30_000):
        request.transactional_id = name
        answer = await client.call(request, 9)
        assert answer.responses[0].partition_responses[0].error_code != ErrorCode.NONE
    assert (await client.fetch("t", 0)).high_watermark == 0


@pytest.mark.parametrize("timestamp", [INT64_MIN, INT64_MIN + 1, -2, -1, 0, INT64_MAX - 1, INT64_MAX])
async def test_extreme_timestamps(start_broker: StartBroker, timestamp: int) -> None:
    """Times at both ends of 64 bits, in batches, in lookups, under retention: nothing overflows."""
    broker = await start_broker(
        log_message_timestamp_after_max_ms=str(INT64_MAX),
        log_retention_ms="1",
        lockstep_segment_bytes="1048576",
    )
    client = await Client.connect(broker.port)
    await client.create("t")
    answer = await client.produce("t", handmade.batch(ONE, 1, timestamp=timestamp))
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP)
    await client.produce("t", handmade.batch(ONE, 1))
    for wanted in (timestamp, INT64_MIN, INT64_MAX, -1, -2, -3, -4, -5, -6, -7, 0):
        asked = ListOffsetsPartition(partition_index=0, timestamp=wanted)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
        for version in (1, 7, 11):
            assert len((await client.call(request, version)).topics[0].partitions) == 1
    await broker.enforce_retention()
    assert (await client.fetch("t", 2)).high_watermark <= 2
    await serves_others(broker)
    await client.close()


async def test_producer_sequences_wrap(client: Client) -> None:
    """After 2^31-1 comes 0, within a batch and between batches; anything else is out of order."""

    def of(sequence: int, *values: bytes, epoch: int = 0) -> bytes:
        return batch(*values, producer_id=7, producer_epoch=epoch, base_sequence=sequence)

    assert (await client.produce("t", of(INT_MAX - 1, b"a", b"b"))).base_offset == 0
    assert (await client.produce("t", of(INT_MAX, b"x"))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await client.produce("t", of(0, b"c"))).base_offset == 2
    assert (await client.produce("t", of(INT_MAX - 1, b"a", b"b"))).base_offset == 0  # again: a duplicate
    assert (await client.produce("t", of(2, b"x"))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await client.produce("t", of(1, b"d"))).base_offset == 3
    across = batch(b"e", b"f", b"g", producer_id=8, producer_epoch=0, base_sequence=INT_MAX - 1)
    assert (await client.produce("t", across)).base_offset == 4
    after = batch(b"h", producer_id=8, producer_epoch=0, base_sequence=1)
    assert (await client.produce("t", after)).base_offset == 7


async def test_producer_epochs_wrap(client: Client) -> None:
    """The last epoch is 2^15-1; an older one is fenced, also right after it."""

    def of(epoch: int, sequence: int = 0) -> bytes:
        return batch(b"v", producer_id=7, producer_epoch=epoch, base_sequence=sequence)

    assert (await client.produce("t", of(32766))).error_code == 0
    assert (await client.produce("t", of(32767, 1))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await client.produce("t", of(32767))).error_code == 0
    for epoch in (0, 1, 32766):
        assert (await client.produce("t", of(epoch))).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await client.produce("t", of(-32768))).error_code == ErrorCode.INVALID_RECORD
    assert (await client.produce("t", of(32767, 1))).error_code == 0


# --- compression ------------------------------------------------------------------------------------------

EXPANDED = 256 << 20


def _lz4_bomb() -> bytes:
    """One frame of blocks of 4 MiB, each of a few KiB."""
    block = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
    one = struct.pack("<I", len(block)) + block
    header = b"\x04\x22\x4d\x18\x60\x70\x73"
    return header + one * (EXPANDED >> 23) + bytes(4)


def bombs() -> dict[str, tuple[int, bytes]]:
    zeros = bytes(16 << 20)
    return {
        "gzip": (Codec.GZIP, gzip.compress(bytes(EXPANDED), 9)),
        "gzip members": (Codec.GZIP, gzip.compress(zeros, 9) * 16),
        "snappy": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(8 << 20)))),
        "lz4": (Codec.LZ4, _lz4_bomb()),
        "zstd": (Codec.ZSTD, bytes(cramjam.zstd.compress(zeros, 3)) * 16),
        "zstd, one frame": (Codec.ZSTD, bytes(cramjam.zstd.compress(bytes(EXPANDED), 3))),
    }


BOMBS = bombs()


@pytest.mark.parametrize(("codec", "data"), BOMBS.values(), ids=BOMBS.keys())
async def test_bombs_in_what_the_broker_opens(start_broker: StartBroker, codec: int, data: bytes) -> None:
    """Kafka #23429, CVE-2026-111073: ListOffsets by time opens a batch, up to lockstep.lookup.max.bytes."""
    limit = 4 << 20
    broker = await start_broker(
        lockstep_lookup_max_bytes=str(limit), message_max_bytes="1000000", lockstep_segment_bytes="4194304"
    )
    client = await Client.connect(broker.port)
    await client.create("t")
    records = handmade.batch(data, 1000, attributes=codec, timestamp=1_000)
    assert (await client.produce("t", records)).error_code == 0
    asked = ListOffsetsPartition(partition_index=0, timestamp=500)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    tracemalloc.start()
    try:
        began = time.process_time()
        (found,) = (await client.call(request, 7)).topics[0].partitions
        spent = time.process_time() - began
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.error_code == 0
    assert found.offset == 0  # the batch itself: the best answer that can be had
    assert peak < limit + 2 * len(data) + (2 << 20)
    assert spent < 2.0
    await client.close()


async def test_well_made_batches_of_too_many_records(start_broker: StartBroker) -> None:
    """Small, and nothing is wrong with them but how many they are: each would have to be looked at."""
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("compacted", cleanup_policy="compact")
    await client.create("plain")
    count = MAX_RECORDS + 10
    records = handmade.batch(
        gzip.compress(handmade.record(0, b"", b"") * count), count, attributes=int(Codec.GZIP)
    )
    assert len(records) < 20_000
    tracemalloc.start()
    try:
        refused = await client.produce("compacted", records)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert (await client.produce("plain", records)).error_code == 0
    newest = read_header(records).max_timestamp
    assert first_record_at(records, newest, 0, 64 << 20) == (0, newest)
    assert first_record_at(records, newest, 5, 64 << 20) == (5, newest), "none of those looked at: the batch"
    await client.close()


def xerial(*chunks: tuple[int, bytes]) -> bytes:
    head = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    return head + b"".join(struct.pack(">i", size) + chunk for size, chunk in chunks)


@each_case("size", [-1, 0, INT_MAX, INT_MAX - 1, -(2**31), 1 << 20])
def test_snappy_chunk_lengths(size: int) -> None:
    """CVE-2023-34455: a chunk length of -1 or INT_MAX in xerial's framing allocates nothing."""
    good = bytes(cramjam.snappy.compress_raw(b"good"))
    for data in (xerial((size, good)), xerial((len(good), good), (size, b""))):
        tracemalloc.start()
        try:
            with pytest.raises(MalformedBatch):
                decompress(Codec.SNAPPY, data)
            assert tracemalloc.get_traced_memory()[1] < 64 << 10
        finally:
            tracemalloc.stop()
    assert decompress(Codec.SNAPPY, xerial((len(good), good))) == b"good"


@each_case("size", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\xff" * 10])
def test_snappy_lengths_inside_a_block(size: bytes) -> None:
    """CVE-2023-34455: the length that a raw block says it holds is believed as far as a block can expand."""
    for data in (size + b"\0", size + bytes(1000), xerial((len(size) + 1, size + b"\0"))):
        tracemalloc.start()
        try:
            with pytest.raises(MalformedBatch):
                decompress(Codec.SNAPPY, data)
            assert tracemalloc.get_traced_memory()[1] < 128 << 10
        finally:
            tracemalloc.stop()


def test_lz4_blocks_that_point_outside_their_output() -> None:
    """CVE-2025-12183, CVE-2025-66566: crafted matches read no memory that is not their own output."""
    header = b"\x04\x22\x4d\x18\x60\x40\x82"
    for offset in (0, 2, 0x100, 0xFFFF):
        block = b"\x1fA" + struct.pack("<H", offset) + b"\x40" + b"\x50BBBBB"
        data = header + struct.pack("<I", len(block)) + block + bytes(4)
        try:
            out = bytes(decompress(Codec.LZ4, data, 1 << 16))
        except MalformedBatch:
            continue
        assert set(out) <= set(b"AB\0"), f"offset {offset}: bytes of somebody else"
    cut = b"\xf0\xff\xff\xff"
    with pytest.raises(MalformedBatch):
        decompress(Codec.LZ4, header + struct.pack("<I", len(cut)) + cut + bytes(4), 1 << 16)


def test_record_lengths_inside_a_batch() -> None:
    """Negative, overlong and ten-byte varints in records, and counts beyond them, are refused."""
    varints = [
        handmade.varint(-1),
        handmade.varint(-2),
        handmade.varint(INT_MAX),
        handmade.varint(INT64_MIN),
        b"\xff" * 10,
    ]
    varints += [b"\xff" * 9 + b"\x01", b"\xff" * 30, b"\x80" * 9 + b"\x02", b""]
    body = b"\0" + handmade.varint(0) + handmade.varint(0)
    for bad in varints:
        for records in (
            bad,
            handmade.varint(40) + body + bad + bytes(40),
            handmade.varint(6) + body + b"\x01\x01" + bad,
        ):
            data = handmade.batch(records, 1, timestamp=5)
            with pytest.raises(MalformedBatch):
                list(iter_records(data))
            assert first_record_at(data, 1, 0, 1 << 20) == (0, 5)


async def test_a_batch_whose_records_cannot_be_read_is_found_by_time(client: Client) -> None:
    """Kafka #23429: the broker stores such a batch (it opens none), and a lookup by time answers with it."""
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        answer = await client.produce(
            "t", handmade.batch(b"no such data", 2, attributes=codec, timestamp=9_000)
        )
        assert answer.error_code == 0
    asked = ListOffsetsPartition(partition_index=0, timestamp=8_000)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    (found,) = (await client.call(request, 7)).topics[0].partitions
    assert (found.error_code, found.offset) == (0, 0)


# --- whose bytes ------------------------------------------------------------------------------------------


async def test_bytes_of_one_topic_are_never_in_another(start_broker: StartBroker) -> None:
    """CVE-2026-35554: receive buffers are reused at once; what was appended or named from them is not."""
    broker = await start_broker(message_max_bytes="400000", lockstep_segment_bytes="4194304")
    setup = await Client.connect(broker.port)
    names = [f"topic-{letter}" for letter in "abcdefgh"]
    for name in names:
        await setup.create(name)

    async def write(name: str) -> None:
        client = await Client.connect(broker.port)
        mark = name[-1].encode()
        sent = bytearray()
        for number, size in enumerate((1, 100, 5_000, 70_000, 300_000, 10, 4_000, 140_000) * 3):
            sent += frame(produce_request(name, batch(mark * size)), 9, number)
        for start in range(0, len(sent), 30_011):  # frames come in pieces, several to a read
            client.writer.write(sent[start : start + 30_011])
            await asyncio.sleep(0)
        for _ in range(24):
            await asyncio.wait_for(client.receive_raw(), 20)
        await client.close()

    await asyncio.gather(*map(write, names))
    for name in names:
        offset = 0
        while offset < 24:
            found = records_of(await setup.fetch(name, offset, partition_max_bytes=1 << 20))
            for record in found:
                assert record.value is not None
                assert set(record.value) == set(name[-1].encode()), f"{name} at {record.offset}"
            offset = found[-1].offset + 1
    assert sorted(topic.name for topic in broker.assembly.cluster.topics()) == names
    await setup.close()
