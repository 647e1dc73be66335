"""confluent-kafka's transactional producer: short transactions, some aborted, some left open by who goes.

Each also commits an offset for a group of its own, its number. A new client with the old one's id asks for it
as soon as it has its producer id: then nothing of its predecessor is under way. A call that never returns
(`transforming.py` says which) is left behind with its producer.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka

from tests.campaigns.transforming import Stuck, returning
from tests.torture.clients.recording import Recorder, Worker, payload

CERTAIN = frozenset({"TOPIC_AUTHORIZATION_FAILED", "INVALID_RECORD", "_QUEUE_FULL"})
"""Errors after which a record is certainly nowhere. Not one that is too large: what was sent before, and is
tried again together with newer records, may be there already."""
BATCH_BYTES = 64 << 10
"""Below the brokers' message.max.bytes (`session.SMALL_FILES`)."""
PURGED = "_PURGE_QUEUE"
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500, "log_level": 0}
CALL_S = 15.0
PATIENCE_S = 30.0
TIMEOUT_MS = 10_000
ABORTED, LEFT, HELD = 0.15, 0.03, 0.1
"""Shares of transactions."""


def told(recorder: Recorder, value: str, failed: list[str], error: Any, message: Any) -> None:
    """A send has ended."""
    if error is None:
        offset = message.offset()
        recorder.send_end(value, None, -1 if offset is None else offset)
        return
    recorder.send_end(value, error.name(), -1, certain=error.name() in CERTAIN)
    if error.fatal() or error.name() in ("_FATAL", PURGED):
        failed.append(error.name())


def transact(worker: Worker) -> None:
    """Until told to stop; then once more a client that ends what the last one left, and looks."""
    consumer = confluent_kafka.Consumer(
        {
            **QUICK,
            "bootstrap.servers": worker.bootstrap,
            "group.id": worker.transactional_id,
            "isolation.level": "read_committed",
        }
    )
    left_behind = []
    last = False
    while not last:
        last = worker.stopping
        recorder = worker.next_recorder()
        producer = _opened(worker, recorder)
        if producer is None:
            continue
        _look(worker, recorder, consumer)
        end = worker.lifetime_end()
        try:
            while (
                not worker.stopping and time.monotonic() < end and _one(worker, recorder, producer, consumer)
            ):
                pass
        except (confluent_kafka.KafkaException, BufferError, SystemError) as error:  # this client is finished
            recorder.write("note", text=f"{error!r} {error.__cause__ or ''}"[:300])
        except Stuck as stuck:
            recorder.write("note", text=str(stuck))
            left_behind.append(producer)
            continue
        producer.purge()
    consumer.close()
    if left_behind:  # their ends would wait for them
        os._exit(0)


def _opened(worker: Worker, recorder: Recorder) -> Any:
    producer = confluent_kafka.Producer(
        {
            **QUICK,
            "bootstrap.servers": worker.bootstrap,
            "transactional.id": worker.transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
            "metadata.recovery.strategy": "none",  # see tests/campaigns/transforming.py
            "linger.ms": 2,
            "batch.size": BATCH_BYTES,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 5000,
        }
    )
    try:
        _again(producer.init_transactions)
    except confluent_kafka.KafkaException as error:
        recorder.write("note", text=f"init_transactions: {error}"[:300])
        return None
    return producer


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


def _look(worker: Worker, recorder: Recorder, consumer: Any) -> None:
    try:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(worker.topic, 0)], CALL_S)
    except confluent_kafka.KafkaException:
        return  # another time
    if found.error is None:
        worker.fetched(recorder, found.offset)


def _one(worker: Worker, recorder: Recorder, producer: Any, consumer: Any) -> bool:
    """One transaction; False when it is left to whoever comes next, or this client should not go on:
    librdkafka takes what an abort purged for never sent, even if it was, and gives the next record its
    number, which brokers then answer for without storing it (decision 20)."""
    failed: list[str] = []
    name, number = worker.next_transaction(recorder)
    try:
        producer.begin_transaction()
        for _ in range(worker.rng.randrange(1, 7)):
            partition, key, value = worker.next_record(recorder, name)
            ended = functools.partial(told, recorder, value, failed)
            producer.produce(worker.topic, payload(value), key, partition, on_delivery=ended)
            producer.poll(worker.pause_s())
        how = worker.rng.random()
        if how < LEFT:
            return False
        if how > 1 - HELD:
            producer.poll(worker.rng.uniform(0.2, 1.0))
        position = confluent_kafka.TopicPartition(worker.topic, 0, number)
        # once: librdkafka's cache of groups' coordinators may hold a node that metadata left out for a
        # moment, and every further try would wait for that handle, which is about to end for ever
        group = consumer.consumer_group_metadata()
        returning(producer.send_offsets_to_transaction, [position], group, CALL_S)
        if how < LEFT + ABORTED:
            _end(recorder, producer.abort_transaction, name, "abort", "aborted")
        else:
            _end(recorder, producer.commit_transaction, name, "commit", "committed")
    except confluent_kafka.KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        recorder.write("note", text=str(error)[:300])
        _end(recorder, producer.abort_transaction, name, "abort", "aborted")
    return not failed


def _end(recorder: Recorder, call: Callable[..., Any], name: str, asked: str, done: str) -> None:
    recorder.transaction(asked, name)
    _again(call)
    recorder.transaction(done, name)
