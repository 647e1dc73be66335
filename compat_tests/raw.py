"""The wire by hand: requests as plain dictionaries, for what no client library would ever send.

    with RawConnection("127.0.0.1", port) as raw:
        answer = raw.call("metadata", 12, topics=None, allow_auto_topic_creation=False)
        answer["brokers"][0]["port"]

Messages are kio's (Aiven, generated from Kafka's schemas), so neither broker's codec is its own judge;
versions that kio does not have are left to `raw_tables.py`. Record batches are kafka-python's. Fields a
version lacks are left out, fields not given are Kafka's defaults or zero: one dictionary serves all versions.
Field names are kio's (`max_wait`, `timeout` in milliseconds).
Answers come back as plain dictionaries with error codes as numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import functools
import io
import itertools
import socket
import struct
import time
import typing
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kio.index import UnknownEntity, load_entity_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from compat_tests import raw_tables

Answer = dict[str, Any]
NO_PRODUCER = -1


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


class RawConnection:
    """One connection. Requests may be pipelined with `send` and `receive`; `call` does both."""

    def __init__(
        self, host: str, port: int, timeout_s: float = 15.0, client_id: str = "compat-tests"
    ) -> None:
        self._client_id = client_id
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)
        self._sent: list[tuple[int, str, int]] = []
        self._received = bytearray()
        """Of a frame whose rest has not come; a time-out does not lose it."""

    def call(self, api: str, api_version: int, **fields: Any) -> Answer:
        """Send and wait for the answer. ConnectionClosed, TimeoutError."""
        self.send(api, api_version, **fields)
        return self.receive()

    def send(self, api: str, api_version: int, *, answered: bool = True, **fields: Any) -> None:
        """Write one request. `answered=False` for Produce with acks=0."""
        correlation_id = next(self._correlation_ids)
        frame = request_frame(api, api_version, correlation_id, fields, self._client_id)
        if answered:
            self._sent.append((correlation_id, api, api_version))
        self.send_bytes(frame)

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed(str(error)) from error

    def receive(self) -> Answer:
        """The answer to the oldest unanswered request; its correlation id must match."""
        correlation_id, api, api_version = self._sent.pop(0)
        frame = self.receive_frame()
        (got,) = struct.unpack_from(">i", frame)
        if got != correlation_id:
            raise AssertionError(f"answer {got} came where {correlation_id} was due")
        return parse_response(api, api_version, frame)

    def receive_frame(self) -> bytes:
        """One frame without its length. ConnectionClosed when the broker hangs up."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def is_closed_by_peer(self, wait_s: float = 5.0) -> bool:
        """True when the broker closes within `wait_s`; any byte received means it did not."""
        self.socket.settimeout(wait_s)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def _exactly(self, count: int) -> bytes:
        got = self._received
        while len(got) < count:
            try:
                part = self.socket.recv(count - len(got))
            except ConnectionResetError as error:
                raise ConnectionClosed(str(error)) from error
            if not part:
                raise ConnectionClosed(f"closed after {len(got)} of {count} bytes")
            got += part
        self._received = bytearray()
        return bytes(got)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what nearly every case needs -------------------------------------------------------------------

    def node_id(self) -> int:
        """The node at the other end, as it says itself."""
        port = self.socket.getpeername()[1]
        (found,) = [
            each["node_id"]
            for each in self.call("metadata", 12, topics=[])["brokers"]
            if each["port"] == port
        ]
        assert isinstance(found, int)
        return found

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node id of a partition's leader, as the node at the other end says."""
        (seen,) = self.call("metadata", 12, topics=[{"name": topic}])["topics"]
        leader = seen["partitions"][partition]["leader_id"]
        assert isinstance(leader, int)
        return leader

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        wait_s: float = 10.0,
    ) -> uuid.UUID:
        """Create it, wait until every partition has a leader; the topic id."""
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        (made,) = self.call("create_topics", 7, topics=[wanted], timeout=10_000)["topics"]
        assert made["error_code"] == 0, made
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            (seen,) = self.call("metadata", 12, topics=[{"name": name}])["topics"]
            leaders = [each["leader_id"] for each in seen["partitions"] if each["error_code"] == 0]
            told = seen["error_code"] == 0 and len(leaders) == partitions and min(leaders) >= 0
            # Kafka's metadata runs ahead of its logs: ask the leader itself
            if told and all(
                self.list_offset(name, -1, partition=n)["error_code"] == 0 for n in range(partitions)
            ):
                topic_id = seen["topic_id"]
                assert isinstance(topic_id, uuid.UUID)
                return topic_id
            time.sleep(0.01)
        raise AssertionError(f"topic {name} has no leader after {wait_s} s: {seen}")

    def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        api_version: int = 9,
        topic_id: uuid.UUID | None = None,
    ) -> Answer:
        """One batch to one partition; the partition's part of the answer."""
        parts = [{"index": partition, "records": records}]
        data = {"name": topic, "topic_id": topic_id, "partition_data": parts}
        answer = self.call("produce", api_version, acks=acks, timeout=10_000, topic_data=[data])
        ((found,),) = [each["partition_responses"] for each in answer["responses"]]
        assert isinstance(found, dict)
        return found

    def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        api_version: int = 12,
        topic_id: uuid.UUID | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
        leader_epoch: int = -1,
    ) -> Answer:
        """One partition, no session; the partition's part of the answer."""
        wanted = {
            "partition": partition,
            "current_leader_epoch": leader_epoch,
            "fetch_offset": offset,
            "partition_max_bytes": partition_max_bytes,
        }
        answer = self.call(
            "fetch",
            api_version,
            max_wait=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_epoch=-1,
            replica_id=-1,
            topics=[{"topic": topic, "topic_id": topic_id, "partitions": [wanted]}],
        )
        assert answer.get("error_code", 0) == 0, answer
        ((found,),) = [each["partitions"] for each in answer["responses"]]
        assert isinstance(found, dict)
        return found

    def list_offset(
        self,
        topic: str,
        timestamp_ms: int,
        *,
        partition: int = 0,
        api_version: int = 7,
        leader_epoch: int = -1,
    ) -> Answer:
        """One partition's offset for a time or one of Kafka's special times; the partition's part."""
        wanted = {
            "partition_index": partition,
            "current_leader_epoch": leader_epoch,
            "timestamp": timestamp_ms,
        }
        answer = self.call(
            "list_offsets",
            api_version,
            replica_id=-1,
            topics=[{"name": topic, "partitions": [wanted]}],
            timeout=10_000,
        )
        ((found,),) = [each["partitions"] for each in answer["topics"]]
        assert isinstance(found, dict)
        return found

    def producer_id(self) -> tuple[int, int]:
        """A fresh producer id and its epoch."""
        wanted = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = self.call("init_producer_id", 4, transactional_id=None, **wanted)
        for _ in range(100):
            if answer["error_code"] != 14:  # Kafka has no block of ids right after its start
                break
            time.sleep(0.05)
            answer = self.call("init_producer_id", 4, transactional_id=None, **wanted)
        assert answer["error_code"] == 0, answer
        return answer["producer_id"], answer["producer_epoch"]


