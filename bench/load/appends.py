"""Atomic appends: one record to each of some partitions, all or none, and one append after another.

Beside `clients.client_transactions`, which does the same to a broker of transactions. `through_client` uses
what Lockstep's transaction client appends with; `bare` sends the same batches and does nothing else, so
that what it is faster by is the client's own part.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable
from typing import Any, Final

from bench.load.latency import quantiles
from bench.load.wire import UnexpectedResponse
from lockstep.kafka_client.client import Client
from lockstep.protocol.lock_words import ATOMIC_TAG
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.transactions import RequestId
from lockstep.transactions.log import AppendAttempt, PartitionBatch
from lockstep.transactions.model import Record
from lockstep.transactions.records import ProducerIdentity, batch_of
from lockstep.transactions.remote import FEATURES, RemoteLog

CLIENT: Final = "bench"
APPEND_TIMEOUT_S: Final = 30.0
NAMES_TOPICS: Final = 12
"""The newest version of Produce that names topics; later ones have their ids."""

Result = dict[str, Any]


def atomic_appends(job: Result) -> Result:
    """Appends to all of `partitions` at once, one after another; `bare`: without Lockstep's own client."""
    latencies, total = asyncio.run(bare(job) if job.get("bare") else through_client(job))
    return {
        "transactions_per_s": len(latencies) / job["seconds"],
        "total_transactions": total,
        "total_records": job["partitions"] * total,
        **quantiles(latencies),
    }


def append_of(number: int, partitions: int, value: bytes) -> AppendAttempt:
    """A record for each partition from 0 on, under no condition."""
    part = PartitionBatch((Record(value),), -1)
    return AppendAttempt(RequestId(CLIENT, 0, number), dict.fromkeys(range(partitions), part))


async def through_client(job: Result) -> tuple[array[int], int]:
    """Appends for `seconds` after `warmup_s`: the latencies in ns of those inside, and how many at all.

    Raises ClientError, or what `RemoteLog.append` does.
    """
    log = RemoteLog(job["bootstrap"], job["topic"], CLIENT)
    try:
        await log.open()
        return await _time_sends(job, lambda append: log.append(append, APPEND_TIMEOUT_S))
    finally:
        await log.close()


async def bare(job: Result) -> tuple[array[int], int]:
    """Like `through_client`, to the node that leads partition 0 when it begins. UnexpectedResponse for a
    rejection."""
    async with Client(job["bootstrap"]) as client:
        topic = await client.topic(job["topic"])
        connection = await client.leader_of(topic, 0)
        if not connection.features.keys() >= set(FEATURES):
            raise UnexpectedResponse(
                f"the broker does not have {' and '.join(FEATURES)}: it would append parts"
            )
        producer = await connection.call(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse)
        if producer.error_code:
            raise UnexpectedResponse(f"no producer id: error code {producer.error_code}")

        async def send(append: AppendAttempt) -> None:
            identity = ProducerIdentity(
                producer.producer_id, producer.producer_epoch, append.request.sequence
            )
            now_ms = time.time_ns() // 1_000_000
            batches = [
                batch_of(part, append.request, identity, topic.name, topic.topic_id, now_ms)
                for part in append.parts.values()
            ]
            request = atomic_request(topic.name, batches)
            response = await connection.call(request, ProduceResponse, newest=NAMES_TOPICS)
            for each in response.responses[0].partition_responses:
                if each.error_code:
                    raise UnexpectedResponse(
                        f"rejected with error code {each.error_code}: {each.error_message}"
                    )

        return await _time_sends(job, send)


def atomic_request(topic: str, batches: list[bytes]) -> ProduceRequest:
    """One batch for each partition from 0 on, all appended or none."""
    parts = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=int(APPEND_TIMEOUT_S * 1000),
        topic_data=[TopicProduceData(name=topic, partition_data=parts)],
    )
    request.unknown_tags = {ATOMIC_TAG: b""}
    return request


async def _time_sends(
    job: Result, send: Callable[[AppendAttempt], Awaitable[object]]
) -> tuple[array[int], int]:
    value = b"x" * job["record_bytes"]
    opens_ns = time.perf_counter_ns() + int(job["warmup_s"] * 1e9)
    closes_ns = opens_ns + int(job["seconds"] * 1e9)
    latencies, total = array("q"), 0
    while (begun_ns := time.perf_counter_ns()) < closes_ns:
        await send(append_of(total, job["partitions"], value))
        done_ns = time.perf_counter_ns()
        total += 1
        if begun_ns >= opens_ns and done_ns <= closes_ns:
            latencies.append(done_ns - begun_ns)
    return latencies, total
