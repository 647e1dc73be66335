"""The benchmark's hand-written messages, judged by an independent codec (kio) and by the project's reader."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from crc32c import crc32c
from kio.schema.fetch.v12.request import FetchRequest
from kio.schema.produce.v9.request import ProduceRequest
from kio.schema.request_header.v2.header import RequestHeader
from kio.serial import entity_reader

from bench.load.wire import (
    BATCH_OVERHEAD_BYTES,
    FetchTemplate,
    ProduceTemplate,
    UnexpectedResponse,
    batch_is_sound,
    batch_span,
    record_batch,
)
from lockstep.protocol.records.batch import BATCH_HEADER_BYTES, read_header, verify
from tests.support.cases import each_case

TIMESTAMP_MS = 1_700_000_000_000


def test_the_batch_is_one_the_project_accepts() -> None:
    batch = record_batch(3, 1024, TIMESTAMP_MS)
    header = read_header(batch)
    verify(batch, 0, header)
    assert (header.record_count, header.total_bytes, header.magic) == (3, len(batch), 2)
    assert header.next_offset == 3


def test_the_span_and_the_checksum_of_a_batch() -> None:
    batch = bytearray(record_batch(15, 1024, TIMESTAMP_MS))
    struct.pack_into(">q", batch, 0, 700)
    view = memoryview(batch)
    assert batch_span(view, 0) == (700, 715, len(batch))
    assert batch_is_sound(view, 0, len(batch))
    batch[-1] ^= 1
    assert not batch_is_sound(view, 0, len(batch))


def _read(frame: bytes, entity: Any) -> tuple[Any, Any]:
    """(header, body) of a request frame that nothing may follow."""
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    header, header_bytes = entity_reader(RequestHeader)(frame, 4)
    body, body_bytes = entity_reader(entity)(frame, 4 + header_bytes)
    assert 4 + header_bytes + body_bytes == len(frame)
    return header, body


def test_the_produce_request_reads_back() -> None:
    batch = record_batch(1, 64, TIMESTAMP_MS)
    template = ProduceTemplate("a-topic", {0: batch, 7: batch}, 2)
    header, body = _read(bytes(template.stamp(41)), ProduceRequest)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (0, 9, 41)
    assert body.acks == -1
    (topic,) = body.topic_data
    assert topic.name == "a-topic"
    assert [(each.index, each.records) for each in topic.partition_data] == [(0, batch), (7, batch)]
    assert template.batch_bytes == 2 * len(batch)


def test_the_fetch_request_reads_back() -> None:
    template = FetchTemplate("a-topic", 3, max_bytes=5000, partition_max_bytes=900)
    header, body = _read(bytes(template.stamp(9, 123_456)), FetchRequest)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (1, 12, 9)
    (topic,) = body.topics
    (partition,) = topic.partitions
    assert (topic.topic, partition.partition, partition.fetch_offset) == ("a-topic", 3, 123_456)
    assert (partition.partition_max_bytes, body.max_bytes) == (900, 5000)


def produce_response(topic: bytes, correlation_id: int, codes: list[int]) -> bytearray:
    """What a broker answers to Produce v9."""
    partitions = b"".join(
        struct.pack(">ihqqq", index, code, 5, -1, 0) + b"\x01\x00\x00" for index, code in enumerate(codes)
    )
    body = struct.pack(">i", correlation_id) + b"\x00\x02" + bytes([len(topic) + 1]) + topic
    body += bytes([len(codes) + 1]) + partitions + b"\x00" + struct.pack(">i", 0) + b"\x00"
    return bytearray(struct.pack(">i", len(body)) + body)


def test_a_good_produce_response_passes() -> None:
    template = ProduceTemplate("t", {0: b"x", 1: b"x"}, 2)
    frame = produce_response(b"t", 7, [0, 0])
    assert len(frame) == template.response_bytes
    template.verify(frame, 7)


@each_case(
    ("frame", "why"),
    [
        (produce_response(b"t", 8, [0, 0]), "correlation id 8"),
        (produce_response(b"t", 7, [0, 6]), "error code 6"),
        (produce_response(b"t", 7, [0]), "error code|bytes"),
        (produce_response(b"t", 7, [0, 0]) + b"\x00", "bytes instead of"),
    ],
)
def test_a_wrong_produce_response_does_not(frame: bytearray, why: str) -> None:
    template = ProduceTemplate("t", {0: b"x", 1: b"x"}, 2)
    with pytest.raises(UnexpectedResponse, match=why):
        template.verify(frame, 7)


def fetch_response(
    topic: bytes, correlation_id: int, code: int, high_watermark: int, records: bytes
) -> bytes:
    """What a broker answers to Fetch v12; records shorter than 127 bytes."""
    body = (
        struct.pack(">ibihi", correlation_id, 0, 0, 0, 0)
        + b"\x02"
        + bytes([len(topic) + 1])
        + topic
        + b"\x02"
    )
    body += struct.pack(">ihqqq", 0, code, high_watermark, high_watermark, 0) + b"\x00"
    body += struct.pack(">i", -1) + bytes([len(records) + 1]) + records + b"\x00\x00\x00"
    return struct.pack(">i", len(body)) + body


def test_the_records_of_a_fetch_response_are_found() -> None:
    template = FetchTemplate("t", 0, max_bytes=1, partition_max_bytes=1)
    frame = memoryview(fetch_response(b"t", 5, 0, 99, b"R" * 40))
    high_watermark, start, end = template.records(frame, 5)
    assert (high_watermark, bytes(frame[start:end])) == (99, b"R" * 40)
    with pytest.raises(UnexpectedResponse, match="error code 3"):
        template.records(memoryview(fetch_response(b"t", 5, 3, -1, b"")), 5)
    with pytest.raises(UnexpectedResponse, match="correlation id 5"):
        template.records(frame, 6)


def test_sizes_agree_with_the_format() -> None:
    batch = record_batch(1, 10, TIMESTAMP_MS)
    assert struct.unpack_from(">i", batch, 8)[0] == len(batch) - BATCH_OVERHEAD_BYTES
    assert struct.unpack_from(">I", batch, 17)[0] == crc32c(batch[21:])
    assert len(batch) > BATCH_HEADER_BYTES
