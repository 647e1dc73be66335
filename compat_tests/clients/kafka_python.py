"""kafka-python 3: pure Python, idempotent by default since 3.0."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import kafka
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import BrokerResponseError, CommitFailedError, KafkaError
from kafka.structs import OffsetAndMetadata

from compat_tests.clients.face import (
    BATCH_BYTES,
    ActiveProducer,
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
    TransactionDescription,
)
from compat_tests.clients.kafka_python_transactions import PolledTransactional, sending, written
from compat_tests.clients.logged import logged
from compat_tests.clients.python_names import python_names
from compat_tests.clients.security import PLAINTEXT, Security

T = TypeVar("T")
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_WAIT_S = 30.0


class KafkaPython(Client):
    name = "kafka-python"
    cannot: ClassVar[Mapping[str, str]] = {
        "null key and value": "refuses a record without key and value",
        "null header values": "refuses a header value of None (`headers` must be `(str, bytes)`)",
        "zstd above 1 MiB": "decompresses at most 1 MiB of zstd",
    }

    def __init__(self, bootstrap: str, *, security: Security = PLAINTEXT) -> None:
        super().__init__(bootstrap, security=security)
        self._where = _where(bootstrap, security)
        self._producers: dict[tuple[object, ...], KafkaProducer] = {}
        self._admin: KafkaAdminClient | None = None

    @classmethod
    def version(cls) -> str:
        return str(kafka.__version__)

    first_contact_settings: ClassVar[Mapping[str, Any]] = {"bootstrap_timeout_ms": 2_000}

    def first_contact(self) -> str:
        with logged("kafka") as lines:
            try:
                admin = KafkaAdminClient(**self._where, **self.first_contact_settings)
            except KafkaError as error:
                return "\n".join([f"{type(error).__name__}: {error}", *lines])
            try:
                admin.list_topics()
            finally:
                admin.close()
        return ""

    def _produce(self, topic: str, messages: Sequence[Message], settings: dict[str, Any]) -> list[int]:
        settings = python_names(settings)
        producer = self._producer(settings)
        try:
            return written(producer, topic, messages)
        except BrokerResponseError as error:
            self._forget(settings)  # an idempotent producer is fatal after any refusal
            raise Refused(error.errno, str(error)) from error

    def _producer(self, settings: Mapping[str, Any]) -> KafkaProducer:
        key = tuple(sorted(settings.items()))
        if key not in self._producers:
            self._producers[key] = self._new_producer(settings)
        return self._producers[key]

    def _new_producer(self, settings: Mapping[str, Any]) -> KafkaProducer:
        # a retriable answer ("unknown topic") must reach the case while it is still looking
        return KafkaProducer(
            linger_ms=5, delivery_timeout_ms=20_000,
            request_timeout_ms=15_000, max_block_ms=20_000, **self._where, **settings,
        )  # fmt: skip

    def _forget(self, settings: Mapping[str, Any]) -> None:
        producer = self._producers.pop(tuple(sorted(settings.items())), None)
        if producer is not None:
            producer.close(timeout=1)

    def send_each(
        self, topic: str, rounds: Sequence[Sequence[Message]], *, idempotent: bool = False
    ) -> list[list[Sent]]:
        settings = {"acks": "all", "enable_idempotence": idempotent, "batch_size": BATCH_BYTES}
        producer = self._new_producer(settings)
        try:
            return [_told(producer, topic, messages) for messages in rounds]
        finally:
            producer.close(timeout=1)

    def _consumer(self, **settings: Any) -> KafkaConsumer:
        settings = {"group_id": None, "enable_auto_commit": False, **settings}
        return KafkaConsumer(**self._where, allow_auto_create_topics=False, **settings)

    def _read(
        self, topic: str, count: int, where: Assigned, timeout_s: float, settings: dict[str, Any]
    ) -> list[Stored]:
        consumer = self._consumer(auto_offset_reset="none", **python_names(settings))
        try:
            assigned = [TopicPartition(topic, number) for number in where.partitions]
            consumer.assign(assigned)
            if where.start == "earliest":
                consumer.seek_to_beginning(*assigned)
            elif where.start == "latest":
                consumer.seek_to_end(*assigned)
            else:
                for each in assigned:
                    consumer.seek(each, int(where.start))
            found: list[Stored] = []
            until = time.monotonic() + timeout_s
            while len(found) < count and time.monotonic() < until:
                for records in consumer.poll(timeout_ms=500).values():
                    found.extend(_stored(record) for record in records)
            return found[:count]
        except BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error
        except KafkaError as error:
            raise _as_refused(error) from error
        finally:
            consumer.close()

    def tail(self, topic: str, partition: int, *, max_wait_ms: int) -> Tail:
        consumer = self._consumer(fetch_max_wait_ms=max_wait_ms)
        assigned = TopicPartition(topic, partition)
        consumer.assign([assigned])
        consumer.seek_to_end(assigned)
        consumer.position(assigned)
        consumer.poll(timeout_ms=300)
        return _PolledTail(consumer)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            asked = TopicPartition(topic, partition)
            return int(consumer.beginning_offsets([asked])[asked]), int(consumer.end_offsets([asked])[asked])
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        try:
            asked = TopicPartition(topic, partition)
            found = consumer.offsets_for_times({asked: timestamp_ms})[asked]
            return None if found is None or found.offset < 0 else int(found.offset)
        finally:
            consumer.close()

    # -- groups -----------------------------------------------------------------------------------------

    def _join(self, topics: Sequence[str], settings: dict[str, Any]) -> Member:
        words = python_names(settings)
        if "partition_assignment_strategy" in words:
            words["partition_assignment_strategy"] = (_assignor(words["partition_assignment_strategy"]),)
        return PolledMember(self._consumer(**words), topics)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        asked = TopicPartition(topic, partition)
        found = answered(self.admin.list_group_offsets, {group: [asked]})[group].get(asked)
        return None if found is None or found.offset < 0 else int(found.offset)

    def groups(self) -> set[str]:
        return {each["group_id"] for each in answered(self.admin.list_groups)}

    def describe_group(self, group: str) -> GroupDescription:
        found = answered(self.admin.describe_groups, [group])[group]
        _refuse_text(found["error"])
        members = tuple(
            GroupMember(
                each["member_id"], each["client_id"], each["client_host"], _owned(each["member_assignment"])
            )
            for each in found["members"]
        )
        state = found["group_state"].lower()
        return GroupDescription(state, found["protocol_type"], found["protocol_data"], members)

    def delete_group(self, group: str) -> None:
        said = answered(self.admin.delete_groups, [group])[group]
        if said != "OK":  # it answers with the name of one of its exceptions
            raise Refused(getattr(kafka.errors, said).errno, said)

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        wanted = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        refuse_class(*answered(self.admin.alter_group_offsets, group, wanted).values())

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        asked = [TopicPartition(topic, partition)]
        refuse_class(*answered(self.admin.delete_group_offsets, group, asked).values())

    # -- transactions -----------------------------------------------------------------------------------

    def _transactional(self, settings: dict[str, Any], topic: str | None) -> Transactional:
        consumer = None
        if topic is not None:
            consumer = self._consumer(
                group_id=settings.pop("group.id"),
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            )
            consumer.subscribe([topic])
        return PolledTransactional(self._where, settings, consumer, _stored, answered)

    def transactions(self) -> dict[str, str]:
        found = answered(self.admin.list_transactions)
        return {each.transactional_id: each.state.value for every in found.values() for each in every}

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        found = answered(self.admin.describe_transactions, [transactional_id])[transactional_id]
        partitions = frozenset((each.topic, each.partition) for each in found.topic_partitions)
        state, timeout_ms = found.state.value, found.transaction_timeout_ms
        return TransactionDescription(state, found.producer_id, timeout_ms, partitions)

    def producers(self, topic: str, partition: int) -> list[ActiveProducer]:
        asked = TopicPartition(topic, partition)
        found = answered(self.admin.describe_producers, [asked])[asked]
        return [
            ActiveProducer(each.producer_id, each.producer_epoch, each.current_transaction_start_offset)
            for each in found.active_producers
        ]

    # -- administration ---------------------------------------------------------------------------------

    @property
    def admin(self) -> KafkaAdminClient:
        if self._admin is None:
            self._admin = KafkaAdminClient(**self._where)
        return self._admin

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = 1,
    ) -> None:
        wanted = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": dict(configs or {}),
        }
        answer = self.admin.create_topics({topic: wanted}, raise_errors=False)
        _refuse_any(answer["topics"])

    def delete_topic(self, topic: str) -> None:
        _refuse_any(self.admin.delete_topics([topic], raise_errors=False)["topics"])

    def add_partitions(self, topic: str, total: int) -> None:
        answered(self.admin.create_partitions, {topic: total})

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        asked = TopicPartition(topic, partition)
        return int(answered(self.admin.delete_records, {asked: before_offset})[asked]["low_watermark"])

    def set_config(self, topic: str, configs: Mapping[str, str | None]) -> None:
        changes = {
            name: ("DELETE", None) if value is None else ("SET", value) for name, value in configs.items()
        }
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, changes)
        said = answered(self.admin.alter_configs, [resource])["topic"][topic]
        _refuse_text(None if said == "OK" else said)

    def topics(self) -> set[str]:
        return set(self.admin.list_topics())

    def _described(self, topic: str) -> dict[str, Any]:
        (found,) = self.admin.describe_topics([topic])
        _refuse_any([found])
        described: dict[str, Any] = found
        return described

    def partition_count(self, topic: str) -> int:
        return len(self._described(topic)["partitions"])

    def topic_id(self, topic: str) -> str:
        return str(self._described(topic)["topic_id"])

    def topic_config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        try:
            answer = self.admin.describe_configs([resource], config_filter="all")
        except BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error
        found = answer["TOPIC"][topic] if "TOPIC" in answer else answer["topic"][topic]
        return {name: entry["value"] for name, entry in found.items()}

    def cluster(self) -> Cluster:
        answer = self.admin.describe_cluster()
        brokers = tuple(
            Broker(each.get("broker_id", each.get("node_id")), each["host"], each["port"])
            for each in answer["brokers"]
        )
        return Cluster(brokers, answer["controller_id"], answer["cluster_id"])

    def close(self) -> None:
        for producer in self._producers.values():
            producer.close(timeout=2)
        if self._admin is not None:
            self._admin.close()


class _PolledTail(Tail):
    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def next(self, timeout_s: float) -> Stored | None:
        until = time.monotonic() + timeout_s
        while (left := until - time.monotonic()) > 0:
            for records in self._consumer.poll(timeout_ms=int(left * 1000), max_records=1).values():
                return _stored(records[0])
        return None

    def close(self) -> None:
        self._consumer.close()


class _Pausing(ConsumerRebalanceListener):  # type: ignore[misc]
    """Pauses new partitions while the member is only driven."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self.driven = False

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing is held for them."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        if self.driven:
            self._consumer.pause(*assigned)


