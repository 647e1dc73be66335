"""What a frame may make the broker allocate, from its bytes to the answer: decoder, handler, encoder.

The decoder's own bound is 8 times the frame, or 4 MiB for small frames (`tests/protocol/test_hostile.py`),
so frames that are accepted hold at most 4 MiB of elements beyond that ratio. A handler's answer to these may
take `ANSWER_FACTOR` times as much: a refused partition of four bytes is answered with thirty and a sentence.
So the whole path stays within 8 x frame + (1 + ANSWER_FACTOR) x 4 MiB, some 50 MiB for the very worst of
APIs, and it is this constant that is allowed for small frames; eight times that where a client names whatever
it reads, since that may be every partition there is. Measured here on a floor of 32 KiB.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from lockstep.broker.network.connection import Connection
from lockstep.broker.server import Broker
from lockstep.protocol import compiler, decoder_source
from lockstep.protocol.api import ApiKey
from lockstep.protocol.compiler import decode, decoder
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Field, Struct
from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lockstep.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from lockstep.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from lockstep.protocol.primitives import MalformedMessage
from tests.broker.bad_input.attack import SERVED, api_id, framed, head, request_class
from tests.broker.wire import Client, frame
from tests.campaigns.fuzz_listeners import Transport
from tests.protocol.test_hostile import arrays, fat_frame, floors_of

FLOOR_BYTES = 32 * 1024
ANSWER_FACTOR = 12
RATIO = 8
SLACK_BYTES = 256 * 1024
"""A connection's buffers, tasks, and what the broker does meanwhile."""
LARGE_FRAME_BYTES = 24 * 1024


async def peak_of(broker: Broker, whole_frame: bytes) -> tuple[int, Transport]:
    """(most bytes allocated at once while the broker takes the frame and answers it, what it wrote)"""
    assert broker.assembly.connections is not None
    transport = Transport()
    connection = Connection(broker.assembly.connections, "PLAINTEXT")
    connection.connection_made(transport)  # type: ignore[arg-type]
    gc.collect()
    tracemalloc.start()
    try:
        at = 0
        while at < len(whole_frame):
            room = connection.get_buffer(-1)
            size = min(len(room), len(whole_frame) - at)
            room[:size] = whole_frame[at : at + size]
            at += size
            connection.buffer_updated(size)
        for _ in range(1_000):
            replies = connection._replies
            if transport.closed or not connection.is_busy:
                break
            if replies and all(each.pending and each.pending.is_long_poll for each in replies):
                break
            await asyncio.sleep(0.001)
        connection.write_out()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        connection.connection_lost(None)
    return peak, transport


def fattest(cls: type[Struct], version: int, path: tuple[Field, ...], style: str) -> list[bytes]:
    """A frame of LARGE_FRAME_BYTES, and where that is refused, one nearly as large as is accepted."""
    size = LARGE_FRAME_BYTES
    found: list[bytes] = []
    while size > 1_000:
        try:
            body = fat_frame(cls, version, path, style, size)
        except IndexError:  # an element that is larger than this
            break
        if body is None:
            break
        if len(found) < 1:
            found.append(body)
        try:
            decode(cls, version, body)
        except MalformedMessage:
            size = size * 4 // 5
            continue
        found.append(body)
        break
    return found


FREQUENT = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.OFFSET_COMMIT}
"""Judged before each commit, all others in CI."""


@pytest.mark.parametrize(
    "served",
    [
        pytest.param(each, marks=[] if each[0] in FREQUENT else pytest.mark.tier(name="rest"))
        for each in SERVED
    ],
    ids=api_id,
)
async def test_the_whole_path_stays_within_the_bound(
    target: Broker, served: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CVE-2026-111108, Redpanda #8513: counts that fit the frame, of elements that are fat in memory."""
    key, _, last = served
    cls = request_class(key)
    monkeypatch.setattr(decoder_source, "ALLOCATION_FLOOR_BYTES", FLOOR_BYTES)
    monkeypatch.setattr(compiler, "_decoders", {})
    decoder(cls, last)
    await peak_of(target, framed(head(key, last)))  # whatever is made once
    for path in arrays(cls, last):
        for style in ("meagre", "wide"):
            for body in fattest(cls, last, path, style):
                whole = framed(head(key, last) + body)
                peak, _ = await peak_of(target, whole)
                floor = FLOOR_BYTES * floors_of(cls)
                bound = RATIO * len(whole) + (1 + ANSWER_FACTOR) * floor + SLACK_BYTES
                assert peak < bound, (style, [field.name for field in path], len(whole), peak / FLOOR_BYTES)


async def test_configurations_requested_repeatedly(target: Broker) -> None:
    """CVE-2026-111108: 6,000 times "broker 1" in 30 KB was an answer of 50 MB, and 260 MB to make it."""
    client = await Client.connect(target.port)
    await client.create("t")

    async def described(resources: list[DescribeConfigsResource]) -> tuple[int, Any]:
        asked = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
        peak, _ = await peak_of(target, frame(asked, 4))
        return peak, (await client.call(asked, 4)).results

    def named(kind: int, name: str) -> DescribeConfigsResource:
        return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)

    for kind, name in ((2, "t"), (4, "1"), (8, "1"), (16, "m"), (32, "g")):
        peak, results = await described([named(kind, name)] * 6_000)
        assert peak < 12 << 20
        assert [each.error_code for each in results] == [ErrorCode.NONE] + [ErrorCode.INVALID_REQUEST] * 5_999
    peak, results = await described([named(32, f"g{number}") for number in range(6_000)])
    assert peak < 24 << 20
    assert [each.error_code for each in results].count(ErrorCode.NONE) == 1_000
    await client.close()


async def test_topics_that_are_only_validated(target: Broker) -> None:
    """CVE-2026-111108: 9,000 topics that are never made took 44 MB to describe."""
    topics = [CreatableTopic(name=f"x{n}", num_partitions=1, replication_factor=1) for n in range(9_000)]
    whole = frame(CreateTopicsRequest(topics=topics, validate_only=True), 7)
    peak, transport = await peak_of(target, whole)
    assert sum(map(len, transport.written)) > 1 << 20
    assert peak < 32 << 20


async def test_a_long_name_for_each_of_many_partitions(target: Broker) -> None:
    """CVE-2026-111108: one name of 32 KB and 20,000 partitions: no answer repeats it for each of them."""
    asked = ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic="n" * 32_000, partitions=list(range(20_000)))], timeout_ms=1
    )
    peak, _ = await peak_of(target, frame(asked, 2))
    assert peak < 24 << 20
