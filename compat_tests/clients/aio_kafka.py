"""aiokafka: asyncio. The adapter runs one event loop in one thread and waits for each call."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import BrokerResponseError, CommitFailedError, KafkaError, OffsetOutOfRangeError

from compat_tests.clients.aio_kafka_transactions import AioTransactional, sending, written
from compat_tests.clients.face import (
    BATCH_BYTES,
    Assigned,
    Broker,
    Client,
    Cluster,
    GroupDescription,
    GroupMember,
    Member,
    Message,
    Refused,
    Sent,
    Stored,
    Tail,
    Transactional,
)
from compat_tests.clients.logged import logged
from compat_tests.clients.python_names import python_names
from compat_tests.clients.security import PLAINTEXT, Security

T = TypeVar("T")
_ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_WAIT_S = 60.0


class AioKafka(Client):
    name = "aiokafka"
    cannot: ClassVar[Mapping[str, str]] = {
        "split": "fails every record of a batch that is too large, it does not split it",
        "null key and value": "refuses a record without key and value",
        "describe without creating": "its metadata question lets the broker create the topic",
        "topic id": "speaks Metadata up to v5, which has no topic ids",
        "cooperative": "rebalances eagerly only",
        "delete group": "has no call to delete a group",
        "delete offset": "has no call to delete a group's offset",
        "set config": "its alter_configs replaces all of a topic's configs",
        "transaction admin": "has no calls to list or describe transactions",
    }

    def __init__(self, bootstrap: str, *, security: Security = PLAINTEXT) -> None:
        super().__init__(bootstrap, security=security)
        self._where: dict[str, Any] = {"bootstrap_servers": bootstrap, **security.python_words()}
        if (context := security.context()) is not None:
            self._where["ssl_context"] = context
        if security.token_file:
            self._where["sasl_oauth_token_provider"] = _Token(security)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()
        self._producers: dict[tuple[object, ...], AIOKafkaProducer] = {}
        self._admin: AIOKafkaAdminClient | None = None

    @classmethod
    def version(cls) -> str:
        return str(aiokafka.__version__)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the client's loop and wait."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)
        except BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error
        except CommitFailedError as error:  # it does not tell an unknown member from an old generation
            raise Refused(25, str(error)) from error

    def first_contact(self) -> str:
        async def ask() -> None:
            admin = AIOKafkaAdminClient(**self._where, request_timeout_ms=2_000)
            try:
                await admin.start()
                await admin.list_topics()
            finally:
                await admin.close()

        with logged("aiokafka") as lines:
            try:
                self.run(ask())
            except (KafkaError, Refused) as error:
                return "\n".join([f"{type(error).__name__}: {error}", *lines])
        return ""

    # -- produce ----------------------------------------------------------------------------------------

    def _produce(self, topic: str, messages: Sequence[Message], settings: dict[str, Any]) -> list[int]:
        words = python_names(settings)
        if "batch_size" in words:
            words["max_batch_size"] = words.pop("batch_size")
        return self.run(self._write(topic, messages, words))

    async def _write(self, topic: str, messages: Sequence[Message], settings: Mapping[str, Any]) -> list[int]:
        key = tuple(sorted(settings.items()))
        if key not in self._producers:
            producer = AIOKafkaProducer(**self._where, linger_ms=5, request_timeout_ms=15_000, **settings)
            await producer.start()
            self._producers[key] = producer
        try:
            return await written(self._producers[key], topic, messages)
        except BrokerResponseError:
            await self._producers.pop(key).stop()
            raise

    def send_each(
        self, topic: str, rounds: Sequence[Sequence[Message]], *, idempotent: bool = False
    ) -> list[list[Sent]]:
        return self.run(self._send_each(topic, rounds, idempotent))

    async def _send_each(
        self, topic: str, rounds: Sequence[Sequence[Message]], idempotent: bool
    ) -> list[list[Sent]]:
        producer = AIOKafkaProducer(
            **self._where, request_timeout_ms=15_000, acks="all",
            enable_idempotence=idempotent, max_batch_size=BATCH_BYTES,
        )  # fmt: skip
        await producer.start()
        try:
            told = []
            for messages in rounds:
                futures = [await sending(producer, topic, each) for each in messages]
                told.append([_sent(each) for each in await asyncio.gather(*futures, return_exceptions=True)])
            return told
        finally:
            await producer.stop()

    # -- consume ----------------------------------------------------------------------------------------

    async def _consumer(self, **settings: Any) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**self._where, group_id=None, enable_auto_commit=False, **settings)
        await consumer.start()
        return consumer

    def _read(
        self, topic: str, count: int, where: Assigned, timeout_s: float, settings: dict[str, Any]
    ) -> list[Stored]:
        return self.run(self._consume(topic, count, where, timeout_s, python_names(settings)))

    async def _consume(
        self, topic: str, count: int, where: Assigned, timeout_s: float, settings: Mapping[str, Any]
    ) -> list[Stored]:
        consumer = await self._consumer(auto_offset_reset="none", **settings)
        try:
            assigned = [TopicPartition(topic, number) for number in where.partitions]
            consumer.assign(assigned)
            if where.start == "earliest":
                await consumer.seek_to_beginning(*assigned)
            elif where.start == "latest":
                await consumer.seek_to_end(*assigned)
            else:
                for each in assigned:
                    consumer.seek(each, int(where.start))
            found: list[Stored] = []
            until = time.monotonic() + timeout_s
            while len(found) < count and time.monotonic() < until:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found.extend(_stored(record) for record in records)
            return found[:count]
        except OffsetOutOfRangeError as error:
            raise Refused(1, str(error)) from error
        finally:
            await consumer.stop()

    def tail(self, topic: str, partition: int, *, max_wait_ms: int) -> Tail:
        return _AioTail(self, self.run(self._open_tail(topic, partition, max_wait_ms)))

    async def _open_tail(self, topic: str, partition: int, max_wait_ms: int) -> AIOKafkaConsumer:
        consumer = await self._consumer(fetch_max_wait_ms=max_wait_ms)
        assigned = TopicPartition(topic, partition)
        consumer.assign([assigned])
        await consumer.seek_to_end(assigned)
        await consumer.position(assigned)
        await consumer.getmany(timeout_ms=300)
        return consumer

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            consumer = await self._consumer()
            try:
                asked = TopicPartition(topic, partition)
                begin = await consumer.beginning_offsets([asked])
                end = await consumer.end_offsets([asked])
                return int(begin[asked]), int(end[asked])
            finally:
                await consumer.stop()

        return self.run(ask())

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def ask() -> int | None:
            consumer = await self._consumer()
            try:
                asked = TopicPartition(topic, partition)
                found = (await consumer.offsets_for_times({asked: timestamp_ms}))[asked]
                return None if found is None or found.offset < 0 else int(found.offset)
            finally:
                await consumer.stop()

        return self.run(ask())

    # -- groups -----------------------------------------------------------------------------------------

    def _join(self, topics: Sequence[str], settings: dict[str, Any]) -> Member:
        words = python_names(settings)
        if "partition_assignment_strategy" in words:
            words["partition_assignment_strategy"] = (_ASSIGNORS[words["partition_assignment_strategy"]],)

        async def ask() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(**self._where, **words)
            await consumer.start()
            consumer.subscribe(topics)  # now, since start() would wait for the assignment
            return consumer

        return _AioMember(self, self.run(ask()))

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        async def ask() -> int | None:
            asked = TopicPartition(topic, partition)
            admin = await self._started_admin()
            found = (await admin.list_consumer_group_offsets(group, partitions=[asked]))[asked]
            return None if found.offset < 0 else int(found.offset)

        return self.run(ask())

    def groups(self) -> set[str]:
        async def ask() -> set[str]:
            return {name for name, *_ in await (await self._started_admin()).list_consumer_groups()}

        return self.run(ask())

    def describe_group(self, group: str) -> GroupDescription:
        async def ask() -> GroupDescription:
            (answer,) = await (await self._started_admin()).describe_consumer_groups([group])
            ((code, _, state, kind, protocol, members, *_),) = answer.groups
            if code:
                raise Refused(code)
            return GroupDescription(state.lower(), kind, protocol, tuple(_group_member(*m) for m in members))

        return self.run(ask())

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Its admin cannot, a consumer that names the group and does not join it can."""

        async def ask() -> None:
            consumer = AIOKafkaConsumer(**self._where, group_id=group, enable_auto_commit=False)
            await consumer.start()
            try:
                asked = TopicPartition(topic, partition)
                consumer.assign([asked])
                await consumer.commit({asked: offset})
            finally:
                await consumer.stop()

        self.run(ask())

    def _transactional(self, settings: dict[str, Any], topic: str | None) -> Transactional:
        return AioTransactional(self._where, settings, topic, self.run, _stored)

    # -- administration ---------------------------------------------------------------------------------

    async def _started_admin(self) -> AIOKafkaAdminClient:
        if self._admin is None:
            self._admin = AIOKafkaAdminClient(**self._where)
            await self._admin.start()
        return self._admin

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = 1,
    ) -> None:
        async def ask() -> None:
            admin = await self._started_admin()
            wanted = NewTopic(topic, partitions, replication_factor, topic_configs=dict(configs or {}))
            answer = await admin.create_topics([wanted])
            for _, code, *text in answer.topic_errors:
                if code:
                    raise Refused(code, str(*text))

        self.run(ask())

    def delete_topic(self, topic: str) -> None:
        async def ask() -> None:
            answer = await (await self._started_admin()).delete_topics([topic])
            for _, code in answer.topic_error_codes:
                if code:
                    raise Refused(code)

        self.run(ask())

    def add_partitions(self, topic: str, total: int) -> None:
        async def ask() -> None:
            await (await self._started_admin()).create_partitions({topic: NewPartitions(total)})

        self.run(ask())

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        async def ask() -> int:
            asked = TopicPartition(topic, partition)
            admin = await self._started_admin()
            return int((await admin.delete_records({asked: RecordsToDelete(before_offset)}))[asked])

        return self.run(ask())

    def topics(self) -> set[str]:
        async def ask() -> set[str]:
            return set(await (await self._started_admin()).list_topics())

        return self.run(ask())

    def partition_count(self, topic: str) -> int:
        async def ask() -> int:
            (found,) = await (await self._started_admin()).describe_topics([topic])
            if found["error_code"]:
                raise Refused(found["error_code"])
            return len(found["partitions"])

        return self.run(ask())

    def topic_config(self, topic: str) -> dict[str, str | None]:
        async def ask() -> dict[str, str | None]:
            admin = await self._started_admin()
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            ((code, text, _, _, entries),) = answer.resources
            if code:
                raise Refused(code, str(text))
            return {entry[0]: entry[1] for entry in entries}

        return self.run(ask())

    def cluster(self) -> Cluster:
        async def ask() -> Cluster:
            answer = await (await self._started_admin()).describe_cluster()
            brokers = tuple(Broker(each["node_id"], each["host"], each["port"]) for each in answer["brokers"])
            return Cluster(brokers, answer["controller_id"], answer.get("cluster_id"))

        return self.run(ask())

    def close(self) -> None:
        async def end() -> None:
            for producer in self._producers.values():
                await producer.stop()
            if self._admin is not None:
                await self._admin.close()

        try:
            self.run(end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5)


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, security: Security) -> None:
        self._security = security

    async def token(self) -> str:
        return self._security.token


