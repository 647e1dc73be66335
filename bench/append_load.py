"""Atomic appends of a real client, Lockstep's own: one record to each of some partitions, all or none.

Beside `client_load.transactions`, which does the same to a broker of transactions. Batches are made anew
for every append and have a producer's sequence, as a client needs that must be able to ask again.
"""

from __future__ import annotations

import time
from array import array
from typing import Any, Final

from bench.wire import WrongAnswer
from lockstep.connection import Connection
from lockstep.transactions.remote import ATOMIC_TAG
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.record import BatchBuilder

FEATURE: Final = "lockstep.atomic"
NAMES_TOPICS: Final = 12
"""The newest version of Produce that names topics; later ones have their ids."""
ACK_TIMEOUT_MS: Final = 30_000

Result = dict[str, Any]


async def atomic_appends(job: Result) -> tuple[array[int], int]:
    """Appends for `seconds` after `warmup_s`, at `port`, which leads all partitions.

    Latencies in ns of those inside the window, and how many there were at all. WrongAnswer for a refusal.
    """
    connection = await Connection.open(job["host"], job["port"])
    try:
        if FEATURE not in connection.features:
            raise WrongAnswer(f"the broker does not have the feature {FEATURE}: it would append parts")
        return await _appends(job, connection)
    finally:
        connection.close()


async def _appends(job: Result, connection: Connection) -> tuple[array[int], int]:
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=ACK_TIMEOUT_MS)
    producer = await connection.call(asked, InitProducerIdResponse)
    if producer.error_code:
        raise WrongAnswer(f"no producer id: error code {producer.error_code}")
    value = b"x" * job["record_bytes"]
    opens_ns = time.perf_counter_ns() + int(job["warmup_s"] * 1e9)
    closes_ns = opens_ns + int(job["seconds"] * 1e9)
    latencies, total = array("q"), 0
    while (begun_ns := time.perf_counter_ns()) < closes_ns:
        batches = []
        for _ in range(job["partitions"]):
            builder = BatchBuilder(
                producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=total
            )
            builder.append(value, timestamp_ms=time.time_ns() // 1_000_000)
            batches.append(builder.build())
        answer = await connection.call(
            atomic_request(job["topic"], batches), ProduceResponse, newest=NAMES_TOPICS
        )
        done_ns = time.perf_counter_ns()
        for each in answer.responses[0].partition_responses:
            if each.error_code:
                raise WrongAnswer(f"refused with error code {each.error_code}: {each.error_message}")
        total += 1
        if begun_ns >= opens_ns and done_ns <= closes_ns:
            latencies.append(done_ns - begun_ns)
    return latencies, total


def atomic_request(topic: str, batches: list[bytes]) -> ProduceRequest:
    """One batch for each partition from 0 on, taken or refused together."""
    parts = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=ACK_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=parts)],
    )
    request.unknown_tags = {ATOMIC_TAG: b""}
    return request
