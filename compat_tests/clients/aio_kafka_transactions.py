"""aiokafka's transactional producer, on the adapter's loop (`run`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from compat_tests.clients.face import Message, Refused, Stored, Transactional

PRODUCER_FENCED = 90


class AioTransactional(Transactional):
    def __init__(
        self,
        where: Mapping[str, Any],
        settings: dict[str, Any],
        topic: str | None,
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        stored: Callable[[Any], Stored],
    ) -> None:
        self._run_there = run
        self._stored = stored
        self._group = settings.pop("group.id", None)
        self._positions: dict[TopicPartition, int] = {}
        self._consumer: AIOKafkaConsumer | None = None
        words = {name.replace(".", "_"): value for name, value in settings.items()}
        self._producer = self._run(self._open(where, words, topic))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._run_there(work)
        except ProducerFenced as error:  # a class of its own, no broker's error
            raise Refused(PRODUCER_FENCED, str(error)) from error

    async def _open(
        self, where: Mapping[str, Any], words: Mapping[str, Any], topic: str | None
    ) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**where, request_timeout_ms=15_000, **words)
        await producer.start()
        if topic is not None:
            self._consumer = AIOKafkaConsumer(
                **where,
                group_id=self._group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            )
            await self._consumer.start()
            self._consumer.subscribe([topic])
        return producer

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        found: list[int] = self._run(written(self._producer, topic, messages))
        return found

    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        found: list[Stored] = self._run(self._poll(count, timeout_s))
        return found

    async def _poll(self, count: int, timeout_s: float) -> list[Stored]:
        assert self._consumer is not None
        found: list[Stored] = []
        until = time.monotonic() + timeout_s
        while len(found) < count and time.monotonic() < until:
            got = await self._consumer.getmany(timeout_ms=200, max_records=count - len(found))
            for partition, records in got.items():
                found += [self._stored(each) for each in records]
                self._positions[partition] = records[-1].offset + 1
        return found

    def send_positions(self) -> None:
        self._run(self._producer.send_offsets_to_transaction(self._positions, self._group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._close())

    async def _close(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()
        await self._producer.stop()


async def written(producer: AIOKafkaProducer, topic: str, messages: Sequence[Message]) -> list[int]:
    """Sent in order and waited for; the offsets it tells."""
    futures = [await sending(producer, topic, each) for each in messages]
    answers = await asyncio.gather(*futures)
    return [int(answer.offset) for answer in answers if answer is not None]


async def sending(producer: AIOKafkaProducer, topic: str, message: Message) -> asyncio.Future[Any]:
    """Sent and not waited for; its future."""
    future: asyncio.Future[Any] = await producer.send(
        topic,
        value=message.value,
        key=message.key,
        headers=list(message.headers),
        partition=message.partition,
        timestamp_ms=message.timestamp_ms,
    )
    return future
