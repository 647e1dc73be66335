"""Every counter that is handed out or compared, at its largest value, over the wire.

Others have their tests beside their rules: producer epochs of transactional ids in
`transactions/test_transaction_rules.py`, generations in `groups/test_classic_group.py`, fetch sessions in
`fetch/test_fetch_session.py`, record counts in `produce/test_appender.py`, our client's correlation ids in
`tests/protocol/test_client_protocol.py`.
"""

from __future__ import annotations

import asyncio
import struct

import pytest

from lockstep.broker.produce.producer_state import CoordinatorFenced, ProducerState
from lockstep.broker.server import Broker
from lockstep.broker.transactions.producer_id_blocks import BLOCK_SIZE
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.api_versions import ApiVersionsRequest
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest
from lockstep.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lockstep.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lockstep.storage.types import StorageError
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client, batch, fetch_request, frame, produce_request

INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
DAY_MS = 86_400_000


async def sent(client: Client, sequence: int, count: int = 1, epoch: int = 0) -> tuple[int, int]:
    """Error and base offset of an idempotent batch."""
    data = batch(*[b"v"] * count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    response = await client.call(produce_request("t", data), 9)
    told = response.responses[0].partition_responses[0]
    return told.error_code, told.base_offset


async def test_sequences_wrap_between_batches_and_within_one(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")
    wrapping = [(INT32_MAX - 3, 2), (INT32_MAX - 1, 3), (1, 1)]
    assert [await sent(client, *each) for each in wrapping] == [(0, 0), (0, 2), (0, 5)]
    assert [await sent(client, *each) for each in wrapping] == [(0, 0), (0, 2), (0, 5)]
    assert (await sent(client, INT32_MAX))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await sent(client, 3))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    await client.close()
    await broker.stop()
    broker = await start_broker()
    client = await Client.connect(broker.port)
    assert [await sent(client, *each) for each in wrapping] == [(0, 0), (0, 2), (0, 5)]
    assert await sent(client, 2) == (0, 6)
    await client.close()


async def test_sequences_that_end_with_the_largest_are_followed_by_0(client: Client) -> None:
    await client.create("t")
    assert await sent(client, INT32_MAX - 1, 2) == (0, 0)
    assert await sent(client, 0) == (0, 2)
    assert await sent(client, INT32_MAX - 1, 2) == (0, 0)


async def test_an_idempotent_producer_may_raise_its_epoch_to_the_largest(client: Client) -> None:
    """It does so by itself, and takes another id then; only transactional ids keep the largest back."""
    await client.create("t")
    assert await sent(client, 0, epoch=INT16_MAX) == (0, 0)
    assert await sent(client, 1, epoch=INT16_MAX) == (0, 1)
    assert (await sent(client, 2, epoch=INT16_MAX - 1))[0] == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_largest_coordinator_epoch_fences_all_others() -> None:
    state = ProducerState(DAY_MS)
    state.record_end(1, 7, 1, INT32_MAX, 5, 1000)
    again = ProducerState(DAY_MS)
    again.restore(state.snapshot(1000))
    for each in (state, again):
        assert each.check_end(1, 7, 2, INT32_MAX, 2)
        with pytest.raises(CoordinatorFenced):
            each.check_end(1, 7, 2, INT32_MAX - 1, 2)


@pytest.mark.parametrize("correlation_id", [INT32_MAX, 0, -1, -INT32_MAX - 1])
async def test_any_correlation_id_is_answered_with_itself(client: Client, correlation_id: int) -> None:
    for version in (0, 3):
        client.writer.write(frame(ApiVersionsRequest(), version, correlation_id))
        raw = await asyncio.wait_for(client.receive_raw(), 20)
        assert struct.unpack_from(">i", raw) == (correlation_id,)


async def test_the_largest_offset_and_leader_epoch_are_not_there(client: Client) -> None:
    await client.create("t")
    await client.produce("t", batch(b"v"))
    beyond = await client.fetch("t", INT64_MAX)
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    request = fetch_request({"t": {0: 0}})
    request.topics[0].partitions[0].current_leader_epoch = INT32_MAX
    (answer,) = (await client.call(request, 12)).responses[0].partitions
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    wanted = ListOffsetsPartition(timestamp=-1, current_leader_epoch=INT32_MAX)
    listed = await client.call(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])]), 7
    )
    assert listed.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    largest = ListOffsetsPartition(timestamp=INT64_MAX)
    listed = await client.call(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[largest])]), 7
    )
    assert (listed.topics[0].partitions[0].error_code, listed.topics[0].partitions[0].offset) == (0, -1)
    epoch = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=INT32_MAX)
    found = await client.call(
        OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[epoch])]
        ),
        4,
    )
    told = found.topics[0].partitions[0]
    assert (told.error_code, told.leader_epoch, told.end_offset) == (0, -1, -1)


async def test_producer_ids_end_where_staged_ones_begin(broker: Broker, client: Client) -> None:
    ids = broker.assembly.producer_ids
    ids._image.next_producer_id = 2**62 - BLOCK_SIZE
    ids._next = ids._end = 0
    wanted = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answers = [await client.call(wanted, 4) for _ in range(BLOCK_SIZE)]
    assert answers[-1].producer_id == 2**62 - 1
    with pytest.raises(StorageError, match="no producer ids left"):
        await ids.take()
    refused = await client.call(wanted, 4)
    assert (refused.error_code, refused.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
