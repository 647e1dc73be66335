"""Our own client against brokers that lie: it says so in words, at once, and holds no more than it was sent.

The classes of bad input that CVEs name for clients: frame lengths, null arrays, endless negotiations, answers
that lack what was asked for. docs/evidence/bad_input.md lists them.
"""

from __future__ import annotations

import asyncio
import struct
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lockstep.kafka_client import groups
from lockstep.kafka_client.client import Client, TopicMetadata
from lockstep.kafka_client.client import PartitionMetadata as ClientPartition
from lockstep.kafka_client.connection import BrokerConnection, BrokerError, ClientError, Unsupported
from lockstep.protocol.api import ApiKey, messages_for, response_header
from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.config_resources import ResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from lockstep.protocol.messages.fetch import FetchRequest, FetchResponse
from lockstep.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from lockstep.protocol.primitives import MalformedMessage, uvarint_bytes
from tests.broker.bad_input.attack import INT_MAX
from tests.lockstep.test_connection import peer, raw_peer
from tests.protocol.test_hostile import _with_elements, arrays
from tests.support.cases import each_case

TOPIC = TopicMetadata("t", bytes(15) + b"\1", False, (ClientPartition(0, 1, 0, (1,), (1,), 0),))


def speaks_all() -> ApiVersionsResponse:
    keys = [
        ApiVersion(api_key=key, min_version=cls.SCHEMA.versions.low, max_version=cls.SCHEMA.versions.high)
        for key, (cls, _) in MESSAGES.items()
    ]
    return ApiVersionsResponse(api_keys=keys)


def answering(
    say: Callable[[int, int], bytes | None],
) -> Callable[[int, int, int], bytes | None]:
    """ApiVersions answered well, everything else with the body that `say(key, version)` gives."""

    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        head = response_header(key, version, correlation_id)
        if key == ApiKey.API_VERSIONS:
            return head + encode_bytes(speaks_all(), version)
        body = say(key, version)
        return None if body is None else head + body

    return answer


@each_case("length", [INT_MAX, INT_MAX - 3, -1, -(2**31), (256 << 20) + 1])
async def test_frame_lengths_of_a_hostile_broker(length: int) -> None:
    """CVE-2026-10142, kafka-python #3014, GHSA-2jcm-hq8r-84wx: 0x7FFFFFFF or -1 as an answer's length."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(struct.pack(">i", length) + b"\0" * 100)
        await reader.read()
        writer.close()

    async with raw_peer(serve) as port:
        tracemalloc.start()
        try:
            with pytest.raises(ClientError, match="does not speak Kafka's protocol"):
                await BrokerConnection.open("127.0.0.1", port, timeout_s=5)
            assert tracemalloc.get_traced_memory()[1] < 2 << 20
        finally:
            tracemalloc.stop()


async def test_a_large_frame_that_never_comes() -> None:
    """CVE-2026-10142: 255 MiB announced, little sent: the client waits with little memory, then gives up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(struct.pack(">i", 255 << 20) + bytes(5_000))
        await reader.read()
        writer.close()

    async with raw_peer(serve) as port:
        tracemalloc.start()
        try:
            with pytest.raises(ClientError, match="did not respond"):
                await BrokerConnection.open("127.0.0.1", port, timeout_s=0.3)
            assert tracemalloc.get_traced_memory()[1] < 2 << 20
        finally:
            tracemalloc.stop()


USED = sorted({ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.CREATE_TOPICS})


@each_case("key", USED, ids=lambda key: key.name)
async def test_null_arrays_and_counts_of_a_hostile_broker(key: ApiKey) -> None:
    """librdkafka #5577, #5603: an array of -1 where none may be null, and of up to INT_MAX elements."""
    request, response = messages_for(key)
    version = request.SCHEMA.versions.high
    bodies = []
    for path in arrays(response, version):
        if any(version in field.tagged for field in path) or version in path[-1].nullable:
            continue
        one = _with_elements(response, version, path, "wide", 1)
        two = _with_elements(response, version, path, "wide", 2)
        at = next(i for i in range(len(one)) if one[i] != two[i])
        for count in (b"\0", uvarint_bytes(INT_MAX), uvarint_bytes(1 << 24), b"\xff" * 5):
            bodies.append(one[:at] + count + one[at + 1 :])
    assert bodies
    for body in bodies:
        async with peer(answering(lambda _key, _version, body=body: body)) as port:  # type: ignore[misc]
            connection = await BrokerConnection.open("127.0.0.1", port, timeout_s=5)
            with pytest.raises(ClientError, match="cannot be read"):
                await connection.call(_plain(request, version), response)
            assert not connection.is_open


def _plain(request: Any, version: int) -> Any:
    made = request()
    try:
        encode_bytes(made, version)
    except MalformedMessage:
        made.transactional_id = None
    return made


