"""What every client under test can be asked to do, in one vocabulary, so that a case is written once.

Owns: `Message` (to be written), `Stored` (read back), `Refused` (a broker's error, by Kafka's number) and the
abstract `Client`. An adapter translates and adds nothing: no retry, no default of its own beyond what a case
asks for. What a client cannot do is said in `cannot`, in words that end up in the compatibility table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from compat_tests.clients.security import PLAINTEXT, Security

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Header = tuple[str, bytes | None]
BATCH_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """One record to be written. `timestamp_ms` None lets the client stamp it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as a client read it. `timestamp_type` is None where the client does not tell."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = -1
    timestamp_type: str | None = None

    def content(self) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
        """What the writer gave: key, value, headers."""
        return self.key, self.value, self.headers


@dataclass(frozen=True, slots=True)
class Sent:
    """What the application heard of one record: its offset (-1: none), or the error: Kafka's number (-1: none
    reached the application), what the client calls it, its text."""

    offset: int = -1
    code: int = 0
    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Broker:
    """A node as metadata describes it."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as a client's admin describes it; a field is None where the client does not tell."""

    brokers: tuple[Broker, ...] = field(default=())
    controller_id: int | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group as a client's admin describes it."""

    member_id: str
    client_id: str
    host: str
    assignment: frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group; `state` as Kafka spells it, without case and punctuation: "stable", "preparingrebalance"."""

    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """What an admin says of a transactional id; `state` as Kafka spells it, "Ongoing", "CompleteCommit"."""

    state: str
    producer_id: int
    timeout_ms: int
    partitions: frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A partition's producer as an admin describes it; `open_at`: where its open transaction began, or -1."""

    producer_id: int
    producer_epoch: int
    open_at: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """The partitions of one topic that a consumer without a group reads, and from where."""

    partitions: tuple[int, ...]
    start: int | str


class Refused(Exception):
    """The broker's error, as this client reported it: `code` is Kafka's number."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(f"error {code}: {text}")
        self.code = code
        self.text = text


class CannotDo(Exception):
    """This client has no way to do it; the text is its reason from `Client.cannot`."""


class Tail(ABC):
    """A consumer that stands at the end of one partition and waits in long polls."""

    @abstractmethod
    def next(self, timeout_s: float) -> Stored | None:
        """The next record; None when none came in time."""

    @abstractmethod
    def close(self) -> None: ...


class Member(ABC):
    """A consumer that subscribed within a group. It heartbeats and rebalances while it is polled."""

    @abstractmethod
    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        """Up to `count` records; fewer when the time is over. With count 0 it only drives the client for
        `timeout_s`, or until its assignment has changed, and loses no record that arrives meanwhile."""

    @abstractmethod
    def assignment(self) -> set[tuple[str, int]]:
        """The partitions it owns now."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the position behind every record that `poll` returned, and wait. Refused."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group in good order (without committing)."""


class Transactional(ABC):
    """A transactional producer that has its producer id; with a source also a consumer in a group. What the
    client says of a lost right to write (fenced) is Refused, from any of these."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        """Write within the transaction and wait for all; the offsets (empty where the client gives none)."""

    @abstractmethod
    def poll(self, count: int, timeout_s: float) -> list[Stored]:
        """Up to `count` records of the source, committed ones only."""

    @abstractmethod
    def send_positions(self) -> None:
        """The positions behind what `poll` returned go into the transaction, for the source's group."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Whatever its state; an open transaction is left as it is where the client can."""


