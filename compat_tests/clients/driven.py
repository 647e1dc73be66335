"""A client in another language: every ability is a question to its driver (`line_driver.py`).

Owns: the one vocabulary that all drivers answer; `java/Driver.java` is its reference. Settings are written
with the Java client's property names, whatever the language.
"""

from __future__ import annotations

import base64
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

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
    text_of,
)
from compat_tests.clients.security import PLAINTEXT, Security
from compat_tests.line_driver import DriverFailed, LineDriver


class Driven(Client):
    """A client behind a driver; a subclass names it and says how its driver is started."""

    def __init__(
        self, bootstrap: str, driver: LineDriver | None = None, *, security: Security = PLAINTEXT
    ) -> None:
        """A `driver` that is given is shared and stays open."""
        super().__init__(bootstrap, security=security)
        self._owned = driver is None
        self._driver = driver or self.start_driver()

    @classmethod
    @abstractmethod
    def start_driver(cls) -> LineDriver:
        """Start this client's driver, which serves any broker. ToolchainMissing."""

    def ask(self, what: str, *, settings: Mapping[str, str] | None = None, **fields: Any) -> Any:
        where = {"bootstrap.servers": self.bootstrap, **self.security_words()}
        return self._driver.ask(what, {**where, **(settings or {})}, **fields)

    def security_words(self) -> dict[str, str]:
        """How the driver's client reaches the broker, in the driver's words."""
        return self.security.words()

    def first_contact(self) -> str:
        printed = self._driver.printed_bytes()
        try:
            told = self.ask("first_contact") or ""
        except (DriverFailed, Refused) as failed:
            told = str(failed)
        return f"{told}\n{self._driver.printed_since(printed)}" if told else ""

    def _produce(self, topic: str, messages: Sequence[Message], settings: dict[str, Any]) -> list[int]:
        wired = [_wire(each) for each in messages]
        return list(self.ask("produce", settings=_texts(settings), topic=topic, messages=wired))

    def send_each(
        self, topic: str, rounds: Sequence[Sequence[Message]], *, idempotent: bool = False
    ) -> list[list[Sent]]:
        settings = {
            "compression.type": "none",
            "acks": "all",
            "enable.idempotence": text_of(idempotent),
            "batch.size": str(BATCH_BYTES),
        }
        asked = [[_wire(each) for each in messages] for messages in rounds]
        told = self.ask("send_each", settings=settings, topic=topic, rounds=asked)
        return [[Sent(**each) for each in found] for found in told]

    def _read(
        self, topic: str, count: int, where: Assigned, timeout_s: float, settings: dict[str, Any]
    ) -> list[Stored]:
        found = self.ask(
            "read",
            settings=_texts(settings),
            topic=topic,
            count=count,
            partitions=list(where.partitions),
            start=str(where.start),
            timeout_s=timeout_s,
        )
        return [_stored(each) for each in found]

    def tail(self, topic: str, partition: int, *, max_wait_ms: int) -> Tail:
        settings = {"fetch.max.wait.ms": str(max_wait_ms)}
        return _DrivenTail(self, self.ask("tail_open", settings=settings, topic=topic, partition=partition))

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        begin, end = self.ask("offsets", topic=topic, partition=partition)
        return begin, end

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        found: int | None = self.ask(
            "offset_for_time", topic=topic, partition=partition, timestamp_ms=timestamp_ms
        )
        return found

    # -- groups -----------------------------------------------------------------------------------------

    def _join(self, topics: Sequence[str], settings: dict[str, Any]) -> Member:
        return _DrivenMember(self, self.ask("join", settings=_texts(settings), topics=list(topics)))

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        found: int | None = self.ask("committed", group=group, topic=topic, partition=partition)
        return found

    def groups(self) -> set[str]:
        return set(self.ask("groups"))

    def describe_group(self, group: str) -> GroupDescription:
        found = self.ask("describe_group", group=group)
        members = tuple(
            GroupMember(
                each["member_id"],
                each["client_id"],
                each["host"],
                frozenset((topic, number) for topic, number in each["assignment"]),
            )
            for each in found["members"]
        )
        return GroupDescription(found["state"], found["protocol_type"], found["protocol"], members)

    def delete_group(self, group: str) -> None:
        self.ask("delete_group", group=group)

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self.ask("set_offset", group=group, topic=topic, partition=partition, offset=offset)

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        self.ask("delete_offset", group=group, topic=topic, partition=partition)

    # -- administration ---------------------------------------------------------------------------------

    def add_partitions(self, topic: str, total: int) -> None:
        self.ask("add_partitions", topic=topic, total=total)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        return int(self.ask("delete_records", topic=topic, partition=partition, before_offset=before_offset))

    def set_config(self, topic: str, configs: Mapping[str, str | None]) -> None:
        self.ask("set_config", topic=topic, configs=dict(configs))

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = 1,
    ) -> None:
        self.ask(
            "create_topic",
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=dict(configs or {}),
        )

    def delete_topic(self, topic: str) -> None:
        self.ask("delete_topic", topic=topic)

    def topics(self) -> set[str]:
        return set(self.ask("topics"))

    def partition_count(self, topic: str) -> int:
        return int(self.ask("describe_topic", topic=topic)["partitions"])

    def topic_id(self, topic: str) -> str:
        return str(self.ask("describe_topic", topic=topic)["topic_id"])

    def topic_config(self, topic: str) -> dict[str, str | None]:
        return dict(self.ask("topic_config", topic=topic))

    def cluster(self) -> Cluster:
        found = self.ask("cluster")
        brokers = tuple(Broker(*each) for each in found["brokers"])
        return Cluster(brokers, found["controller_id"], found["cluster_id"])

    # -- transactions -----------------------------------------------------------------------------------

    def _transactional(self, settings: dict[str, Any], topic: str | None) -> Transactional:
        texts = {name: text_of(value) for name, value in settings.items()}
        topics = [] if topic is None else [topic]
        return _DrivenTransactional(self, self.ask("tx_open", settings=texts, topics=topics))

    def transactions(self) -> dict[str, str]:
        return dict(self.ask("transactions"))

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        found = self.ask("describe_transaction", transactional_id=transactional_id)
        partitions = frozenset((topic, number) for topic, number in found["partitions"])
        return TransactionDescription(found["state"], found["producer_id"], found["timeout_ms"], partitions)

    def producers(self, topic: str, partition: int) -> list[ActiveProducer]:
        return [ActiveProducer(*each) for each in self.ask("producers", topic=topic, partition=partition)]

    def close(self) -> None:
        if self._owned:
            self._driver.close()


