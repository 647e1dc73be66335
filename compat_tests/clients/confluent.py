"""confluent-kafka-python, that is librdkafka (also what most other languages' clients wrap)."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import confluent_kafka
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from compat_tests.clients.face import (
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
from compat_tests.clients.security import PLAINTEXT, TOKEN_FILE, Security

_OFFSET_BEGINNING = -2
_OFFSET_END = -1
_WAIT_S = 30.0
_FIRST_CONTACT_S = 10.0
_LOG = logging.getLogger("librdkafka")
_TOKEN_LIFETIME_S = 600
_PRODUCER_FENCED = 90
_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}


class Confluent(Client):
    name = "confluent-kafka"
    cannot: ClassVar[Mapping[str, str]] = {
        "split": "fails every record of a batch that is too large, it does not split it",
        "delete offset": "has no call to delete a group's offset (librdkafka has)",
        "transaction admin": "has no calls to list or describe transactions",
    }

    def __init__(self, bootstrap: str, *, security: Security = PLAINTEXT) -> None:
        super().__init__(bootstrap, security=security)
        self._settings: dict[str, Any] = {"bootstrap.servers": bootstrap, **security.words()}
        if self._settings.pop(TOKEN_FILE, ""):
            self._settings["oauth_cb"] = lambda _: (security.token, time.time() + _TOKEN_LIFETIME_S)
        self._producers: dict[tuple[object, ...], Producer] = {}
        self._admin: AdminClient | None = None

    @classmethod
    def version(cls) -> str:
        return f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    def first_contact(self) -> str:
        told: list[str] = []
        listening = {"error_cb": lambda error: told.append(str(error)), "logger": _LOG}
        until = time.monotonic() + _FIRST_CONTACT_S
        with logged(_LOG.name, logging.INFO) as lines:
            client = Producer({**self._settings, **listening})
            while not lines and time.monotonic() < until:
                try:
                    client.list_topics(timeout=0.2)
                    return ""
                except KafkaException:
                    client.poll(0)
        return "\n".join([*told, *lines])

    # -- produce ----------------------------------------------------------------------------------------

    def _produce(self, topic: str, messages: Sequence[Message], settings: dict[str, Any]) -> list[int]:
        settings["message.timeout.ms"] = 15_000
        if "max.request.size" in settings:
            settings["message.max.bytes"] = settings.pop("max.request.size")
        key = tuple(sorted(settings.items()))
        if key not in self._producers:
            self._producers[key] = Producer({**self._settings, **settings})
        producer = self._producers[key]
        offsets = _written(producer, topic, messages)
        return offsets if settings["acks"] != "0" else []

    def send_each(
        self, topic: str, rounds: Sequence[Sequence[Message]], *, idempotent: bool = False
    ) -> list[list[Sent]]:
        settings = {"enable.idempotence": idempotent, "batch.num.messages": 1, "message.timeout.ms": 15_000}
        producer = Producer({**self._settings, **settings})
        return [_told(producer, topic, messages) for messages in rounds]

    # -- consume ----------------------------------------------------------------------------------------

    def _consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            {
                **self._settings,
                "group.id": f"unused-{uuid.uuid4()}",  # the constructor demands one; assign() never joins it
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
                **settings,
            }
        )

    def _read(
        self, topic: str, count: int, where: Assigned, timeout_s: float, settings: dict[str, Any]
    ) -> list[Stored]:
        consumer = self._consumer(**settings)
        try:
            consumer.list_topics(topic, timeout=10)  # without a known leader it looks for an offset in 500 ms
            offset = {"earliest": _OFFSET_BEGINNING, "latest": _OFFSET_END}.get(str(where.start), where.start)
            consumer.assign([TopicPartition(topic, number, int(offset)) for number in where.partitions])
            found: list[Stored] = []
            until = time.monotonic() + timeout_s
            while len(found) < count and time.monotonic() < until:
                found.extend(_stored(each) for each in consumer.consume(count - len(found), timeout=0.1))
            return found
        finally:
            consumer.close()

    def tail(self, topic: str, partition: int, *, max_wait_ms: int) -> Tail:
        consumer = self._consumer(
            **{"fetch.wait.max.ms": max_wait_ms, "socket.timeout.ms": max_wait_ms + 5000}
        )
        asked = TopicPartition(topic, partition)
        end = consumer.get_watermark_offsets(asked, timeout=10)[1]
        consumer.assign([TopicPartition(topic, partition, end)])
        consumer.consume(1, timeout=0.5)
        return _RdTail(consumer)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            begin, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            return int(begin), int(end)
        except KafkaException as error:
            raise _refused(error) from error
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        try:
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp_ms)], timeout=10
            )
            if found.error is not None:
                raise Refused(found.error.code(), found.error.str())
            return None if found.offset < 0 else int(found.offset)  # OFFSET_END stands for "none"
        finally:
            consumer.close()

    # -- groups -----------------------------------------------------------------------------------------

    def _join(self, topics: Sequence[str], settings: dict[str, Any]) -> Member:
        settings["enable.auto.offset.store"] = False  # stored when `poll` hands a record out
        return _RdMember(self._consumer(**settings), topics)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
        (found,) = _result(self.admin.list_consumer_group_offsets([asked])[group]).topic_partitions
        _raise_if(found.error)
        return None if found.offset < 0 else int(found.offset)

    def groups(self) -> set[str]:
        found = _result(self.admin.list_consumer_groups(request_timeout=10))
        return {each.group_id for each in found.valid}

    def describe_group(self, group: str) -> GroupDescription:
        found = _result(self.admin.describe_consumer_groups([group], request_timeout=10)[group])
        members = tuple(
            GroupMember(
                each.member_id,
                each.client_id,
                each.host,
                frozenset((one.topic, one.partition) for one in each.assignment.topic_partitions),
            )
            for each in found.members
        )
        state = found.state.name.lower().replace("_", "").replace("rebalancing", "rebalance")
        # it says only whether there is a protocol type at all
        kind = "" if found.is_simple_consumer_group else "consumer"
        return GroupDescription(state, kind, found.partition_assignor, members)

    def delete_group(self, group: str) -> None:
        _result(self.admin.delete_consumer_groups([group], request_timeout=10)[group])

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
        answer = _result(self.admin.alter_consumer_group_offsets([wanted], request_timeout=10)[group])
        for each in answer.topic_partitions:
            _raise_if(each.error)

    def _transactional(self, settings: dict[str, Any], topic: str | None) -> Transactional:
        consumer = None
        if topic is not None:
            reading = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
            consumer = self._consumer(**reading, **{"group.id": settings.pop("group.id")})
            consumer.subscribe([topic])
        return _RdTransactional({**self._settings, **settings}, consumer)

    # -- administration ---------------------------------------------------------------------------------

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._settings)
        return self._admin

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = 1,
    ) -> None:
        wanted = NewTopic(topic, partitions, replication_factor, config=dict(configs or {}))
        _result(self.admin.create_topics([wanted])[topic])

    def delete_topic(self, topic: str) -> None:
        _result(self.admin.delete_topics([topic])[topic])

    def add_partitions(self, topic: str, total: int) -> None:
        _result(self.admin.create_partitions([NewPartitions(topic, total)])[topic])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        ((_, future),) = self.admin.delete_records([TopicPartition(topic, partition, before_offset)]).items()
        return int(_result(future).low_watermark)

    def set_config(self, topic: str, configs: Mapping[str, str | None]) -> None:
        changes = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        _result(self.admin.incremental_alter_configs([resource])[resource])

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=10).topics)

    def partition_count(self, topic: str) -> int:
        return len(self._described(topic).partitions)

    def topic_id(self, topic: str) -> str:
        return str(self._described(topic).topic_id)

    def _described(self, topic: str) -> Any:
        return _result(self.admin.describe_topics(TopicCollection([topic]), request_timeout=10)[topic])

    def topic_config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = _result(self.admin.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in found.items()}

    def cluster(self) -> Cluster:
        found = _result(self.admin.describe_cluster(request_timeout=10))
        brokers = tuple(Broker(each.id, each.host, each.port) for each in found.nodes)
        return Cluster(brokers, found.controller.id, found.cluster_id)

    def close(self) -> None:
        for producer in self._producers.values():
            producer.flush(1)
        self._producers.clear()
        self._admin = None


class _RdTail(Tail):
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def next(self, timeout_s: float) -> Stored | None:
        got = self._consumer.consume(1, timeout=timeout_s)
        return _stored(got[0]) if got else None

    def close(self) -> None:
        self._consumer.close()


class _RdMember(Member):
    """librdkafka joins and heartbeats in its own thread; rebalances are served while it is polled."""

    def __init__(self, consumer: Consumer, topics: Sequence[str]) -> None:
        self._consumer = consumer
        self._waiting: list[Any] = []
        """Records that came while the client was only driven."""
        consumer.subscribe(list(topics), on_revoke=self._revoked, on_lost=self._revoked)

    def _revoked(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        gone = {(each.topic, each.partition) for each in partitions}
        self._waiting = [each for each in self._waiting if (each.topic(), each.partition()) not in gone]

    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        if count == 0:
            self._drive(timeout_s)
            return []
        if not self._waiting:
            self._waiting = self._consumer.consume(count, timeout=timeout_s)
        handed, self._waiting = self._waiting[:count], self._waiting[count:]
        found = [_stored(each) for each in handed]
        for each in handed:
            self._consumer.store_offsets(each)
        return found

    def _drive(self, timeout_s: float) -> None:
        before = self.assignment()
        until = time.monotonic() + timeout_s
        while self.assignment() == before and time.monotonic() < until:
            self._waiting += self._consumer.consume(1, timeout=0.02)

    def assignment(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self) -> None:
        try:
            for each in self._consumer.commit(asynchronous=False) or ():
                _raise_if(each.error)
        except KafkaException as error:
            raise _refused(error) from error

    def close(self) -> None:
        self._consumer.close()


class _RdTransactional(Transactional):
    def __init__(self, settings: dict[str, Any], consumer: Consumer | None) -> None:
        self._consumer = consumer
        self._producer = Producer(settings)
        self._call(self._producer.init_transactions, _WAIT_S)

    @staticmethod
    def _call(call: Callable[..., Any], *words: Any) -> None:
        try:
            call(*words)
        except KafkaException as error:
            raise _refused(error) from error

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        return _written(self._producer, topic, messages)

    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        assert self._consumer is not None
        until = time.monotonic() + timeout_s
        found: list[Stored] = []
        while len(found) < count and time.monotonic() < until:
            found += [_stored(each) for each in self._consumer.consume(count - len(found), timeout=0.1)]
        return found

    def send_positions(self) -> None:
        assert self._consumer is not None
        positions = self._consumer.position(self._consumer.assignment())
        known = [each for each in positions if each.offset >= 0]
        group = self._consumer.consumer_group_metadata()
        self._call(self._producer.send_offsets_to_transaction, known, group, _WAIT_S)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, _WAIT_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, _WAIT_S)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._producer.purge()  # ended with its last reference, and without ending a transaction


def _code(error: KafkaError) -> int:
    """Fenced is its own word for several of the broker's."""
    return _PRODUCER_FENCED if error.code() == KafkaError._FENCED else int(error.code())