class Client(ABC):
    """One client library (or tool) against one broker. Not thread-safe. Close it at the end."""

    name: ClassVar[str]
    cannot: ClassVar[Mapping[str, str]] = {}
    """Ability -> the client's own limit. A case asks with `needs`."""

    def __init__(self, bootstrap: str, *, security: Security = PLAINTEXT) -> None:
        self.bootstrap = bootstrap
        self.security = security

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """The version under test, for the table."""

    def needs(self, *abilities: str) -> None:
        """CannotDo with the client's reason when it lacks one of these."""
        for ability in abilities:
            if ability in self.cannot:
                raise CannotDo(self.cannot[ability])

    @abstractmethod
    def first_contact(self) -> str:
        """A new client, told to give up soon, asks for the topics and is closed. What it said why it was not
        answered, to its application or in its log; "" where it was."""

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        batch_bytes: int | None = None,
        max_request_bytes: int | None = None,
    ) -> list[int]:
        """Write in order and wait for all; the offsets (empty where the client gives none). Refused.

        `acks`: "0", "1" or "all". `batch_bytes`: the client's batch size; `max_request_bytes`: its own limit.
        """

        settings: dict[str, Any] = {
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": idempotent,
        }
        if batch_bytes is not None:
            settings["batch.size"] = batch_bytes
        if max_request_bytes is not None:
            settings["max.request.size"] = max_request_bytes
        return self._produce(topic, messages, settings)

    @abstractmethod
    def _produce(self, topic: str, messages: Sequence[Message], settings: dict[str, Any]) -> list[int]:
        """`produce`, with what was asked in the Java client's property names; it may be changed."""

    def send_each(
        self, topic: str, rounds: Sequence[Sequence[Message]], *, idempotent: bool = False
    ) -> list[list[Sent]]:
        """A new producer writes each message in a batch of its own (`BATCH_BYTES`; a message should take more
        than half of it): those of a round without waiting, the next round when all are answered."""
        raise CannotDo(self.cannot["headers of each"])

    def read(
        self,
        topic: str,
        count: int,
        *,
        partitions: Sequence[int] = (0,),
        start: int | str = "earliest",
        timeout_s: float = 15.0,
        partition_fetch_bytes: int | None = None,
        isolation: str | None = None,
    ) -> list[Stored]:
        """Assign `partitions` (no group), start at an offset, "earliest" or "latest", read up to `count`.

        `isolation`: "read_committed", "read_uncommitted", or the client's own default.
        Returns fewer when the time is over. Refused when the broker's error reaches the application.
        """

        settings: dict[str, Any] = {}
        if partition_fetch_bytes is not None:
            settings["max.partition.fetch.bytes"] = partition_fetch_bytes
        if isolation is not None:
            settings["isolation.level"] = isolation
        return self._read(topic, count, Assigned(tuple(partitions), start), timeout_s, settings)

    @abstractmethod
    def _read(
        self, topic: str, count: int, where: Assigned, timeout_s: float, settings: dict[str, Any]
    ) -> list[Stored]:
        """`read`, with what was asked in the Java client's property names; it may be changed."""

    @abstractmethod
    def tail(self, topic: str, partition: int, *, max_wait_ms: int) -> Tail:
        """A consumer at the end of the partition whose fetches wait up to `max_wait_ms`, already waiting."""

    @abstractmethod
    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Beginning and end offset."""

    @abstractmethod
    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset at or after a time; None when there is none."""

    @abstractmethod
    def topics(self) -> set[str]:
        """All topic names."""

    @abstractmethod
    def partition_count(self, topic: str) -> int:
        """How many partitions; Refused(3) when there is no such topic."""

    @abstractmethod
    def cluster(self) -> Cluster: ...

    # -- groups: a client that lacks one of these names it in `cannot` ------------------------------------

    def join(
        self,
        topics: Sequence[str],
        group: str,
        *,
        start: str = "earliest",
        auto_commit: bool = False,
        assignor: str | None = None,
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        protocol: str = "classic",
    ) -> Member:
        """Subscribe within a group. `start`: where a partition without a committed offset begins; `assignor`:
        "range", "roundrobin", "cooperative-sticky" (abilities "roundrobin", "cooperative"); `instance_id`: a
        static member (ability "static members"). Heartbeats come at least every session_timeout_ms / 4.
        `protocol` "consumer" is that of KIP-848, which Java 4 and librdkafka speak: the broker assigns, by
        "range" or "uniform", decides on the intervals and evaluates a topic that begins with "^" as RE2.
        """
        settings: dict[str, Any] = {
            "group.id": group,
            "auto.offset.reset": start,
            "enable.auto.commit": auto_commit,
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": min(250, session_timeout_ms // 4),
        }
        if assignor is not None:
            settings["partition.assignment.strategy"] = assignor
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        if protocol == "consumer":
            del settings["session.timeout.ms"], settings["heartbeat.interval.ms"]
            settings["group.protocol"] = protocol
            if assignor is not None:
                settings["group.remote.assignor"] = settings.pop("partition.assignment.strategy")
        return self._join(topics, settings)

    def _join(self, topics: Sequence[str], settings: dict[str, Any]) -> Member:
        """`join`, with what was asked in the Java client's property names; the dictionary may be changed."""
        raise CannotDo(self.cannot["groups"])

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        """The group's committed offset, None without one; no membership needed."""
        raise CannotDo(self.cannot["committed"])

    def groups(self) -> set[str]:
        """Ids of all groups."""
        raise CannotDo(self.cannot["group admin"])

    def describe_group(self, group: str) -> GroupDescription:
        """Refused(69) for an unknown group where the client's API version says so, else state "dead"."""
        raise CannotDo(self.cannot["group admin"])

    def delete_group(self, group: str) -> None:
        """Refused(68) while it has members, Refused(69) when there is none."""
        raise CannotDo(self.cannot["delete group"])

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit from outside (an empty group). Refused."""
        raise CannotDo(self.cannot["set offset"])

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        raise CannotDo(self.cannot["delete offset"])

    # -- transactions: a client that has none says so in `cannot["transactions"]` ------------------------

    def transactional(
        self, transactional_id: str, *, timeout_ms: int = 60_000, source: tuple[str, str] | None = None
    ) -> Transactional:
        """A producer for that id, which fences the one before it. `source`: a topic and the group in which to
        read it (ability "transactional groups"). Refused.
        """
        self.needs("transactions")
        settings: dict[str, Any] = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
        }
        if source is not None:
            settings["group.id"] = source[1]
        return self._transactional(settings, None if source is None else source[0])

    def _transactional(self, settings: dict[str, Any], topic: str | None) -> Transactional:
        """`transactional`, with what was asked in the Java client's property names."""
        raise CannotDo(self.cannot["transactions"])

    def transactions(self) -> dict[str, str]:
        """Every transactional id and its state."""
        raise CannotDo(self.cannot["transaction admin"])

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Refused(105) for an unknown id."""
        raise CannotDo(self.cannot["transaction admin"])

    def producers(self, topic: str, partition: int) -> list[ActiveProducer]:
        raise CannotDo(self.cannot["transaction admin"])

    # -- administration: a client that has none says so in `cannot["admin"]` -----------------------------

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = 1,
    ) -> None:
        """Refused with the broker's error."""
        raise CannotDo(self.cannot["admin"])

    def delete_topic(self, topic: str) -> None:
        raise CannotDo(self.cannot["admin"])

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic to `total` partitions. Refused(37) when it has as many."""
        raise CannotDo(self.cannot["add partitions"])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete what lies below an offset (-1: everything); the new beginning. Refused(1) beyond the end."""
        raise CannotDo(self.cannot["delete records"])

    def set_config(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Set (None: reset) some configs of a topic and leave the others. Refused(40) for a bad one."""
        raise CannotDo(self.cannot["set config"])

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """Every config of a topic, defaults included. Refused."""
        raise CannotDo(self.cannot["admin"])

    def topic_id(self, topic: str) -> str:
        """The topic's id in any stable text form."""
        raise CannotDo(self.cannot["topic id"])

    @abstractmethod
    def close(self) -> None: ...


def text_of(value: str | int | bool) -> str:
    """A setting as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