Call = Callable[[Client], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "topics": lambda client: client.topics(["t"]),
    "topic": lambda client: client.topic("t", create=True),
    "create_topic": lambda client: client.create_topic("t"),
    "delete_topic": lambda client: client.delete_topic("t"),
    "topic_configs": lambda client: client.topic_configs("t"),
    "produce": lambda client: client.produce(TOPIC, 0, b"batch"),
    "fetch": lambda client: client.fetch(TOPIC, {0: 0}),
    "offsets": lambda client: client.offsets(TOPIC, [0], -1),
    "configs": lambda client: client.alter_configs(ResourceType.TOPIC, "t", {"retention.ms": "1"}),
    "coordinator": lambda client: client.coordinator("g"),
    "groups": groups.list_groups,
    "describe_group": lambda client: groups.describe_group(client, "g"),
    "delete_group": lambda client: groups.delete_group(client, "g"),
}


@each_case("call", CALLS.values(), ids=CALLS.keys())
async def test_responses_without_the_requested_parts(call: Call) -> None:
    """CVE-2026-83525, from the other side: every array of every answer is empty, every nullable null."""
    ports: list[int] = []

    def say(key: int, version: int) -> bytes:
        if key == ApiKey.METADATA and said_metadata:
            said_metadata.pop()
            brokers = [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=ports[0])]
            return encode_bytes(MetadataResponse(brokers=brokers, controller_id=1), version)
        return encode_bytes(messages_for(key)[1](), version)

    said_metadata = [1]
    async with peer(answering(say)) as port, Client(f"127.0.0.1:{port}", timeout_s=0.5) as client:
        ports.append(port)
        await client._metadata([], create=False)
        said_metadata.append(1)
        try:
            result = await call(client)
        except ClientError:
            return
        assert result in ([], {}, None) or isinstance(result, list)


@each_case(
    ("host", "port"), [("", 1), ("127.0.0.1", -1), ("127.0.0.1", 70_000), ("a\0b", 9092), ("x" * 30_000, 1)]
)
async def test_leaders_at_impossible_addresses(host: str, port: int) -> None:
    """Metadata that send the client nowhere: an error in words, whatever stands for a host and a port."""
    partition = MetadataResponsePartition(leader_id=1, replica_nodes=[1], isr_nodes=[1])
    answer = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host=host, port=port)],
        controller_id=1,
        topics=[MetadataResponseTopic(name="t", topic_id=b"t" * 16, partitions=[partition])],
    )
    async with (
        peer(answering(lambda _key, version: encode_bytes(answer, version))) as at,
        Client(f"127.0.0.1:{at}", timeout_s=1) as client,
    ):
        topic = await client.topic("t")
        with pytest.raises(ClientError):
            await client.produce(topic, 0, b"batch")


async def test_a_negotiation_without_end() -> None:
    """A broker that refuses each version and always names a lower one is asked five times, not for ever."""
    asked = []

    def answer(key: int, version: int, correlation_id: int) -> bytes:
        asked.append(version)
        lower = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=max(version - 1, -1))
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[lower])
        return struct.pack(">i", correlation_id) + encode_bytes(refusal, 0)

    async with peer(answer) as port:
        with pytest.raises(Unsupported):
            await BrokerConnection.open("127.0.0.1", port, timeout_s=5)
    assert asked == [4, 3, 2, 1, 0]


async def test_versions_nobody_has() -> None:
    """Ranges that are empty, negative or upside down: the client asks nothing."""
    for low, high in ((-1, -1), (0, -1), (9, 3), (-32768, -5), (32767, 32767)):
        keys = [ApiVersion(api_key=ApiKey.METADATA, min_version=low, max_version=high)] * 3

        def answer(key: int, version: int, correlation_id: int, keys: Any = keys) -> bytes:
            return struct.pack(">i", correlation_id) + encode_bytes(
                ApiVersionsResponse(api_keys=keys), version
            )

        async with peer(answer) as port:
            connection = await BrokerConnection.open("127.0.0.1", port, timeout_s=5)
            with pytest.raises(Unsupported, match="METADATA"):
                await connection.call(MetadataRequest(topics=None), MetadataResponse)
            connection.close()


async def test_error_codes_nobody_knows() -> None:
    """A code of 32767 or -32768 is told as what it is."""
    for code in (32767, -32768, -2, 200):
        body = encode_bytes(FetchResponse(error_code=code), 18)
        async with (
            peer(answering(lambda _key, _version, body=body: body)) as port,  # type: ignore[misc]
            Client(f"127.0.0.1:{port}", timeout_s=1) as client,
        ):
            client._view.addresses = {1: ("127.0.0.1", port)}
            with pytest.raises(BrokerError, match=str(code)):
                await client.fetch(TOPIC, {0: 0})
        assert FetchRequest.SCHEMA.versions.high == 18


def test_assignments_that_members_make_up() -> None:
    """A member may commit any bytes as its assignment: counts of INT_MAX and lengths below 0 end at once."""
    hostile = [
        struct.pack(">hi", 0, INT_MAX) + struct.pack(">hi", -6, 0),
        struct.pack(">hi", 0, INT_MAX) + struct.pack(">hi", 0, INT_MAX),
        struct.pack(">hi", 0, 1) + struct.pack(">h", 32767) + b"t",
        struct.pack(">hih", 0, 1, 2) + b"\xff\xfe" + struct.pack(">i", 0),
        b"\0",
    ]
    for assignment in hostile:
        assert groups.owned_partitions(assignment) is None
    assert groups.owned_partitions(struct.pack(">hihci", 0, 1, 1, b"t", 1) + bytes(4)) == (("t", 0),)
