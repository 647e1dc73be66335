"""Names that lead out of a directory, end a C string, are no text, or are longer than any name."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.api import ApiKey
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lockstep.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from lockstep.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.bad_input.attack import framed, head, is_refused
from tests.broker.wire import Client, batch
from tests.support.cases import each_case

BAD_NAMES = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "250 characters": "x" * 250,
    "the longest string": "x" * 32_767,
    "NUL": "a\0b",
    "slash": "a/b",
    "path": "../../etc/passwd",
    "backslash": "..\\..\\x",
    "newline": "a\nERROR forged log line",
    "escape": "\x1b[2Jcleared",
    "umlaut": "ä",
    "beyond the BMP": "🦀" * 100,
    "right to left": "\u202etxt.exe",
    "space": "a b",
    "full width": "ｔｏｐｉｃ",
}
NOT_UTF8 = [b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\xaf", b"a\x80"]


def files_of(directory: Path) -> set[Path]:
    """Everything below it, but the segments, which are made ahead of use."""
    return {path.relative_to(directory) for path in directory.rglob("*") if "segment" not in path.name}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
async def test_names_no_topic_may_have(target: Broker, tmp_path: Path, name: str) -> None:
    """'.', '..', 250 characters, NUL, slash: refused everywhere, and no file bears such a name."""
    before = files_of(tmp_path)
    client = await Client.connect(target.port)
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    (made,) = (await client.call(CreateTopicsRequest(topics=[wanted]), 7)).topics
    assert made.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    named = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (found,) = (await client.call(named, 12)).topics
    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.produce(name, batch(b"v"))).error_code == unknown
    assert (await client.fetch(name, 0)).error_code == unknown
    offsets = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)])]
    )
    assert (await client.call(offsets, 7)).topics[0].partitions[0].error_code == unknown
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
    assert (await client.call(delete, 6)).responses[0].error_code != ErrorCode.NONE
    describe = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)]
    )
    assert (await client.call(describe, 4)).results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await client.call(MetadataRequest(topics=None), 12)).topics == []
    assert files_of(tmp_path) == before
    await client.close()


@each_case("raw", NOT_UTF8, ids=bytes.hex)
async def test_names_that_are_not_utf8(target: Broker, raw: bytes) -> None:
    """A name that is no UTF-8 closes the connection, wherever it stands; so does a client id."""
    name = struct.pack(">h", len(raw)) + raw
    compact = bytes([len(raw) + 1]) + raw
    create = struct.pack(">i", 1) + name + struct.pack(">ihiiib", 1, 1, 0, 0, 1000, 0)
    assert await is_refused(target, framed(head(ApiKey.CREATE_TOPICS, 2) + create))
    metadata = b"\x02" + bytes(16) + compact + b"\0" + b"\x01\0\0"
    assert await is_refused(target, framed(head(ApiKey.METADATA, 12) + metadata))
    produce = struct.pack(">hhii", -1, -1, 1000, 1) + name + struct.pack(">i", 0)
    assert await is_refused(target, framed(head(ApiKey.PRODUCE, 7) + produce))
    assert await is_refused(target, framed(head(ApiKey.API_VERSIONS, 0, client_id=raw)))
    assert await is_refused(target, framed(head(ApiKey.API_VERSIONS, 3) + compact + compact + b"\0"))


async def test_topic_ids_nobody_gave(target: Broker) -> None:
    """The same for ids: zero, Kafka's reserved ones and any other are unknown, and name no topic."""
    client = await Client.connect(target.port)
    given = await client.create("t")
    for topic_id in (bytes(16), bytes(15) + b"\x01", b"\xff" * 16, given[:15] + bytes([given[15] ^ 1])):
        asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
        (found,) = (await client.call(asked, 12)).topics
        assert found.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_REQUEST)
        fetch = FetchRequest(
            topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, fetch_offset=0)])]
        )
        (data,) = (await client.call(fetch, 13)).responses[0].partitions
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
        assert (await client.call(delete, 6)).responses[0].error_code != ErrorCode.NONE
    assert [topic.name for topic in target.assembly.cluster.topics()] == ["t"]
    await client.close()


async def test_a_client_cannot_forge_log_lines(target: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """What clients call themselves and their topics never begins a line of our log."""
    forged = "x\n2026-01-01 00:00:00,000 CRITICAL forged"
    for key, version in ((ApiKey.FIND_COORDINATOR, 2), (ApiKey.METADATA, 99), (ApiKey.API_VERSIONS, 0)):
        body = struct.pack(">h", len(forged)) + forged.encode() + b"\0"
        client = await Client.connect(target.port)
        client.writer.write(framed(head(key, version, client_id=forged) + body))
        client.writer.write_eof()
        await client.reader.read()
        await client.close()
    for record in caplog.records:
        if record.name.startswith("lockstep"):
            assert "\n" not in record.getMessage()
