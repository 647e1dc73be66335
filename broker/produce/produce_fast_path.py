"""The fast path of Produce: requests like the last one of their connection, appended without being decoded.

Owns: what the first bytes of a connection's last plain request meant, up to its partitions (equal bytes mean
the same while `MetadataCache.changes` is the same), and which batches are plain. Invariants: for any bytes
it either declines before anything has changed, or leaves the frame, the state and the response that `Produce`
leaves (`tests/broker/produce/test_produce_fast_path.py`). Plain is a request without transactional id that
names one topic; its batches have no transaction, go to partitions of one log group that is led here, and need
no look at their records: no locks, keys, codec or times to be checked or changed. An idempotent producer's
batch continues its sequence: what is new, sent again or out of order is declined. Does not: send or order
replies (`broker/network/connection.py`), or reject anything (`broker/produce/appender.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import Final

from crc32c import crc32c

from lockstep.broker.authorization.authorizer import EVERYTHING, Access
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.batch_validation import MIN_RECORD_BYTES
from lockstep.broker.produce.delayed_produce import TOPIC_IDS_MIN_VERSION, DelayedProduce
from lockstep.broker.produce.plain_topic import PlainPartition, PlainTopic, is_plain
from lockstep.broker.produce.producer_state import Producer
from lockstep.broker.quotas.quota_manager import NO_QUOTAS, QuotaManager
from lockstep.broker.requests.fast_path import FastConnection
from lockstep.broker.requests.request_context import ClientContext, PendingResponse
from lockstep.broker.requests.router import Route
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, read_request_header
from lockstep.protocol.primitives import Buffer, MalformedMessage
from lockstep.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    CURRENT_MAGIC,
    HEADER,
    LENGTH_PREFIX_BYTES,
)

log = logging.getLogger("lockstep.connection")

FLEXIBLE_MIN_VERSION: Final = 9
MAX_REQUEST_BYTES: Final = 1 << 21
"""LIMIT. A larger request is declined: its batches are appended in time slices, and beside their checksums
the decoding costs little. A compact length of up to so much has three bytes."""
MAX_SKIPPED: Final = 63
"""LIMIT. A back-off: after a request that is not plain the fast path skips the next ones without a look. Each
further one doubles their number, up to this limit; a plain one ends it. So a producer whose requests never
are plain pays little."""
MAX_PREFIX_BYTES: Final = 1024
"""LIMIT. The longest prefix of a request that a connection remembers: a client id of 32 KB, or tagged fields
of any size in the header, would stay in memory that no limit counts."""
MAX_PREPARED: Final = 10_000
"""LIMIT. Partitions whose responses are prepared, 0.7 KB each and once for each version: a client may name
every partition in every version."""
ONE_TOPIC: Final = 2
"""A compact array's length is one more than the number of its elements."""
MAX_BYTE_LENGTH: Final = 127
"""The longest compact length of one byte. LIMIT: in each version fewer batches are appended at once; more are
appended in time slices."""
CORRELATION_END: Final = 8
CRC_START: Final = 21
"""The first byte of a batch that its checksum covers."""
_START: Final = Struct(">Ii").unpack_from
"""API key and version as one number, and the correlation id."""
_HEADER: Final = HEADER.unpack_from
_ACKS: Final = Struct(">hi").unpack_from
_ID_ACKS_TOPICS: Final = Struct(">hhiih").unpack_from
"""Up to the length of the only topic's name, in versions that are not flexible."""
_COMPACT_PARTITION: Final = Struct(">iB").unpack_from
_PARTITION: Final = Struct(">ii").unpack_from
_INT32: Final = Struct(">i").unpack_from
_NO_TAGS: Final[bytes] = bytes(2)
"""The tagged fields of the topic and of the request."""
SEQUENCE_MASK: Final = (1 << 31) - 1
_DURABLE_ACKS: Final = (-1, 1)

Batch = tuple[PlainPartition, int, int, int, int, int, Producer | None, int, int]
"""Partition; first byte, size; record count, checksum, max timestamp; producer, first and last sequence."""