class _AioTail(Tail):
    def __init__(self, client: AioKafka, consumer: AIOKafkaConsumer) -> None:
        self._client = client
        self._consumer = consumer

    def next(self, timeout_s: float) -> Stored | None:
        async def ask() -> Stored | None:
            got = await self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=1)
            return next((_stored(records[0]) for records in got.values()), None)

        return self._client.run(ask())

    def close(self) -> None:
        self._client.run(self._consumer.stop())


class _AioMember(Member):
    """It joins, heartbeats and rebalances in tasks of its own, polled or not."""

    def __init__(self, client: AioKafka, consumer: AIOKafkaConsumer) -> None:
        self._client = client
        self._consumer = consumer

    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        if count == 0:
            self._drive(timeout_s)
            return []
        return self._client.run(self._records(count, timeout_s))

    async def _records(self, count: int, timeout_s: float) -> list[Stored]:
        got = await self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=count)
        return [_stored(record) for records in got.values() for record in records]

    def _drive(self, timeout_s: float) -> None:
        before = self.assignment()
        until = time.monotonic() + timeout_s
        while self.assignment() == before and time.monotonic() < until:
            time.sleep(0.02)

    def assignment(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._client.run(self._consumer.commit())

    def close(self) -> None:
        self._client.run(self._consumer.stop())


def _group_member(
    member_id: str, client_id: str, host: str, _metadata: bytes, assignment: bytes
) -> GroupMember:
    """It leaves the assignment in the bytes in which the group's leader wrote it."""
    owned = ConsumerProtocolMemberAssignment.decode(assignment).assignment if assignment else ()
    partitions = frozenset((topic, number) for topic, numbers in owned for number in numbers)
    return GroupMember(member_id, client_id, host, partitions)


def _sent(told: Any) -> Sent:
    if not isinstance(told, BaseException):
        return Sent(int(told.offset))
    if not isinstance(told, KafkaError):
        raise told
    code = told.errno if isinstance(told, BrokerResponseError) else -1
    return Sent(code=code, name=type(told).__name__, text=str(told))


def _stored(record: Any) -> Stored:
    return Stored(
        record.partition,
        record.offset,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
        record.timestamp,
        _TIMESTAMP_TYPES.get(record.timestamp_type),
    )
