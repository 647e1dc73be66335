"""Faults of Kafka in Fetch and ListOffsets, and in what is read of a log."""

from __future__ import annotations

import pytest

from lockstep.broker.fetch.api.fetch import Fetch
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lockstep.protocol.messages.fetch import FetchResponse
from lockstep.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.upstream_faults.transactional import ended, initialised, sent
from tests.broker.wire import Client, batch, fetch_request, records_of

E = ErrorCode
NOWHERE = bytes(range(16))


@pytest.mark.parametrize("version", range(Fetch.versions[0], Fetch.versions[1] + 1))
async def test_records_are_never_null(client: Client, version: int) -> None:
    """KAFKA-18646, KAFKA-18648, KAFKA-18935: librdkafka takes null records for a broken answer."""
    topic_id = await client.create("t", 2)
    await client.produce("t", batch(b"a"))
    request = fetch_request({"t": {0: 0, 1: 0, 7: 0}, "nowhere": {0: 0}}, partition_max_bytes=1 << 20)
    request.topics[0].partitions[1].fetch_offset = 99
    for topic in request.topics:
        topic.topic_id = topic_id if topic.topic == "t" else NOWHERE
    answer: FetchResponse = await client.call(request, version)
    found = {
        (topic.topic or topic.topic_id, each.partition_index): (each.error_code, each.records)
        for topic in answer.responses
        for each in topic.partitions
    }
    assert len(found) == 4
    assert all(records is not None for _, records in found.values())
    assert sum(code != 0 for code, _ in found.values()) == 3


async def test_every_offset_is_found_within_and_between_batches(client: Client) -> None:
    """KAFKA-18989, KAFKA-17803, KAFKA-18683: a search by first offsets must find the batch before."""
    await client.create("t")
    for count in (3, 1, 5, 2):
        assert (await client.produce("t", batch(*[b"v"] * count))).error_code == 0
    firsts = [0, 3, 4, 9]
    for offset in range(11):
        read = records_of(await client.fetch("t", offset))
        assert read[0].offset == max(first for first in firsts if first <= offset)
        assert read[-1].offset == 10
    assert records_of(await client.fetch("t", 11)) == []


async def test_the_end_of_committed_records_while_they_are_deleted(client: Client) -> None:
    """KAFKA-19280: the last stable offset was read twice, and was another the second time."""
    await client.create("t")
    identity = await initialised(client)
    assert await sent(client, identity, b"a") == 0
    assert await sent(client, identity, b"b", 1) == 0
    deleting = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        ],
        timeout_ms=1000,
    )
    asked = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[
            ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        ],
    )
    answer = await client.call(deleting, 2)
    assert answer.topics[0].partitions[0].error_code == 0
    read = await client.fetch("t", 1, isolation_level=1)
    assert (read.error_code, read.log_start_offset, read.last_stable_offset) == (0, 1, 1)
    assert (await client.call(asked, 7)).topics[0].partitions[0].offset == 1
    assert (await ended(client, identity))[0] == 0
    assert (await client.call(asked, 7)).topics[0].partitions[0].offset == 3
