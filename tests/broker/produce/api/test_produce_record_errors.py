"""A batch that is refused for some of its records names them, in Kafka's words (KIP-467)."""

from __future__ import annotations

from typing import cast

import pytest

from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.produce import delayed_produce
from lockstep.broker.produce.append_result import DelayedAppend
from lockstep.broker.produce.delayed_produce import DelayedProduce
from lockstep.broker.requests.errors import RecordErrors
from lockstep.broker.requests.request_context import ClientContext
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.protocol.records.record import BatchBuilder
from tests.broker.wire import Client

NO_KEY = "Compacted topic cannot accept message without key in topic partition"


def keyed(*keys: bytes | None) -> bytes:
    builder = BatchBuilder()
    for key in keys:
        builder.append(b"v", key, timestamp_ms=5)
    return builder.build()


def named(response: PartitionProduceResponse) -> list[tuple[int, str | None]]:
    return [(each.batch_index, each.batch_index_error_message) for each in response.record_errors]


@pytest.mark.parametrize("version", [8, 12, 13])
async def test_records_without_a_key_are_named(client: Client, version: int) -> None:
    topic_id = await client.create("c", 2, cleanup_policy="compact")
    data = keyed(None, b"k", None, None, b"k", None)
    wanted = TopicProduceData(partition_data=[PartitionProduceData(index=1, records=data)])
    if version >= 13:
        wanted.topic_id = topic_id
    else:
        wanted.name = "c"
    response: ProduceResponse = await client.call(
        ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[wanted]), version
    )
    (refused,) = response.responses[0].partition_responses
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert named(refused) == [(place, f"{NO_KEY} c-1") for place in (0, 2, 3, 5)]
    shown = ", ".join(f"RecordError(batchIndex={place}, message='{NO_KEY} c-1')" for place in (0, 2, 3))
    assert refused.error_message == (
        "One or more records have been rejected due to 4 record errors in total, and only showing the first "
        f"three errors at most: [{shown}]"
    )


async def test_before_version_8_there_is_no_place_for_them(client: Client) -> None:
    await client.create("c", cleanup_policy="compact")
    wanted = TopicProduceData(name="c", partition_data=[PartitionProduceData(index=0, records=keyed(None))])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[wanted])
    (refused,) = (await client.call(request, 7)).responses[0].partition_responses
    assert (refused.error_code, refused.record_errors) == (ErrorCode.INVALID_RECORD, [])


async def test_a_batch_that_is_refused_as_a_whole_names_none(client: Client) -> None:
    await client.create("c", cleanup_policy="compact")
    refused = await client.produce("c", keyed(None) * 2)
    assert (refused.error_code, refused.record_errors) == (ErrorCode.INVALID_RECORD, [])


async def test_an_answer_names_so_many_records(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all of a batch can be named none is: what is not named would seem to be good."""
    monkeypatch.setattr(delayed_produce, "MAX_RECORD_ERRORS", 3)
    await client.create("c", 3, cleanup_policy="compact")
    batches = [keyed(None, None), keyed(None, None), keyed(b"k", None)]
    wanted = TopicProduceData(
        name="c",
        partition_data=[PartitionProduceData(index=at, records=data) for at, data in enumerate(batches)],
    )
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[wanted])
    answers = (await client.call(request, 9)).responses[0].partition_responses
    assert {each.error_code for each in answers} == {ErrorCode.INVALID_RECORD}
    assert [[place for place, _ in named(each)] for each in answers] == [[0, 1], [], [1]]
    problem = "Compacted topic cannot accept message without key: record 0 of the batch and 1 more."
    assert answers[1].error_message == problem


async def test_those_of_a_batch_that_waited_for_its_coordinator_are_named(
    broker: Broker, client: Client
) -> None:
    await client.create("c", cleanup_policy="compact")
    partition = broker.assembly.cluster.partition("c", 0)
    assert partition is not None
    appenders = broker.assembly.appenders
    delayed = DelayedProduce(
        broker.assembly.cluster,
        appenders,
        cast(NodeEndpoints, None),
        cast(ClientContext, None),
        9,
        appenders,
        False,
    )
    held = DelayedAppend()
    response = delayed._respond_later(partition, held)
    held.on_outcome(RecordErrors(ErrorCode.INVALID_RECORD, "No key", [1]))
    assert (response.error_code, named(response)) == (
        ErrorCode.INVALID_RECORD,
        [(1, "No key in topic partition c-0")],
    )
