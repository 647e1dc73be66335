"""The aiokafka worker: producer, consumer with assign or subscribe."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from typing import Any

import aiokafka
from aiokafka.errors import KafkaError

from tests.torture.clients.aio_transactions import stopped, transact
from tests.torture.clients.recording import Recorder, Worker, payload, value_of

FLUSH_S = 60.0
CERTAIN = frozenset({"TopicAuthorizationFailedError", "InvalidRecordError"})


async def produce(worker: Worker) -> None:
    """Until told to stop. A client that met an error is replaced (an idempotent one cannot go on)."""
    while not worker.stopping:
        recorder = worker.next_recorder()
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=worker.bootstrap,
            enable_idempotence=worker.role == "idempotent",
            acks="all",
            linger_ms=2,
            retry_backoff_ms=50,
            request_timeout_ms=10_000,
            metadata_max_age_ms=5000,
        )
        try:
            await asyncio.wait_for(producer.start(), 30)
        except (KafkaError, TimeoutError, OSError):
            await stopped(producer)
            continue
        await _send_until(worker, recorder, producer)
        await stopped(producer)


async def _send_until(worker: Worker, recorder: Recorder, producer: Any) -> None:
    failed: list[BaseException] = []
    under_way: set[asyncio.Future[Any]] = set()
    end = worker.lifetime_end()
    while not worker.stopping and time.monotonic() < end and not failed:
        partition, key, value = worker.next_record(recorder)
        try:
            future = await asyncio.wait_for(
                producer.send(worker.topic, payload(value), key.encode(), partition), 30
            )
        except (KafkaError, TimeoutError, OSError) as error:
            recorder.send_end(value, type(error).__name__, -1)
            return
        under_way.add(future)
        future.add_done_callback(functools.partial(_told, recorder, value, failed, under_way))
        await asyncio.sleep(worker.pause_s())
    with contextlib.suppress(KafkaError, TimeoutError):
        await asyncio.wait_for(producer.flush(), FLUSH_S)


def _told(
    recorder: Recorder,
    value: str,
    failed: list[BaseException],
    under_way: set[asyncio.Future[Any]],
    future: asyncio.Future[Any],
) -> None:
    under_way.discard(future)
    error = asyncio.CancelledError() if future.cancelled() else future.exception()
    if error is None:
        recorder.send_end(value, None, future.result().offset)
        return
    name = type(error).__name__
    recorder.send_end(value, name, -1, certain=name in CERTAIN)
    failed.append(error)


class _Rebalances(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._moved("revoke", revoked)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._moved("assign", assigned)

    def _moved(self, kind: str, partitions: Any) -> None:
        for each in sorted(partitions):
            self._recorder.moved(kind, each.topic, {each.partition: None})


async def consume(worker: Worker) -> None:
    """Until told to stop; by `assign` each client goes on where the one before it was."""
    places: dict[int, int | None] = dict.fromkeys(range(worker.partitions), 0)
    subscribes = worker.role == "subscribe"
    while not worker.stopping:
        recorder = worker.next_recorder()
        recorder.write("consumer", committed=subscribes)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=worker.bootstrap,
            group_id=worker.group if subscribes else None,
            enable_auto_commit=subscribes,
            auto_commit_interval_ms=500,
            auto_offset_reset="earliest" if subscribes else "none",
            isolation_level="read_committed" if subscribes else "read_uncommitted",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
            retry_backoff_ms=50,
            request_timeout_ms=10_000,
            metadata_max_age_ms=5000,
        )
        try:
            await asyncio.wait_for(consumer.start(), 30)
            if subscribes:
                consumer.subscribe([worker.topic], listener=_Rebalances(recorder))
            else:
                recorder.moved("assign", worker.topic, places)
                spots = {aiokafka.TopicPartition(worker.topic, part): place for part, place in places.items()}
                consumer.assign(list(spots))
                for spot, place in spots.items():
                    consumer.seek(spot, place)
            await _poll_until(worker, recorder, consumer, places)
        except (KafkaError, TimeoutError, OSError) as error:
            recorder.write("poll", records={}, error=repr(error)[:200])
        await stopped(consumer)


async def _poll_until(
    worker: Worker, recorder: Recorder, consumer: Any, places: dict[int, int | None]
) -> None:
    end = worker.lifetime_end()
    while not worker.stopping and time.monotonic() < end:
        polled = await consumer.getmany(timeout_ms=200, max_records=100)
        if not polled:
            continue
        recorder.write(
            "poll",
            records={
                f"{spot.topic}-{spot.partition}": [(each.offset, value_of(each.value)) for each in found]
                for spot, found in polled.items()
            },
        )
        for spot, found in polled.items():
            places[spot.partition] = found[-1].offset + 1


def main() -> None:
    worker = Worker()
    roles = {"idempotent": produce, "plain": produce, "transactional": transact}
    asyncio.run(roles.get(worker.role, consume)(worker))


if __name__ == "__main__":
    main()
