"""What every client under test can be asked to do, in one vocabulary, so that a case is written once.

Owns: `Message` (to be written), `Stored` (read back), `Refused` (a broker's error, by Kafka's number) and the
abstract `Client`. An adapter translates and adds nothing: no retry, no default of its own beyond what a case
asks for. What a client cannot do is said in `cannot`, in words that end up in the compatibility table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Header = tuple[str, bytes | None]


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


class Client(ABC):
    """One client library (or tool) against one broker. Not thread-safe. Close it at the end."""

    name: ClassVar[str]
    cannot: ClassVar[Mapping[str, str]] = {}
    """Ability -> the client's own limit. A case asks with `needs`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

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

    @abstractmethod
    def read(
        self,
        topic: str,
        count: int,
        *,
        partitions: Sequence[int] = (0,),
        start: int | str = "earliest",
        timeout_s: float = 15.0,
        partition_fetch_bytes: int | None = None,
    ) -> list[Stored]:
        """Assign `partitions` (no group), start at an offset, "earliest" or "latest", read up to `count`.

        Returns fewer when the time is over. Refused when the broker's error reaches the application.
        """

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
    ) -> Member:
        """Subscribe within a group. `start`: where a partition without a committed offset begins; `assignor`:
        "range", "roundrobin", "cooperative-sticky" (abilities "roundrobin", "cooperative"); `instance_id`: a
        static member (ability "static members"). Heartbeats come at least every session_timeout_ms / 4.
        """
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