class PlainResponse:
    """The place of a plain request's response in its connection's order."""

    __slots__ = ("appended", "buffers", "correlation_id", "reply_bytes", "request_bytes", "requests")

    holds_fetch = False
    pending: PendingResponse | None = None

    def __init__(
        self,
        requests: PlainRequests,
        correlation_id: int,
        request_bytes: int,
        appended: list[tuple[PlainPartition, int, int]],
    ) -> None:
        self.requests = requests
        self.correlation_id = correlation_id
        self.request_bytes = request_bytes
        self.appended = appended
        """Partition, base offset and log start offset of each batch."""
        self.buffers: list[Buffer] | None = None
        self.reply_bytes = 0

    def encode(self, path: ProduceFastPath, is_lost: bool) -> tuple[list[Buffer], int]:
        """The whole reply and its size, once it is known what became of the batches."""
        appended = self.appended
        if not is_lost and len(appended) == 1:
            partition, base_offset, log_start_offset = appended[0]
            data = partition.encode(self.correlation_id, base_offset, log_start_offset)
            return [data], len(data)
        topic = appended[0][0].topic
        response = topic.response([partition.response(*offsets) for partition, *offsets in appended])
        if is_lost:
            lost = DelayedProduce(
                path.cluster, path.appenders, path.endpoints, self.requests.client, topic.version,
                path.appenders, False, path.access,
            )  # fmt: skip
            response = lost.fail_all_uncommitted(response.responses)
        return topic.encode(response, self.correlation_id)


class RequestPrefix:
    """The first bytes of a request, up to its topic's partitions, and what they mean."""

    __slots__ = ("bytes", "changes", "end", "is_flexible", "key_and_version", "topic")

    def __init__(self, key_and_version: int, start: bytes, topic: PlainTopic, changes: int) -> None:
        self.key_and_version = key_and_version
        self.bytes = start
        """The bytes after the correlation id."""
        self.end = CORRELATION_END + len(start)
        self.is_flexible = topic.version >= FLEXIBLE_MIN_VERSION
        self.topic = topic
        self.changes = changes
        """`MetadataCache.changes` when it meant that."""


class ProduceFastPath:
    """See the module.

    Args:
        appenders: the append path into each data group.
        route: of Produce, which counts the requests.
        access, quotas: whether a client may write a topic, and whether its requests count for a quota;
            checked once for each prefix, as a change of ACLs or quotas is one of `MetadataCache.changes`.
    """

    __slots__ = (
        "_changes", "_prepared", "_topics", "access", "appenders", "cluster", "endpoints", "quotas", "route",
    )  # fmt: skip
    requests_type: type[PlainRequests]

    def __init__(
        self,
        cluster: MetadataCache,
        appenders: Mapping[int, Appender],
        endpoints: NodeEndpoints,
        route: Route,
        access: Access = EVERYTHING,
        quotas: QuotaManager = NO_QUOTAS,
    ) -> None:
        self.access, self.quotas = access, quotas
        self.cluster, self.appenders, self.endpoints, self.route = cluster, appenders, endpoints, route
        self._topics: dict[tuple[int, bytes], PlainTopic] = {}
        self._changes = -1
        self._prepared = 0
        """The number of partitions in all of them."""

    def open(self, connection: FastConnection, client: ClientContext) -> PlainRequests:
        """See `FastPath`."""
        return self.requests_type(self, connection, client)

    def trim(self) -> None:
        """See `FastPath`."""
        if self._changes != self.cluster.changes:
            self._topics.clear()
            self._prepared = 0
            self._changes = self.cluster.changes

    def topic(self, version: int, name: bytes) -> PlainTopic | None:
        """The plain topic of a name in UTF-8, or of an id in versions that have ids; None for all others."""
        cluster = self.cluster
        self.trim()
        found = self._topics.get((version, name))
        if found is None:
            by_id = version >= TOPIC_IDS_MIN_VERSION
            topic = cluster.topic_by_id(name) if by_id else cluster.topic(name.decode())
            if topic is not None and is_plain(topic):
                found = self._topics[version, name] = PlainTopic(
                    topic, version, self.appenders, self._on_prepare
                )
        return found

    def _on_prepare(self) -> None:
        """One more partition is about to be prepared."""
        if self._prepared >= MAX_PREPARED:
            self._forget_partitions()
        self._prepared += 1

    def _forget_partitions(self) -> None:
        for topic in self._topics.values():
            topic.forget_partitions()
        self._prepared = 0

    def on_commit(self, replies: list[PlainResponse], error: BaseException | None) -> None:
        """The batches of some requests are committed, or lost with the leadership (`error`)."""
        for reply in replies:
            self._complete(reply, error is not None)

    def _complete(self, reply: PlainResponse, is_lost: bool) -> None:
        try:
            reply.buffers, reply.reply_bytes = reply.encode(self, is_lost)
            reply.requests.connection.on_reply(reply)
        except Exception as error:
            self._abort(reply, error)

    def _abort(self, reply: PlainResponse, error: Exception) -> None:
        """This reply's connection has failed; the others continue."""
        log.error("a connection failed", exc_info=error)
        reply.requests.connection.abort()