# -- record batches -----------------------------------------------------------------------------------------


def batch(
    values: Sequence[bytes | None],
    *,
    producer: tuple[int, int] = (NO_PRODUCER, -1),
    base_sequence: int = -1,
    codec: int = 0,
    timestamp_ms: int | None = None,
    key: bytes | None = None,
) -> bytes:
    """A v2 batch as a producer would send it. Record i is stamped `timestamp_ms + i`."""
    builder = DefaultRecordBatchBuilder(2, codec, False, producer[0], producer[1], base_sequence, 1 << 30)
    first = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    for place, value in enumerate(values):
        builder.append(place, first + place, key, value, [])
    return bytes(builder.build())


def with_crc(data: bytearray) -> bytes:
    """The batch with its CRC-32C made right again, after a field was changed."""
    from kafka.record.util import calc_crc32c

    struct.pack_into(">I", data, 17, calc_crc32c(memoryview(data)[21:]))
    return bytes(data)


def values_in(records: bytes | None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record of a fetched chunk; a cut last batch is left out."""
    found: list[tuple[int, bytes | None]] = []
    place = 0
    data = records or b""
    while place + 12 <= len(data):
        (size,) = struct.unpack_from(">i", data, place + 8)
        if place + 12 + size > len(data):
            break
        for record in DefaultRecordBatch(data[place : place + 12 + size]):
            found.append((record.offset, record.value))
        place += 12 + size
    return found


# -- kio's messages from and to dictionaries ----------------------------------------------------------------


def request_frame(
    api: str,
    api_version: int,
    correlation_id: int,
    fields: Mapping[str, Any],
    client_id: str = "compat-tests",
) -> bytes:
    """The whole frame, length included. TypeError for a field that no version has."""
    if not _has_kio(api, api_version):
        return raw_tables.request_frame(api, api_version, correlation_id, fields)
    unknown = fields.keys() - _field_names(api)
    if unknown:
        raise TypeError(f"{api} has no {', '.join(sorted(unknown))}")
    kind: Any = load_entity_schema(api, api_version, EntityType.request)
    header: Any = kind.__header_schema__
    out = io.BytesIO()
    entity_writer(header)(
        out,
        _build(
            header,
            {
                "request_api_key": kind.__api_key__,
                "request_api_version": api_version,
                "correlation_id": correlation_id,
                "client_id": client_id,
            },
        ),
    )
    entity_writer(kind)(out, _build(kind, fields))
    return struct.pack(">i", out.tell()) + out.getvalue()


_NO_TIMES = frozenset({"create_delegation_token", "renew_delegation_token", "expire_delegation_token"})
"""Answers with times of -1, which kio does not read."""


@functools.cache
def _has_kio(api: str, api_version: int) -> bool:
    if api in _NO_TIMES:
        return False
    try:
        load_entity_schema(api, api_version, EntityType.request)
    except UnknownEntity:
        return False
    return True


@functools.cache
def _field_names(api: str) -> frozenset[str]:
    """The top-level fields of every version: a case may name what only some versions have."""
    found: set[str] = set()
    for version in range(25):
        with contextlib.suppress(UnknownEntity):
            kind: Any = load_entity_schema(api, version, EntityType.request)
            found.update(each.name for each in dataclasses.fields(kind))
    return frozenset(found)


def parse_response(api: str, api_version: int, frame: bytes) -> Answer:
    """The body as a dictionary; every byte of the frame must be used."""
    if not _has_kio(api, api_version):
        return raw_tables.parse_response(api, api_version, frame)
    kind: Any = load_entity_schema(api, api_version, EntityType.response)
    _, used = _sized(entity_reader(kind.__header_schema__)(frame, 0))
    body, more = _sized(entity_reader(kind)(frame, used))
    if used + more != len(frame):
        raise AssertionError(f"{api} v{api_version}: {len(frame) - used - more} bytes too many in the answer")
    found = _plain(body)
    assert isinstance(found, dict)
    return found


def _sized(result: Any) -> tuple[Any, int]:
    value, size = result
    return value, size


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _build(kind: Any, values: Mapping[str, Any]) -> Any:
    arguments = {}
    for each in dataclasses.fields(kind):
        has_default = (
            each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING
        )
        if each.name in values:
            arguments[each.name] = _convert(_hints(kind)[each.name], each.metadata, values[each.name])
        elif not has_default:
            arguments[each.name] = _zero(_hints(kind)[each.name], each.metadata)
    return kind(**arguments)


def _convert(hint: Any, metadata: Mapping[str, Any], value: Any) -> Any:
    kafka_type = str(metadata.get("kafka_type", ""))
    if kafka_type.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    if value is None or (kafka_type and not isinstance(value, list | tuple)):
        return value
    inner = next((arg for arg in typing.get_args(hint) if arg is not type(None)), hint)
    if isinstance(value, list | tuple):
        if typing.get_origin(inner) is tuple:  # a nullable array
            inner = typing.get_args(inner)[0]
        return tuple(_build(inner, each) if isinstance(each, Mapping) else each for each in value)
    return _build(inner, value)


def _zero(hint: Any, metadata: Mapping[str, Any]) -> Any:
    args = typing.get_args(hint)
    if type(None) in args:
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    kafka_type = str(metadata.get("kafka_type", ""))
    if kafka_type.startswith("timedelta"):
        return datetime.timedelta(0)
    simple: dict[str, Any] = {"string": "", "bool": False, "bytes": b"", "records": b"", "float64": 0.0}
    if kafka_type in simple:
        return simple[kafka_type]
    if kafka_type:
        return 0
    return _build(hint, {})


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value


@contextlib.contextmanager
def raw_connection(
    bootstrap: str, timeout_s: float = 15.0, *, home: int = 0
) -> typing.Iterator[RawConnection]:
    """A connection to `host:port`, closed at the end; to several, by way of the `home`-th of them."""
    from compat_tests.routed import RoutedConnection

    *first, last = bootstrap.split(",")
    if first:
        with RoutedConnection([*first, last], home, timeout_s) as routed:
            yield routed
        return
    host, _, port = last.rpartition(":")
    with RawConnection(host, int(port), timeout_s) as connection:
        yield connection