class PolledMember(Member):
    """It joins and rebalances in `poll`, and heartbeats in a thread of its own."""

    def __init__(self, consumer: KafkaConsumer, topics: Sequence[str]) -> None:
        self._consumer = consumer
        self._listener = _Pausing(consumer)
        consumer.subscribe(list(topics), listener=self._listener)
        # 3.0.12 loses its assignment for good when new metadata makes it join again and `poll` ends before it
        # has: the first metadata must be there before it joins
        for topic in topics:
            consumer.partitions_for_topic(topic)

    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        if count == 0:
            self._drive(timeout_s)
            return []
        got = answered(self._consumer.poll, timeout_ms=int(timeout_s * 1000), max_records=count)
        return [_stored(record) for records in got.values() for record in records]

    def _drive(self, timeout_s: float) -> None:
        """Poll with every partition paused, so that no record comes out of it."""
        before = self._consumer.assignment()
        until = time.monotonic() + timeout_s
        self._listener.driven = True
        self._consumer.pause(*before)
        try:
            while self._consumer.assignment() == before and time.monotonic() < until:
                answered(self._consumer.poll, timeout_ms=min(100, int(timeout_s * 1000)))
        finally:
            self._listener.driven = False
            self._consumer.resume(*self._consumer.paused())

    def assignment(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self) -> None:
        answered(self._consumer.commit)

    def close(self) -> None:
        # in the middle of a rebalance its LeaveGroup waits behind its JoinGroup, by default for 30 s
        self._consumer.close(timeout_ms=2000)


