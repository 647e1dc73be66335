"""Bytes that are no request: lengths, headers, varints, other protocols; and requests nobody waits for."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc

from lockstep.broker.server import Broker
from lockstep.protocol.api import ApiKey, request_header_version
from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.api_versions import ApiVersionsRequest
from lockstep.protocol.messages.metadata import MetadataRequest
from lockstep.protocol.primitives import uvarint_bytes
from tests.broker.bad_input.attack import (
    INT_MAX,
    SERVED,
    api_id,
    framed,
    head,
    is_refused,
    outcome,
    request_class,
    serves_others,
)
from tests.broker.conftest import StartBroker
from tests.broker.fakes import open_connections
from tests.broker.wire import Client, batch, frame, produce_request
from tests.protocol.test_hostile import _with_elements, arrays
from tests.support.cases import each_case

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(190)
TLS_LENGTH = 352_518_912


@each_case("length", [INT_MAX, INT_MAX - 1, -1, -(2**31), 104_857_601, TLS_LENGTH])
async def test_a_frame_length_beyond_the_limit(target: Broker, length: int) -> None:
    """CVE-2022-34917 / KAFKA-14063: a length up to INT_MAX in a tiny frame is refused, not believed."""
    tracemalloc.start()
    try:
        assert await is_refused(target, struct.pack(">i", length) + b"tiny")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@each_case("served", SERVED, ids=api_id)
async def test_counts_up_to_int_max_in_a_tiny_frame(target: Broker, served: tuple[int, int, int]) -> None:
    """CVE-2022-34917: each array of each request of each served API says it has up to INT_MAX elements."""
    key, first, last = served
    cls = request_class(key)
    for version in {first, last}:
        for raw in _with_huge_counts(cls, version):
            assert await is_refused(target, framed(head(key, version) + raw))


def _with_huge_counts(cls: type[Struct], version: int) -> list[bytes]:
    found = []
    for path in arrays(cls, version):
        if any(version in field.tagged for field in path):
            continue
        one = _with_elements(cls, version, path, "wide", 1)
        two = _with_elements(cls, version, path, "wide", 2)
        at = next(i for i in range(len(one)) if one[i] != two[i])
        for count in (INT_MAX - 1, 0x00FF_FFFF):
            if version in cls.SCHEMA.flexible:
                found.append(one[:at] + uvarint_bytes(count + 1) + one[at + 1 :])
            else:
                found.append(one[: at - 3] + struct.pack(">i", count) + one[at + 1 :])
    return found


async def test_strings_and_bytes_up_to_int_max_in_a_tiny_frame(target: Broker) -> None:
    """CVE-2022-34917: the same for lengths of strings and of data, classic and compact."""
    for length in (INT_MAX, 0x00FF_FFFF, 0x7FFF):
        compact = b"\x02" + bytes(16) + uvarint_bytes(length) + b"x"
        assert await is_refused(target, framed(head(ApiKey.METADATA, 12) + compact))
    assert await is_refused(target, framed(head(ApiKey.METADATA, 1) + struct.pack(">ih", 1, 0x7FFF) + b"x"))
    produce = struct.pack(">hhiih", -1, -1, 1, 1, 1) + b"t" + struct.pack(">iii", 1, 0, INT_MAX)
    assert await is_refused(target, framed(head(ApiKey.PRODUCE, 7) + produce))


async def test_twenty_million_tagged_fields_in_a_header(start_broker: StartBroker) -> None:
    """CVE-2026-111115: ApiVersions 3 whose header has 20 million two-byte tagged fields, all there."""
    broker = await start_broker()
    start = struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 1, 0)
    many = framed(start + uvarint_bytes(20_000_000) + b"\x01\0" * 20_000_000)
    assert await is_refused(broker, many)
    assert await is_refused(broker, framed(start + uvarint_bytes(INT_MAX) + b"\x01\0" * 100))
    body = framed(head(ApiKey.API_VERSIONS, 3) + b"\x02a\x02b" + uvarint_bytes(2_000_000) + bytes(4_000_000))
    assert await is_refused(broker, body)


OVERLONG = {
    "five bytes that say zero": b"\x80\x80\x80\x80\0",
    "two bytes that say null": b"\x80\0",
    "beyond 2^31": b"\xff\xff\xff\xff\x0f",
    "six bytes": b"\x80\x80\x80\x80\x80\x01",
    "ten bytes": b"\xff" * 9 + b"\x01",
    "never ends": b"\xff" * 50,
    "negative as zigzag": b"\xff\xff\xff\xff\x08",
}


@each_case("varint", OVERLONG.values(), ids=OVERLONG.keys())
async def test_varints_that_are_overlong_or_negative(target: Broker, varint: bytes) -> None:
    """A varint longer than it may be, in a count, a length and a tag."""
    assert await is_refused(target, framed(head(ApiKey.METADATA, 12) + varint + bytes(100)))
    in_a_name = b"\x02" + bytes(16) + varint + b"x" * 100
    assert await is_refused(target, framed(head(ApiKey.METADATA, 12) + in_a_name))
    in_header = struct.pack(">hhih", ApiKey.METADATA, 12, 1, 0) + b"\x01" + varint + varint
    assert await is_refused(target, framed(in_header))


@each_case("key", [-1, -32768, 32767, 93, 999, 4, 5, 6, 7, 52, 58, 59, 62])
async def test_unknown_api_keys(target: Broker, key: int) -> None:
    """Keys nobody knows, keys Kafka no longer has, controllers' keys (CVE-2026-83525: FetchSnapshot)."""
    for version in (0, 1, 99, -1):
        assert await is_refused(target, framed(head(key, version) + bytes(64)))


