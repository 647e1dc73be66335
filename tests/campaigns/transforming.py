"""`python -m tests.campaigns.transforming CLIENT BOOTSTRAP SOURCE TARGET GROUP ID`: read, transform, write.

What an application does that wants exactly-once: what one poll returned becomes one transaction, output and
positions together; after any error whatever it gets a new producer with the same transactional id and a new
consumer, which begins where the last commit left off. Prints "committed N" for each. `java/Transform.java`
says the same in Java.

A member of a group takes the group's metadata right after its poll, so that a commit for partitions that were
meanwhile given to somebody else is refused (KIP-447). aiokafka knows no such metadata: it is alone and
assigns itself all partitions.

librdkafka's call to send offsets may never return, whatever its timeout, when the group's coordinator is gone
from the metadata for a moment (librdkafka issues 5456 and 5511): it is given up from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import aiokafka
import confluent_kafka
from aiokafka.errors import KafkaError

BATCH = 100
CALL_S = 10.0
PATIENCE_S = 60.0
TIMEOUT_MS = 15_000
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    # a node that librdkafka forgets, because all are gone or because metadata leaves it out, stays in its
    # cache of groups' coordinators, "terminating" for ever, and whoever sends offsets there waits
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class Job:
    """What one of them is to do, and whether it is told to stop."""

    def __init__(self, bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
        self.bootstrap = bootstrap
        self.source = source
        self.target = target
        self.group = group
        self.transactional_id = transactional_id
        self.stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.stopping = True


def transformed(value: bytes | None) -> bytes:
    return (value or b"") + b"!"


def say(text: str) -> None:
    print(text, flush=True)


class Stuck(Exception):
    """A call has not returned; whatever it belongs to is left alone from now on."""


def confluent(job: Job) -> None:
    while not job.stopping:
        producer, consumer = _confluent_clients(job)
        try:
            _again(producer.init_transactions)
            consumer.subscribe([job.source])
            while not job.stopping:
                _confluent_transaction(job, producer, consumer)
        except (confluent_kafka.KafkaException, BufferError, SystemError, Stuck) as error:
            say(f"again: {error!r} {error.__cause__ or ''}")
            time.sleep(0.1)
        finally:
            consumer.close()
            producer.purge(blocking=False)  # it may be stuck


def _confluent_clients(job: Job) -> tuple[Any, Any]:
    producer = confluent_kafka.Producer(
        {
            **QUICK,
            "bootstrap.servers": job.bootstrap,
            "transactional.id": job.transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 2,
            "retry.backoff.max.ms": 200,
        }
    )
    consumer = confluent_kafka.Consumer(
        {
            **QUICK,
            "bootstrap.servers": job.bootstrap,
            "group.id": job.group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 500,
        }
    )
    return producer, consumer


def _confluent_transaction(job: Job, producer: Any, consumer: Any) -> None:
    polled = consumer.consume(BATCH, 0.2)
    if not polled:
        return
    group = consumer.consumer_group_metadata()
    positions: dict[int, int] = {}
    producer.begin_transaction()
    for each in polled:
        if each.error() is not None:
            raise confluent_kafka.KafkaException(each.error())
        producer.produce(job.target, transformed(each.value()), each.key(), each.partition())
        positions[each.partition()] = each.offset() + 1
    places = [confluent_kafka.TopicPartition(job.source, *place) for place in positions.items()]
    returning(producer.send_offsets_to_transaction, places, group, CALL_S)  # not again: see QUICK
    _again(producer.commit_transaction)
    say(f"committed {len(polled)}")


def returning(call: Callable[..., Any], *words: Any, patience_s: float = 2 * CALL_S) -> None:
    """The call, in a thread that is left behind if it does not return. Stuck, and what the call raises."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            call(*words)
            raised.append(None)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience_s)
    if not raised:
        raise Stuck(f"{getattr(call, '__name__', call)} has not returned in {patience_s:g} s")
    if raised[0] is not None:
        raise raised[0]


def _again(call: Callable[..., Any], *words: Any) -> None:
    """The call, again while its error says that this may help. KafkaException."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            call(*words, CALL_S)
            return
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


async def aio(job: Job) -> None:
    while not job.stopping:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=job.bootstrap,
            transactional_id=job.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=10_000,
        )
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=job.bootstrap,
            group_id=job.group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            await asyncio.wait_for(_aio_run(job, producer, consumer), None)
        except (KafkaError, TimeoutError, OSError, AssertionError, asyncio.CancelledError) as error:
            say(f"again: {error!r}")
            await asyncio.sleep(0.1)
        for client in (consumer, producer):
            await ended(client)


async def ended(client: Any) -> None:
    """A client may fail to end while its broker is away; one that failed tells of a task it cancelled."""
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await asyncio.wait_for(client.stop(), CALL_S)


async def _aio_run(job: Job, producer: Any, consumer: Any) -> None:
    await asyncio.wait_for(producer.start(), 2 * CALL_S)
    await asyncio.wait_for(producer.begin_transaction(), 2 * CALL_S)  # has its producer id when it returns
    await producer.abort_transaction()  # of nothing: asks nobody
    await asyncio.wait_for(consumer.start(), 2 * CALL_S)
    partitions = await producer.partitions_for(job.source)
    consumer.assign([aiokafka.TopicPartition(job.source, each) for each in sorted(partitions)])
    while not job.stopping:
        polled = await consumer.getmany(timeout_ms=200, max_records=BATCH)
        if not polled:
            continue
        await producer.begin_transaction()
        for place, records in polled.items():
            for each in records:
                sending = producer.send(job.target, transformed(each.value), each.key, place.partition)
                await asyncio.wait_for(sending, 2 * CALL_S)
        positions = {place: records[-1].offset + 1 for place, records in polled.items()}
        offsets = producer.send_offsets_to_transaction(positions, job.group)
        await asyncio.wait_for(offsets, 2 * CALL_S)
        await asyncio.wait_for(producer.commit_transaction(), 2 * CALL_S)
        say(f"committed {sum(map(len, polled.values()))}")


def main(words: Sequence[str]) -> None:
    client, *rest = words
    job = Job(*rest)
    if client == "confluent":
        confluent(job)
    else:
        asyncio.run(aio(job))


if __name__ == "__main__":
    main(sys.argv[1:])
