"""A transactional producer of transaction version 2 on one broker, as raw requests."""

from __future__ import annotations

import asyncio
from typing import Any

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.end_txn import EndTxnRequest
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest
from lockstep.protocol.messages.produce import ProduceRequest
from lockstep.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.wire import Client, batch, produce_request

Identity = tuple[int, int]
ID = "tx"
PRODUCE_VERSION = 12
END_VERSION = 5


async def initialised(client: Client, timeout_ms: int = 60_000) -> Identity:
    """The identity that InitProducerId hands out for `tx`."""
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=timeout_ms)
    for _ in range(100):
        await client.call(FindCoordinatorRequest(key=ID, key_type=1), 1)
        answer = await client.call(request, 4)
        if answer.error_code == 0:
            return answer.producer_id, answer.producer_epoch
        await asyncio.sleep(0.02)
    raise AssertionError(ErrorCode(answer.error_code))


def transactional(
    identity: Identity, value: bytes, sequence: int = 0, topic: str = "t", partition: int = 0
) -> ProduceRequest:
    data = batch(
        value,
        producer_id=identity[0],
        producer_epoch=identity[1],
        base_sequence=sequence,
        transactional=True,
    )
    request = produce_request(topic, data, partition)
    request.transactional_id = ID
    return request


async def sent(client: Client, identity: Identity, value: bytes, sequence: int = 0) -> int:
    """The error code of one batch in partition 0 of `t`."""
    answer = await client.call(transactional(identity, value, sequence), PRODUCE_VERSION)
    error: int = answer.responses[0].partition_responses[0].error_code
    return error


def ending(identity: Identity, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=ID, producer_id=identity[0], producer_epoch=identity[1], committed=commit
    )


async def ended(client: Client, identity: Identity, commit: bool = True) -> tuple[int, Identity]:
    """EndTxn: the error code, and the identity from then on."""
    answer = await client.call(ending(identity, commit), END_VERSION)
    return answer.error_code, (answer.producer_id, answer.producer_epoch)


def marker(identity: Identity, *places: tuple[str, int], version: int = 2) -> WritableTxnMarker:
    """An abort of this producer in these partitions."""
    topics = [WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in places]
    return WritableTxnMarker(
        producer_id=identity[0],
        producer_epoch=identity[1],
        transaction_result=False,
        topics=topics,
        coordinator_epoch=0,
        transaction_version=version,
    )


async def marked(client: Client, *markers: WritableTxnMarker) -> list[list[int]]:
    """WriteTxnMarkers: the error codes of each marker's partitions."""
    answer: Any = await client.call(WriteTxnMarkersRequest(markers=list(markers)), 2)
    return [
        [each.error_code for topic in told.topics for each in topic.partitions] for told in answer.markers
    ]