class PlainRequests:
    """The plain requests of one connection."""

    __slots__ = ("_known", "_path", "_skip_next", "_to_skip", "client", "connection")

    def __init__(self, path: ProduceFastPath, connection: FastConnection, client: ClientContext) -> None:
        self._path, self.connection, self.client = path, connection, client
        self._known: RequestPrefix | None = None
        self._to_skip = self._skip_next = 0
        """The number of requests that are skipped now, and after the next that is not plain: a back-off."""

    def append(self, frame: memoryview) -> PlainResponse | None:
        """See `ConnectionFastPath`."""
        if self._to_skip:
            self._to_skip -= 1
            return None
        path = self._path
        try:
            key_and_version, correlation_id = _START(frame)
            known = self._known
            if (
                known is None
                or known.changes != path.cluster.changes
                or known.key_and_version != key_and_version
                or known.bytes != frame[CORRELATION_END : known.end]
            ):
                known = self._learn(frame, key_and_version)
            batches = None if known is None else self._read(known, frame)
        except (IndexError, StructError, UnicodeDecodeError, MalformedMessage):
            return None
        if not batches:
            return None
        group = batches[0][0].group
        plain = group.plain
        if len(batches) == 1:
            if not plain.has_room(batches[0][2], batches[0][3], 1):
                return None
        elif not _fit_in_open_frame(batches):
            return None
        appended = []
        for partition, at, size, count, crc, max_timestamp, producer, sequence, last_sequence in batches:
            log_start_offset = partition.log.log_start_offset
            batch = bytearray(frame[at : at + size])
            base_offset = plain.append(partition.log, batch, count, crc, max_timestamp)
            if producer is not None:
                producer.append(sequence, last_sequence, base_offset, group.append_time_ms)
            appended.append((partition, base_offset, log_start_offset))
        path.route.request_count += 1
        reply = PlainResponse(self, correlation_id, len(frame), appended)
        group.open_waiters.share(path.on_commit, reply)
        return reply

    def _learn(self, frame: memoryview, key_and_version: int) -> RequestPrefix | None:
        """Remember what the first bytes of a request mean; None where it is not plain. Raises as the header's
        reader; IndexError or struct.error where it is too short."""
        self._known = None
        found = self._prefix_of(frame, key_and_version)
        if found is None:
            self._to_skip = self._skip_next
            self._skip_next = min(2 * self._skip_next + 1, MAX_SKIPPED)
            return None
        self._skip_next = 0
        self._known = found
        return found

    def _prefix_of(self, frame: memoryview, key_and_version: int) -> RequestPrefix | None:
        key, version = key_and_version >> 16, key_and_version & 0xFFFF
        route = self._path.route
        if key != ApiKey.PRODUCE or not route.first <= version <= route.last:
            return None
        header, at = read_request_header(frame)
        if self._path.quotas.limits_produce(self.client, header.client_id):
            return None  # the general path counts it
        if version >= FLEXIBLE_MIN_VERSION:
            acks, _ = _ACKS(frame, at + 1)
            if frame[at] or frame[at + 7] != ONE_TOPIC or acks not in _DURABLE_ACKS:
                return None
            at += 8
            size = 16 if version >= TOPIC_IDS_MIN_VERSION else frame[at] - 1
            at += version < TOPIC_IDS_MIN_VERSION
            if not 0 <= size < MAX_BYTE_LENGTH:
                return None
        else:
            transactional_id, acks, _, topics, size = _ID_ACKS_TOPICS(frame, at)
            if transactional_id != -1 or topics != 1 or size < 0 or acks not in _DURABLE_ACKS:
                return None
            at += 14
        end = at + size
        topic = self._path.topic(version, bytes(frame[at:end]))
        if topic is None or end > min(len(frame), MAX_PREFIX_BYTES):
            return None
        if not self._path.access.allows(
            self.client, AclOperation.WRITE, AclResourceType.TOPIC, topic.topic_name, is_requested=False
        ):
            return None  # the general path rejects it
        return RequestPrefix(
            key_and_version, bytes(frame[CORRELATION_END:end]), topic, self._path.cluster.changes
        )

    def _read(self, known: RequestPrefix, frame: memoryview) -> list[Batch] | None:
        """The batches; None where one is not plain, or there is none. Raises IndexError, struct.error."""
        at, end = known.end, len(frame)
        if end > MAX_REQUEST_BYTES:
            return None
        topic = known.topic
        batches: list[Batch] = []
        if not known.is_flexible:
            (count,) = _INT32(frame, at)
            at += 4
            if not 0 < count < MAX_BYTE_LENGTH:
                return None
            while at < end and len(batches) < count:
                index, size = _PARTITION(frame, at)
                batch = self._plain_batch(topic.partition(index), frame, at + 8, size)
                if batch is None:
                    return None
                batches.append(batch)
                at += 8 + size
            return batches if at == end and len(batches) == count else None
        count = frame[at] - 1
        at += 1
        if not 0 < count < MAX_BYTE_LENGTH:
            return None
        for _ in range(count):
            index, size = _COMPACT_PARTITION(frame, at)
            at += 5
            if size > MAX_BYTE_LENGTH:
                more = frame[at]
                size += (more - 1) << 7
                at += 1
                if more > MAX_BYTE_LENGTH:
                    size += (frame[at] - 1) << 14
                    at += 1
            size -= 1
            batch = self._plain_batch(topic.partition(index), frame, at, size)
            if batch is None:
                return None
            batches.append(batch)
            at += size + 1
            if frame[at - 1]:
                return None
        return batches if frame[at:] == _NO_TAGS else None

    def _plain_batch(
        self, partition: PlainPartition | None, frame: memoryview, at: int, size: int
    ) -> Batch | None:
        """The batch there; None where it is not plain."""
        if partition is None or not BATCH_HEADER_BYTES <= size <= len(frame) - at:
            return None
        (base_offset, length, _, magic, crc, attributes, last_delta, base_timestamp, max_timestamp,
         producer_id, epoch, sequence, count) = _HEADER(frame, at)  # fmt: skip
        topic, appender, local_id = partition.topic, partition.appender, partition.log.local_id
        locks = appender.locks
        if (
            length + LENGTH_PREFIX_BYTES != size
            or magic != CURRENT_MAGIC
            or base_offset
            or not 0 <= attributes <= topic.max_codec
            or size > topic.max_message_bytes
            or last_delta + 1 != count
            or count < 1
            or (not attributes and count * MIN_RECORD_BYTES > size - BATCH_HEADER_BYTES)
            or max_timestamp < base_timestamp
            or max_timestamp < -1
            or max_timestamp - appender.clock_ms() > topic.after_max_ms
            or (locks is not None and local_id in locks.table.partitions)
        ):
            return None
        producer = None
        if producer_id >= 0:
            producer = appender.producers.producer_continued_by(local_id, producer_id, epoch, sequence)
            if producer is None:
                return None
        if crc32c(frame[at + CRC_START : at + size]) != crc:
            return None
        last_sequence = sequence + last_delta & SEQUENCE_MASK
        return partition, at, size, count, crc, max_timestamp, producer, sequence, last_sequence


ProduceFastPath.requests_type = PlainRequests


def _fit_in_open_frame(batches: list[Batch]) -> bool:
    """True if batches of different partitions of one log group fit into its open frame together."""
    group = batches[0][0].group
    if len({each[0].index for each in batches}) < len(batches):
        return False
    if any([each[0].group is not group for each in batches]):
        return False
    size, records = sum([each[2] for each in batches]), sum([each[3] for each in batches])
    return group.plain.has_room(size, records, len(batches))