class _DrivenTransactional(Transactional):
    def __init__(self, client: Driven, number: int) -> None:
        self._client = client
        self._number = number

    def _ask(self, what: str, **fields: Any) -> Any:
        return self._client.ask(what, producer=self._number, **fields)

    def begin(self) -> None:
        self._ask("tx_begin")

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        return list(self._ask("tx_send", topic=topic, messages=[_wire(each) for each in messages]))

    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        return [_stored(each) for each in self._ask("tx_poll", count=count, timeout_s=timeout_s)]

    def send_positions(self) -> None:
        self._ask("tx_positions")

    def commit(self) -> None:
        self._ask("tx_commit")

    def abort(self) -> None:
        self._ask("tx_abort")

    def close(self) -> None:
        self._ask("tx_close")


class _DrivenMember(Member):
    def __init__(self, client: Driven, number: int) -> None:
        self._client = client
        self._number = number

    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        found = self._client.ask("poll", member=self._number, count=count, timeout_s=timeout_s)
        return [_stored(each) for each in found]

    def assignment(self) -> set[tuple[str, int]]:
        return {(topic, number) for topic, number in self._client.ask("assignment", member=self._number)}

    def commit(self) -> None:
        self._client.ask("commit", member=self._number)

    def close(self) -> None:
        self._client.ask("leave", member=self._number)


class _DrivenTail(Tail):
    def __init__(self, client: Driven, number: int) -> None:
        self._client = client
        self._number = number

    def next(self, timeout_s: float) -> Stored | None:
        found = self._client.ask("tail_next", tail=self._number, timeout_s=timeout_s)
        return None if found is None else _stored(found)

    def close(self) -> None:
        self._client.ask("tail_close", tail=self._number)


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: text_of(value) for name, value in settings.items()}


def _wire(message: Message) -> dict[str, Any]:
    return {
        "value": _text(message.value),
        "key": _text(message.key),
        "headers": [[name, _text(value)] for name, value in message.headers],
        "timestamp_ms": message.timestamp_ms,
        "partition": message.partition,
    }


def _stored(each: Mapping[str, Any]) -> Stored:
    return Stored(
        each["partition"],
        each["offset"],
        _bytes(each["key"]),
        _bytes(each["value"]),
        tuple((name, _bytes(value)) for name, value in each["headers"]),
        each["timestamp_ms"],
        each["timestamp_type"],
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