def _where(bootstrap: str, security: Security) -> dict[str, Any]:
    words = {"bootstrap_servers": bootstrap, **security.python_words()}
    if security.ca:
        words["ssl_cafile"] = security.ca
    if security.identity:
        words |= {"ssl_certfile": security.identity, "ssl_keyfile": security.identity}
    if security.token_file:
        place = "kafka.net.sasl.oauth" if kafka.__version__ >= "3" else "kafka.sasl.oauth"
        base = importlib.import_module(place).AbstractTokenProvider
        words["sasl_oauth_token_provider"] = type("Token", (base,), {"token": lambda _: security.token})()
    return words


def _assignor(name: str) -> Any:
    module = importlib.import_module("kafka.coordinator.assignors." + name.replace("-", "_"))
    (found,) = (
        each
        for each in vars(module).values()
        if getattr(each, "name", None) == name and each.__module__ == module.__name__
    )
    return found


def _owned(assignment: Any) -> frozenset[tuple[str, int]]:
    if not assignment:
        return frozenset()
    return frozenset(
        (topic["topic"], number)
        for topic in assignment["assigned_partitions"]
        for number in topic["partitions"]
    )


def _told(producer: KafkaProducer, topic: str, messages: Sequence[Message]) -> list[Sent]:
    """A fatal producer raises in `send`; everything else is told by the future."""

    def sent(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except KafkaError as error:
            return Sent(code=_code(error), name=type(error).__name__, text=str(error))

    futures = [sent(partial(sending, producer, topic, each)) for each in messages]
    answers = [each if isinstance(each, Sent) else sent(partial(each.get, _WAIT_S)) for each in futures]
    return [each if isinstance(each, Sent) else Sent(int(each.offset)) for each in answers]


def _code(error: BaseException) -> int:
    return error.errno if isinstance(error, BrokerResponseError) else -1


def answered(call: Callable[..., T], *args: Any, **named: Any) -> T:
    try:
        return call(*args, **named)
    except BrokerResponseError as error:
        raise Refused(error.errno, str(error)) from error
    except CommitFailedError as error:  # it does not tell an unknown member from an old generation
        raise Refused(25, str(error)) from error


def refuse_class(*errors: Any) -> None:
    """Where it answers with its exceptions' classes."""
    for each in errors:
        if each.errno:
            raise Refused(each.errno, each.__name__)


def _refuse_text(said: str | None) -> None:
    """Where it answers with an exception's text, which begins with the number."""
    if said is not None:
        found = re.match(r"\[Error (\d+)\]", said)
        raise Refused(int(found[1]) if found else -1, said)


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


def _refuse_any(answers: Sequence[Mapping[str, Any]]) -> None:
    for each in answers:
        if each["error_code"] != 0:
            raise Refused(each["error_code"], str(each.get("error_message") or ""))


def _as_refused(error: Exception) -> Exception:
    """kafka-python's own exceptions that stand for a broker's error."""
    if type(error).__name__ in ("OffsetOutOfRangeError", "NoOffsetForPartitionError"):
        return Refused(1, str(error))
    return error