def _written(producer: Producer, topic: str, messages: Sequence[Message]) -> list[int]:
    """Written in order and waited for; the offsets."""
    told = _told(producer, topic, messages)
    for each in told:
        if each.code:
            raise Refused(each.code, each.text)
    return [each.offset for each in told]


def _told(producer: Producer, topic: str, messages: Sequence[Message]) -> list[Sent]:
    """The same, and what became of each. Refused by a fatal error."""
    offsets: dict[int, int] = {}
    errors: dict[int, KafkaError] = {}  # looked at later: a fatal one is thrown through these callbacks

    def told(place: int) -> Callable[[KafkaError | None, Any], None]:
        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                errors[place] = error
            else:
                offsets[place] = message.offset()

        return on_delivery

    for place, each in enumerate(messages):
        producer.produce(
            topic,
            value=each.value,
            key=each.key,
            partition=each.partition,
            headers=list(each.headers),
            timestamp=each.timestamp_ms or 0,
            on_delivery=told(place),
        )
        producer.poll(0)
    try:
        left = producer.flush(_WAIT_S)
    except KafkaException as error:  # a fatal one
        raise _refused(error) from error
    except SystemError as error:  # a fatal one, thrown while a callback of ours was running
        assert isinstance(error.__cause__, KafkaException)
        raise _refused(error.__cause__) from error
    if left:
        raise TimeoutError(f"{left} messages not delivered after {_WAIT_S} s")
    return [
        Sent(code=_code(errors[place]), name=errors[place].name(), text=errors[place].str())
        if place in errors
        else Sent(offsets[place])
        for place in range(len(messages))
    ]


def _raise_if(error: KafkaError | None) -> None:
    if error is not None:
        raise Refused(error.code(), error.str())


def _result(future: Any) -> Any:
    try:
        return future.result(_WAIT_S)
    except KafkaException as error:
        raise _refused(error) from error


def _refused(error: KafkaException) -> Exception:
    inner = error.args[0]
    return Refused(_code(inner), inner.str())


def _stored(message: Any) -> Stored:
    error = message.error()
    if error is not None:
        # librdkafka wraps an offset out of range, with no reset allowed, in a local error of its own
        code = 1 if error.code() == KafkaError._AUTO_OFFSET_RESET else error.code()
        raise Refused(code, error.str())
    kind, timestamp_ms = message.timestamp()
    return Stored(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple((name, value) for name, value in message.headers() or ()),
        timestamp_ms,
        _TIMESTAMP_TYPES.get(kind),
    )
