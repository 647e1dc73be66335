"""aiokafka's transactional producer; what it does is what `confluent_transactions.py` says."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from typing import Any

import aiokafka
from aiokafka.errors import KafkaError

from tests.torture.clients.confluent_transactions import ABORTED, HELD, LEFT, TIMEOUT_MS
from tests.torture.clients.recording import Recorder, Worker, payload

CALL_S = 30.0
ENDS_A_CLIENT = (KafkaError, TimeoutError, OSError, AssertionError, asyncio.CancelledError)


async def stopped(client: Any) -> None:
    """Ends it; it may fail to end while its broker is away."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(client.stop(), 20)


async def transact(worker: Worker) -> None:
    """Until told to stop; then once more a client that ends what the last one left, and looks."""
    last = False
    while not last:
        last = worker.stopping
        recorder = worker.next_recorder()
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=worker.bootstrap,
            transactional_id=worker.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_ms=2,
            retry_backoff_ms=50,
            request_timeout_ms=10_000,
            metadata_max_age_ms=5000,
        )
        try:
            await asyncio.wait_for(producer.start(), CALL_S)
            await asyncio.wait_for(
                producer.begin_transaction(), CALL_S
            )  # has its producer id when it returns
            await producer.abort_transaction()  # of nothing: asks nobody
            await _look(worker, recorder)
            end = worker.lifetime_end()
            while not worker.stopping and time.monotonic() < end and await _one(worker, recorder, producer):
                pass
        except ENDS_A_CLIENT as error:
            recorder.write("note", text=repr(error)[:300])
        await stopped(producer)


async def _look(worker: Worker, recorder: Recorder) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=worker.bootstrap, group_id=worker.transactional_id, enable_auto_commit=False
    )
    try:
        await asyncio.wait_for(consumer.start(), CALL_S)
        place = aiokafka.TopicPartition(worker.topic, 0)
        consumer.assign([place])
        found = await asyncio.wait_for(consumer.committed(place), CALL_S)
        worker.fetched(recorder, -1 if found is None else found)
    except ENDS_A_CLIENT:
        pass  # another time
    await stopped(consumer)


async def _one(worker: Worker, recorder: Recorder, producer: Any) -> bool:
    """One transaction; False when it is left to whoever comes next."""
    name, number = worker.next_transaction(recorder)
    try:
        await producer.begin_transaction()
        for _ in range(worker.rng.randrange(1, 7)):
            partition, key, value = worker.next_record(recorder, name)
            sent = await asyncio.wait_for(
                producer.send(worker.topic, payload(value), key.encode(), partition), CALL_S
            )
            sent.add_done_callback(functools.partial(_told, recorder, value))
            await asyncio.sleep(worker.pause_s())
        how = worker.rng.random()
        if how < LEFT:
            return False
        if how > 1 - HELD:
            await asyncio.sleep(worker.rng.uniform(0.2, 1.0))
        positions = {aiokafka.TopicPartition(worker.topic, 0): number}
        offsets = producer.send_offsets_to_transaction(positions, worker.transactional_id)
        await asyncio.wait_for(offsets, CALL_S)
        if how < LEFT + ABORTED:
            await _end(recorder, producer.abort_transaction(), name, "abort", "aborted")
        else:
            await _end(recorder, producer.commit_transaction(), name, "commit", "committed")
    except ENDS_A_CLIENT as error:
        recorder.write("note", text=repr(error)[:300])
        await _end(recorder, producer.abort_transaction(), name, "abort", "aborted")
    return True


async def _end(recorder: Recorder, call: Any, name: str, asked: str, done: str) -> None:
    recorder.transaction(asked, name)
    await asyncio.wait_for(call, CALL_S)
    recorder.transaction(done, name)


def _told(recorder: Recorder, value: str, future: asyncio.Future[Any]) -> None:
    error = asyncio.CancelledError() if future.cancelled() else future.exception()
    if error is None:
        recorder.send_end(value, None, future.result().offset)
    else:
        recorder.send_end(value, type(error).__name__, -1)
