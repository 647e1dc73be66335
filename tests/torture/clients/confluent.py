"""The confluent-kafka (librdkafka) worker: producer, consumer with assign or subscribe, creator of topics.

Its transactional producer is in `confluent_transactions.py`.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from tests.torture.clients.confluent_transactions import BATCH_BYTES, QUICK, told, transact
from tests.torture.clients.recording import Recorder, Worker, payload, value_of

FLUSH_S = 60.0
POLL_RECORDS = 100


def produce(worker: Worker) -> None:
    """Until told to stop; the last client waits for its acknowledgements, the others are abandoned."""
    while not worker.stopping:
        recorder = worker.next_recorder()
        failed: list[str] = []
        producer = confluent_kafka.Producer(
            {
                **QUICK,
                "bootstrap.servers": worker.bootstrap,
                "enable.idempotence": worker.role == "idempotent",
                "acks": "all",
                "linger.ms": 2,
                "batch.size": BATCH_BYTES,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 5000,
            }
        )
        end = worker.lifetime_end()
        while not worker.stopping and time.monotonic() < end and not failed:
            partition, key, value = worker.next_record(recorder)
            ended = functools.partial(told, recorder, value, failed)
            try:
                producer.produce(worker.topic, payload(value), key, partition, on_delivery=ended)
                producer.poll(worker.pause_s())
            except (confluent_kafka.KafkaException, BufferError) as error:  # this client is finished
                failed.append(str(error))
        if failed:
            recorder.write("note", text=failed[-1][:300])
        if worker.stopping:
            producer.flush(FLUSH_S)
        else:
            producer.purge()  # a client that goes away: what is under way stays unknown


class _Polled:
    """Records of several calls of poll(), written as one poll before anything else is."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.records: dict[str, list[tuple[int, str]]] = {}
        self.next: dict[int, int] = {}

    def add(self, message: Any) -> None:
        part = f"{message.topic()}-{message.partition()}"
        self.records.setdefault(part, []).append((message.offset(), value_of(message.value())))
        self.next[message.partition()] = message.offset() + 1

    def write(self) -> None:
        if self.records:
            self.recorder.write("poll", records=self.records)
            self.records = {}

    def moved(self, kind: str, _consumer: Any, partitions: Any) -> None:
        """A rebalance, told from within poll(): what was polled before it is written first."""
        self.write()
        if partitions:
            self.recorder.moved(kind, partitions[0].topic, {each.partition: None for each in partitions})


def consume(worker: Worker) -> None:
    """Until told to stop; by `assign` each client goes on where the one before it was."""
    places = dict.fromkeys(range(worker.partitions), 0)
    while not worker.stopping:
        recorder = worker.next_recorder()
        polled = _Polled(recorder)
        recorder.write("consumer", committed=True)
        consumer = confluent_kafka.Consumer(
            {
                **QUICK,
                "bootstrap.servers": worker.bootstrap,
                "group.id": worker.group or "unused",
                "enable.auto.commit": worker.role == "subscribe",
                "auto.commit.interval.ms": 500,
                "auto.offset.reset": "earliest" if worker.role == "subscribe" else "error",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "check.crcs": True,
                "client.rack": "" if worker.role == "subscribe" else "rack-1",
            }
        )
        if worker.role == "subscribe":
            consumer.subscribe(
                [worker.topic],
                on_assign=functools.partial(polled.moved, "assign"),
                on_revoke=functools.partial(polled.moved, "revoke"),
                on_lost=functools.partial(polled.moved, "revoke"),
            )
        else:
            recorder.moved("assign", worker.topic, {**places})
            consumer.assign(
                [confluent_kafka.TopicPartition(worker.topic, *place) for place in places.items()]
            )
        _poll_until(worker, consumer, polled)
        places.update(polled.next)
        consumer.close()


def _poll_until(worker: Worker, consumer: Any, polled: _Polled) -> None:
    end = worker.lifetime_end()
    while not worker.stopping and time.monotonic() < end:
        message, left = consumer.poll(0.2), POLL_RECORDS
        while message is not None:
            if message.error() is None:
                polled.add(message)
            else:
                polled.write()
                polled.recorder.write("poll", records={}, error=str(message.error())[:200])
            left -= 1
            message = consumer.poll(0) if left > 0 else None
        polled.write()


def create(worker: Worker) -> None:
    """A small topic now and then."""
    recorder = worker.next_recorder()
    admin = confluent_kafka.admin.AdminClient({**QUICK, "bootstrap.servers": worker.bootstrap})
    number = 0
    while not worker.stopping:
        number += 1
        topic = f"{worker.name}-{number}"
        recorder.write("create", s="invoke", topic=topic)
        wanted = confluent_kafka.admin.NewTopic(topic, 1, -1)  # type: ignore[attr-defined]
        try:
            admin.create_topics([wanted], operation_timeout=10, request_timeout=15)[topic].result(20)
        except Exception as error:  # it may be there all the same
            recorder.write("create", s="info", topic=topic, error=str(error)[:200])
        else:
            recorder.write("create", s="ok", topic=topic)
        end = time.monotonic() + worker.rng.uniform(1, 4)
        while not worker.stopping and time.monotonic() < end:
            time.sleep(0.1)


def main() -> None:
    worker = Worker()
    roles = {
        "idempotent": produce,
        "plain": produce,
        "transactional": transact,
        "assign": consume,
        "subscribe": consume,
        "create": create,
    }
    roles[worker.role](worker)


if __name__ == "__main__":
    main()
