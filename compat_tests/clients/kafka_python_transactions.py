"""kafka-python's transactional producer, 3.x and 2.x alike but for the group's metadata."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from compat_tests.clients.face import Message, Stored, Transactional

_WAIT_S = 30.0


class PolledTransactional(Transactional):
    """`where`: the broker, and how it is reached; `answered` calls and translates the broker's errors."""

    def __init__(
        self,
        where: Mapping[str, Any],
        settings: dict[str, Any],
        consumer: KafkaConsumer | None,
        stored: Callable[[Any], Stored],
        answered: Callable[..., Any],
    ) -> None:
        words = {name.replace(".", "_"): value for name, value in settings.items()}
        self._consumer = consumer
        self._stored = stored
        self._answered = answered
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}
        self._producer = KafkaProducer(
            enable_idempotence=True, delivery_timeout_ms=20_000,
            request_timeout_ms=15_000, max_block_ms=20_000, **where, **words,
        )  # fmt: skip
        answered(self._producer.init_transactions)

    def begin(self) -> None:
        self._answered(self._producer.begin_transaction)

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        found: list[int] = self._answered(written, self._producer, topic, messages)
        return found

    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        assert self._consumer is not None
        found: list[Stored] = []
        until = time.monotonic() + timeout_s
        while len(found) < count and time.monotonic() < until:
            got = self._consumer.poll(timeout_ms=200, max_records=count - len(found))
            for partition, records in got.items():
                found += [self._stored(each) for each in records]
                self._positions[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
        return found

    def send_positions(self) -> None:
        assert self._consumer is not None
        group: Any = self._consumer.config["group_id"]
        if hasattr(self._consumer, "group_metadata"):  # 3.x
            group = self._consumer.group_metadata()
        self._answered(self._producer.send_offsets_to_transaction, self._positions, group)

    def commit(self) -> None:
        self._answered(self._producer.commit_transaction)

    def abort(self) -> None:
        self._answered(self._producer.abort_transaction)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close(timeout_ms=2000)
        self._producer.close(timeout=0)


def written(producer: KafkaProducer, topic: str, messages: Sequence[Message]) -> list[int]:
    """Sent in order and waited for; the offsets."""
    futures = [sending(producer, topic, each) for each in messages]
    return [int(future.get(timeout=_WAIT_S).offset) for future in futures]


def sending(producer: KafkaProducer, topic: str, message: Message) -> Any:
    """Sent and not waited for; its future."""
    return producer.send(
        topic,
        value=message.value,
        key=message.key,
        headers=list(message.headers),
        partition=message.partition,
        timestamp_ms=message.timestamp_ms,
    )
