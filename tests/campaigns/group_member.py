"""One member of a group under stress: a real client in a process of its own, made to be killed.

Owns: what a member writes down, one JSON line per event, before and after it tells the broker: `assigned`
(member id, partitions), `read` (ranges of offsets handed to the application), `committed` (offsets the broker
acknowledged, with the moment). Lines are written whole, so that kill -9 loses none. It reads in batches,
commits after each, and goes on after every error a rebalance or a dead broker can cause. SIGTERM: leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

SESSION_MS = 6_000
HEARTBEAT_MS = 500
REFRESH_MS = 1_000
"""How soon a client notices that a topic has grown."""
BATCH = 50
POLL_S = 0.2
COOPERATIVE = "cooperative-sticky"

Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True)
class Plan:
    """What one member is told."""

    name: str
    client: str
    bootstrap: str
    group: str
    topics: tuple[str, ...]
    assignor: str
    log: Path
    seed: int


class Diary:
    """The member's event log."""

    def __init__(self, plan: Plan) -> None:
        self._file = os.open(plan.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._name = plan.name

    def write(self, event: str, **fields: Any) -> None:
        line = {"at_ns": time.monotonic_ns(), "member": self._name, "event": event, **fields}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def assigned(self, member_id: str, partitions: Iterable[tuple[str, int]]) -> None:
        self.write("assigned", member_id=member_id, partitions=sorted(partitions))

    def read(self, ranges: dict[tuple[str, int], tuple[int, int]]) -> None:
        self.write("read", ranges=[[*place, *span] for place, span in ranges.items()])

    def committed(self, offsets: Offsets) -> None:
        self.write("committed", offsets=[[*place, offset] for place, offset in offsets.items()])


def run(plan: Plan) -> None:
    """The whole life of a member process."""
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()  # what clients say of a dead broker fills a terminal
    diary = Diary(plan)
    diary.write("started", client=plan.client, pid=os.getpid())
    parent = os.getppid()
    MEMBERS[plan.client](plan, diary, lambda: stopping or os.getppid() != parent)
    diary.write("left")


def _spans(records: Iterable[tuple[str, int, int]]) -> tuple[dict[tuple[str, int], tuple[int, int]], Offsets]:
    """(topic, partition) -> first and last offset of a batch, and the offsets to commit behind it."""
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for topic, partition, offset in records:
        first, last = spans.get((topic, partition), (offset, offset))
        spans[topic, partition] = (min(first, offset), max(last, offset))
    return spans, {place: last + 1 for place, (_, last) in spans.items()}


def _confluent(plan: Plan, diary: Diary, stopping: Callable[[], bool]) -> None:
    import confluent_kafka
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": plan.bootstrap,
            "group.id": plan.group,
            "client.id": plan.name,
            "partition.assignment.strategy": plan.assignor,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "reconnect.backoff.max.ms": 500,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )

    def assigned(_consumer: Any, partitions: Sequence[Any]) -> None:
        if plan.assignor == COOPERATIVE:
            _consumer.incremental_assign(partitions)
            owned = {(each.topic, each.partition) for each in _consumer.assignment()}
        else:
            owned = {(each.topic, each.partition) for each in partitions}
        diary.assigned(_consumer.memberid() or "", owned)

    consumer.subscribe(list(plan.topics), on_assign=assigned)
    while not stopping():
        messages = [each for each in consumer.consume(BATCH, timeout=POLL_S) if each.error() is None]
        if not messages:
            continue
        spans, offsets = _spans(_place(each) for each in messages)
        diary.read(spans)
        wanted = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
        with contextlib.suppress(KafkaException):
            done = consumer.commit(offsets=wanted, asynchronous=False) or []
            acked = {(each.topic, each.partition): each.offset for each in done if each.error is None}
            diary.committed(acked)
    with contextlib.suppress(confluent_kafka.KafkaException):
        consumer.close()


def _place(message: Any) -> tuple[str, int, int]:
    return message.topic(), message.partition(), message.offset()


def _kafka_python(plan: Plan, diary: Diary, stopping: Callable[[], bool]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        bootstrap_servers=plan.bootstrap,
        group_id=plan.group,
        client_id=plan.name,
        partition_assignment_strategy=[RangePartitionAssignor],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=REFRESH_MS,
        request_timeout_ms=30_000,
        reconnect_backoff_max_ms=500,
        fetch_max_wait_ms=100,
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            member_id = str(consumer._coordinator._generation.member_id)
            diary.assigned(member_id, {(each.topic, each.partition) for each in assigned})

    consumer.subscribe(list(plan.topics), listener=Listener())
    while not stopping():
        try:
            batches = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
            records = [each for batch in batches.values() for each in batch]
            if not records:
                continue
            spans, offsets = _spans((each.topic, each.partition, each.offset) for each in records)
            diary.read(spans)
            consumer.commit(
                {
                    TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
                    for place, offset in offsets.items()
                }
            )
            diary.committed(offsets)
        except KafkaError as error:
            diary.write("error", text=f"{type(error).__name__}: {error}"[:200])
    with contextlib.suppress(KafkaError):
        consumer.close(autocommit=False)


def _aiokafka(plan: Plan, diary: Diary, stopping: Callable[[], bool]) -> None:
    asyncio.run(_aiokafka_main(plan, diary, stopping))


async def _aiokafka_main(plan: Plan, diary: Diary, stopping: Callable[[], bool]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        bootstrap_servers=plan.bootstrap,
        group_id=plan.group,
        client_id=plan.name,
        partition_assignment_strategy=[RangePartitionAssignor],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=REFRESH_MS,
        fetch_max_wait_ms=100,
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            member_id = str(consumer._coordinator.member_id)
            diary.assigned(member_id, {(each.topic, each.partition) for each in assigned})

    consumer.subscribe(list(plan.topics), listener=Listener())
    while not stopping():
        try:
            await consumer.start()
            break
        except KafkaError as error:
            diary.write("error", text=f"{type(error).__name__}: {error}"[:200])
            await asyncio.sleep(0.3)
    while not stopping():
        try:
            batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
            records = [each for batch in batches.values() for each in batch]
            if not records:
                continue
            spans, offsets = _spans((each.topic, each.partition, each.offset) for each in records)
            diary.read(spans)
            await consumer.commit({TopicPartition(*place): offset for place, offset in offsets.items()})
            diary.committed(offsets)
        except KafkaError as error:
            diary.write("error", text=f"{type(error).__name__}: {error}"[:200])
            await asyncio.sleep(0.05)
    with contextlib.suppress(KafkaError, TimeoutError):
        await asyncio.wait_for(consumer.stop(), 10)


MEMBERS: dict[str, Callable[[Plan, Diary, Callable[[], bool]], None]] = {
    "confluent": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
}


def client_for(seed: int, assignor: str) -> str:
    """Which client the next member is; only one of them rebalances cooperatively."""
    return "confluent" if assignor == COOPERATIVE else random.Random(seed).choice(sorted(MEMBERS))