@each_case("served", SERVED, ids=api_id)
async def test_unknown_versions(target: Broker, served: tuple[int, int, int]) -> None:
    """Only ApiVersions may be asked in a version that is not served (KIP-511)."""
    key, first, last = served
    for version in (first - 1, last + 1, -32768, 32767):
        said = await outcome(target.port, framed(head(key, version) + bytes(64)))
        assert said == ("answered" if key == ApiKey.API_VERSIONS else "closed"), version


@each_case("served", SERVED, ids=api_id)
async def test_the_wrong_header_version(target: Broker, served: tuple[int, int, int]) -> None:
    """A body behind the other header version than its own is answered or closed, and nobody is stuck."""
    key, first, last = served
    body = encode_bytes(request_class(key)(), last)
    plain = struct.pack(">hhih", key, last, 1, 3) + b"bad"
    wrong = plain + body if request_header_version(key, last) == 2 else plain + b"\0" + body
    assert await outcome(target.port, framed(wrong)) in ("closed", "answered")
    without_client_id = struct.pack(">hhi", key, first, 1)
    assert await is_refused(target, framed(without_client_id))


async def test_tls_on_the_plaintext_port(target: Broker) -> None:
    """KIP-498 / KAFKA-4090: a ClientHello reads as a frame of 352,518,912 bytes."""
    assert struct.unpack_from(">i", TLS_HELLO)[0] > 352_000_000
    assert await is_refused(target, TLS_HELLO)


@each_case("start", [b"GET / HTTP/1.1\r\n", b"POST /x HTTP/1.0\r\n", b"PRI * HTTP/2.0\r\n\r\n"])
async def test_http_on_the_plaintext_port(target: Broker, start: bytes) -> None:
    """KAFKA-4090: HTTP reads as a frame of more than a gigabyte."""
    assert await is_refused(target, start + b"Host: localhost\r\n\r\n")


async def test_correlation_ids_used_again(target: Broker) -> None:
    """Ids mean nothing to the broker: a hundred requests of one id are answered in their order."""
    client = await Client.connect(target.port)
    await client.create("one")
    for version in (1, 12) * 50:
        client.writer.write(frame(MetadataRequest(topics=None), version, 7))
    for version in (1, 12) * 50:
        correlation_id, answer = await asyncio.wait_for(client.receive(MetadataRequest(), version), 10)
        assert correlation_id == 7
        assert [topic.name for topic in answer.topics] == ["one"]  # type: ignore[attr-defined]
    await client.close()


async def test_a_hundred_thousand_requests_and_no_reads(target: Broker) -> None:
    """10^5 pipelined requests whose answers nobody takes: the broker stops reading, and holds little."""
    count = 100_000
    client = await Client.connect(target.port)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.writer.write(b"".join(frame(ApiVersionsRequest(), 0, number) for number in range(count)))
    connections = target.assembly.connections
    assert connections is not None
    limit = target.settings.lockstep_connection_write_buffer_bytes
    stalled = []
    for _ in range(1000):
        await asyncio.sleep(0.01)
        for each in open_connections(connections):
            held = each._output_bytes + each._pending_reply_bytes + each._transport.get_write_buffer_size()
            assert held < 2 * limit + (256 << 10)
            stalled += [each] if each._queued_frames else []
        if len(stalled) > 50:
            break
    assert stalled, "the broker took all of them in"
    assert not stalled[-1]._reading
    await serves_others(target)
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for number in range(count):
        raw = await client.receive_raw()
        assert struct.unpack_from(">i", raw) == (number,)
    await client.close()


async def test_requests_behind_a_refused_one_are_not_served(target: Broker) -> None:
    """A request after the close: what stands behind a bad frame in one write is not acted upon."""
    client = await Client.connect(target.port)
    await client.create("t")
    bad = framed(head(ApiKey.METADATA, 12) + uvarint_bytes(INT_MAX))
    client.writer.write(bad + frame(produce_request("t", batch(b"never")), 9))
    assert await client.is_closed()
    other = await Client.connect(target.port)
    assert (await other.fetch("t", 0)).high_watermark == 0
    await other.close()


async def test_requests_before_a_half_close(target: Broker) -> None:
    """A request after the close: a client that says no more gets an answer or a close, never silence."""
    client = await Client.connect(target.port)
    await client.create("t")
    client.writer.write(frame(produce_request("t", batch(b"last words")), 9))
    client.writer.write_eof()
    try:
        await asyncio.wait_for(client.reader.read(), 10)
    finally:
        await client.close()
    cut = await Client.connect(target.port)
    cut.writer.write(frame(produce_request("t", batch(b"never")), 9)[:-1])
    cut.writer.write_eof()
    assert await cut.is_closed()
    other = await Client.connect(target.port)
    assert (await other.fetch("t", 0)).high_watermark <= 1
    await other.close()


async def test_frames_that_end_inside_their_header(target: Broker) -> None:
    """Frames of 0 to 11 bytes, and client ids longer than the frame or of negative length."""
    whole = head(ApiKey.API_VERSIONS, 0, client_id="")
    for length in range(len(whole)):
        assert await is_refused(target, framed(whole[:length]))
    for length in (-2, -32768, 32767, 5000):
        start = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, length)
        assert await is_refused(target, framed(start + b"abc"))
