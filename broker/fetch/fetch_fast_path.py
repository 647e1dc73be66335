"""The fast path of Fetch: requests like the last one of their connection, served without being decoded.

Owns: what the first bytes of a connection's last plain request meant, up to its session id, and its last
ones, behind the partitions; and the wait of a plain request. Invariants: for any bytes it either declines
before anything has changed, or leaves the session, the state and the response that `Fetch` leaves
(`tests/broker/fetch/test_any_fetches.py`). Plain is a consumer's request of version 11 or later that goes
on in its session, without new or forgotten partitions, or has no session; its partitions are led here, and
what it gets is in memory (`plain_read.py`). A plain request that waits for its first byte and is no longer
plain when it comes is completed by the general path. Does not: send or order replies
(`broker/network/connection.py`), or know errors.
"""

from __future__ import annotations

import logging
from struct import Struct
from struct import error as StructError
from typing import Final

from lockstep.broker.fetch import plain_read
from lockstep.broker.fetch.fetch_purgatory import DelayedFetch
from lockstep.broker.fetch.fetch_requests import (
    REPLICA_STATE_MIN_VERSION,
    FetchRequests,
    has_changed_role,
    replica_id_of,
)
from lockstep.broker.fetch.fetch_session import (
    FINAL_EPOCH,
    NO_SESSION,
    TOPIC_IDS_MIN_VERSION,
    FetchContext,
    FetchItem,
    FetchSession,
)
from lockstep.broker.fetch.plain_read import FLEXIBLE_MIN_VERSION, PlainRead, Requested
from lockstep.broker.metadata.leader_epoch_check import NO_EPOCH
from lockstep.broker.requests.fast_path import FastConnection
from lockstep.broker.requests.request_context import ClientContext, PendingResponse
from lockstep.broker.requests.router import Route
from lockstep.protocol.api import ApiKey, RequestHeader, read_request_header
from lockstep.protocol.compiler import decode
from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest
from lockstep.protocol.primitives import Buffer, MalformedMessage

log = logging.getLogger("lockstep.connection")

MIN_VERSION: Final = 11
"""The first version that is served: in each earlier one a partition has other fields."""
MAX_REQUEST_BYTES: Final = 1 << 16
"""LIMIT. A larger request is declined; two thousand partitions fit."""
MAX_REMEMBERED_BYTES: Final = 1024
"""LIMIT. The longest start, and the longest end, of a request that a connection remembers."""
MAX_ITEMS: Final = 1024
"""LIMIT. Partitions that a connection without a session remembers."""
MAX_SKIPPED: Final = 63
"""LIMIT. A back-off: after a request that is not plain the next ones take the general path. Each further
one doubles their number, up to this limit; a plain one ends it."""
MAX_BYTE_LENGTH: Final = 127
"""The longest compact length of one byte; more topics, or partitions of one, are declined."""
CORRELATION_END: Final = 8
_START: Final = Struct(">Ii").unpack_from
"""API key and version as one number, and the correlation id."""
_INT32: Final = Struct(">i").unpack_from
_SHORT: Final = Struct(">h").unpack_from
_ENTRY: Final = Struct(">iiqiqiB")
_OLD_ENTRY: Final = Struct(">iiqqi")
_TO_EPOCH: Final = 17
"""The bytes from the longest wait to the session's epoch; a replica id may come before them."""
_REPLICA_ID_BYTES: Final = 4

Entry = tuple[tuple[str | bytes, int], Requested]
"""Topic and index, and what is requested."""


class _FetchPattern:
    """The first and last bytes of a request, and what they mean."""

    __slots__ = (
        "check", "client_id", "end", "epoch_at", "items", "key_and_version", "limits", "max_wait_ms",
        "min_bytes", "quota_changes", "request", "session_id", "settings", "start", "version",
    )  # fmt: skip

    def __init__(
        self, path: FetchFastPath, client: ClientContext, version: int, request: FetchRequest
    ) -> None:
        requests = path.requests
        self.version = version
        self.key_and_version = ApiKey.FETCH << 16 | version
        self.start = self.end = b""
        """The bytes after the correlation id up to the session id, and those after the topics."""
        self.epoch_at = 0
        """The position of the session epoch."""
        self.request = request
        """The request without its topics."""
        self.settings = requests.cluster.settings
        """The settings that the limits are of."""
        self.client_id: str | None = None
        self.quota_changes = requests.quotas.changes
        """`QuotaManager.changes` when its client had no quota."""
        self.limits = requests.limits(request)
        self.check = requests.check(client, version, request)
        self.session_id = request.session_id
        self.max_wait_ms = request.max_wait_ms
        self.min_bytes = min(request.min_bytes, self.limits.max_bytes)
        self.items: dict[tuple[str | bytes, int], FetchItem] = {}
        """The partitions of the last requests, where there is no session."""

    def matches(self, frame: memoryview, key_and_version: int, requests: FetchRequests) -> bool:
        """True if a request has these bytes, and they mean the same."""
        return (
            self.key_and_version == key_and_version
            and self.start == frame[CORRELATION_END : self.epoch_at]
            and self.end == frame[len(frame) - len(self.end) :]
            and self.settings is requests.cluster.settings
            and self.quota_changes == requests.quotas.changes
        )

    def item(self, key: tuple[str | bytes, int]) -> FetchItem:
        """A partition, without a session."""
        item = self.items.get(key)
        if item is None:
            if len(self.items) >= MAX_ITEMS:
                self.items.clear()
            item = self.items[key] = FetchItem(key[0], FetchPartition(partition=key[1]))
        return item


class FetchFastPath:
    """See the module. Args: route: of Fetch, which counts the requests."""

    __slots__ = ("requests", "route")

    def __init__(self, requests: FetchRequests, route: Route) -> None:
        self.requests, self.route = requests, route

    def open(self, connection: FastConnection, client: ClientContext) -> PlainFetches:
        """See `FastPath`."""
        return PlainFetches(self, connection, client)

    def trim(self) -> None:
        """See `FastPath`: partitions are remembered by connections alone."""


class PlainFetch(PendingResponse):
    """A plain request: the place of its response in its connection's order, and its wait."""

    __slots__ = (
        "_context", "_counted_offsets", "_delayed_fetch", "_known", "_owner", "buffers", "correlation_id",
        "holds_fetch", "pending", "reply_bytes", "request_bytes",
    )  # fmt: skip

    holds_request = False

    def __init__(
        self,
        owner: PlainFetches,
        known: _FetchPattern,
        correlation_id: int,
        request_bytes: int,
        context: FetchContext,
    ) -> None:
        super().__init__()
        self._owner, self._known, self._context = owner, known, context
        self.correlation_id = correlation_id
        self.request_bytes = request_bytes
        self.holds_fetch = False
        self.buffers: list[Buffer] | None = None
        self.reply_bytes = 0
        self.pending: PendingResponse | None = None
        self._delayed_fetch: DelayedFetch | None = None
        self._counted_offsets: list[int] = []

    @property
    def header(self) -> RequestHeader:
        """The header of the request, without the client id."""
        return RequestHeader(ApiKey.FETCH, self._known.version, self.correlation_id, None)

    def respond(self, read: PlainRead) -> None:
        """Updates the session by the read, and encodes the response."""
        context, known = self._context, self._known
        session, found = context.session, read.found
        if session is not None:
            for each in found:
                item = each.item
                item.log_start_offset, item.high_watermark = each.log_start_offset, each.high_watermark
                if each.total_bytes:
                    session.move_to_end(item)
        self.buffers, self.reply_bytes = plain_read.encode(
            known.version, self.correlation_id, context.session_id, found, known.limits.read_committed
        )

    def wait(self, read: PlainRead) -> None:
        """Respond once there is something to read, or after the client's longest wait."""
        self.request_bytes, self.holds_fetch = 0, True
        self.pending = self
        self.on_disconnect = self._cancel
        self._counted_offsets = [item.fetch_offset for item in self._context.items]
        purgatory = self._owner.path.requests.purgatory
        self._delayed_fetch = purgatory.wait(self._attempt, read.partitions, self._known.max_wait_ms)

    def _cancel(self) -> None:
        delayed_fetch, self._delayed_fetch, self.on_disconnect = self._delayed_fetch, None, None
        if delayed_fetch is not None:
            self._owner.path.requests.purgatory.cancel(delayed_fetch)

    def _attempt(self, expired: bool) -> bool:
        """Responds if there is something now, or the time is over."""
        if not expired and not self._has_something():
            return False
        self._delayed_fetch = None  # which refers to this: nothing is left to the garbage collector
        context, known = self._context, self._known
        connection = self._owner.connection
        try:
            read = plain_read.read(context.items, {}, known.check, known.limits, context.is_incremental)
            if read is None:
                self._complete_decoded()
                return True
            _set_read_partitions(context.items, read)
            self.respond(read)
            self.pending = self.on_disconnect = None
            connection.on_reply(self)
        except Exception:
            log.exception("a connection failed")
            connection.abort()
        return True

    def _has_something(self) -> bool:
        """True if a byte can be read, or a partition is not what it was."""
        limits = self._known.limits
        for item, counted_offset in zip(self._context.items, self._counted_offsets, strict=True):
            partition = item.partition
            if partition is None:
                break  # as in the general path; another connection of the session made it so
            if partition.topic.deleted or has_changed_role(partition, item):
                return True
            if limits.end_offset(partition) > counted_offset:
                return True
        return False

    def _complete_decoded(self) -> None:
        """Complete by the general path: there are errors, or the bytes are on the disk."""
        owner, known = self._owner, self._known
        decoded = owner.path.requests.open_request(
            owner.client, known.version, known.request, self._context, known.client_id
        )
        self.listen(self.on_done)
        try:
            decoded.complete(self)
        except Exception as error:
            self.fail(error)

    def on_done(self, pending: PendingResponse) -> None:
        """See `RoutedReply`."""
        self.pending = self.on_disconnect = None
        connection = self._owner.connection
        try:
            connection.on_response(self, pending)
        except Exception:
            log.exception("a connection failed")
            connection.abort()


class PlainFetches:
    """The plain requests of one connection."""

    __slots__ = ("_known", "_skip_next", "_to_skip", "client", "connection", "path")

    def __init__(self, path: FetchFastPath, connection: FastConnection, client: ClientContext) -> None:
        self.path, self.connection, self.client = path, connection, client
        self._known: _FetchPattern | None = None
        self._to_skip = self._skip_next = 0
        """The number of requests that are skipped now, and after the next that is not plain: a back-off."""

    def append(self, frame: memoryview) -> PlainFetch | None:
        """See `ConnectionFastPath`."""
        if self._to_skip:
            self._to_skip -= 1
            return None
        try:
            reply = self._serve(frame)
        except (IndexError, StructError, UnicodeDecodeError, MalformedMessage):
            reply = None
        if reply is None:
            self._to_skip = self._skip_next
            self._skip_next = min(2 * self._skip_next + 1, MAX_SKIPPED)
        else:
            self._skip_next = 0
        return reply

    def _serve(self, frame: memoryview) -> PlainFetch | None:
        """Serve a plain request. Raises IndexError, struct.error and others where it cannot be read."""
        path, known, size = self.path, self._known, len(frame)
        if size > MAX_REQUEST_BYTES:
            return None
        key_and_version, correlation_id = _START(frame)
        if known is None or not known.matches(frame, key_and_version, path.requests):
            known = self._learn(frame, key_and_version)
            if known is None:
                return None
        (epoch,) = _INT32(frame, known.epoch_at)
        entries, end = _entries(frame, known.epoch_at + 4, known.version)
        if end != size - len(known.end):
            return None
        found = self._find_items(known, epoch, entries)
        if found is None:
            return None
        moved, session = found
        items = list(moved) if session is None else [*session.items.values()]
        context = FetchContext(items, session, session is not None)
        read = plain_read.read(items, moved, known.check, known.limits, context.is_incremental)
        if read is None:
            return None
        is_enough = read.total >= known.min_bytes or known.max_wait_ms <= 0
        if not is_enough and (read.total or known.min_bytes > 1):
            return None
        if session is not None:
            path.requests.sessions.advance(session)
        for item, requested in moved.items():
            item.fetch_offset, item.max_bytes, item.current_leader_epoch, item.last_fetched_epoch = requested
        _set_read_partitions(items, read)
        path.route.request_count += 1
        reply = PlainFetch(self, known, correlation_id, size, context)
        if is_enough:
            reply.respond(read)
        else:
            reply.wait(read)
        return reply

    def _find_items(
        self, known: _FetchPattern, epoch: int, entries: list[Entry]
    ) -> tuple[dict[FetchItem, Requested], FetchSession | None] | None:
        """The partitions that a request names, and its session. None where these do not continue."""
        moved: dict[FetchItem, Requested] = {}
        if known.session_id == NO_SESSION:
            for key, requested in entries:
                moved[known.item(key)] = requested
            if epoch != FINAL_EPOCH or not moved or len(moved) < len(entries):
                return None
            return moved, None
        session = self.path.requests.sessions.find(known.session_id)
        if (
            session is None
            or session.epoch != epoch
            or session.uses_topic_ids != (known.version >= TOPIC_IDS_MIN_VERSION)
            or not session.items
        ):
            return None
        for key, requested in entries:
            item = session.items.get(key)
            if item is None:
                return None
            moved[item] = requested
        return moved, session

    def _learn(self, frame: memoryview, key_and_version: int) -> _FetchPattern | None:
        """Remember what the first and last bytes of a request mean; None where it is not plain. Raises as
        the decoder and as `_entries`."""
        self._known = None
        key, version = key_and_version >> 16, key_and_version & 0xFFFF
        if key != ApiKey.FETCH or not MIN_VERSION <= version <= self.path.route.last:
            return None
        header, at = read_request_header(frame)
        if self.path.requests.quotas.limits_fetch(self.client, header.client_id):
            return None  # the general path counts it
        request = decode(FetchRequest, version, frame, at, trailing=True)
        epoch_at = at + _TO_EPOCH + (_REPLICA_ID_BYTES if version < REPLICA_STATE_MIN_VERSION else 0)
        _, end = _entries(frame, epoch_at + 4, version)
        if replica_id_of(request, version) >= 0:
            return None  # its access would be checked, and its denial logged, twice
        request.topics = []
        known = _FetchPattern(self.path, self.client, version, request)
        known.client_id, known.epoch_at = header.client_id, epoch_at
        known.start, known.end = bytes(frame[CORRELATION_END:epoch_at]), bytes(frame[end:])
        if request.forgotten_topics_data or not known.check.is_plain or end < 0:
            return None
        if max(len(known.start), len(known.end)) > MAX_REMEMBERED_BYTES:
            return None
        self._known = known
        return known


def _set_read_partitions(items: list[FetchItem], read: PlainRead) -> None:
    """Sets the fields of the items that the checks of the general path would set."""
    for item, partition in zip(items, read.partitions, strict=True):
        item.partition = partition
        item.is_diverging = item.is_follower_read = False


def _entries(frame: memoryview, at: int, version: int) -> tuple[list[Entry], int]:
    """The partitions of a request, and where they end; -1 where one is not plain. Raises IndexError,
    struct.error, UnicodeDecodeError."""
    if version < FLEXIBLE_MIN_VERSION:
        return _old_entries(frame, at)
    by_id = version >= TOPIC_IDS_MIN_VERSION
    entries: list[Entry] = []
    topics = frame[at]
    at += 1
    if not 0 < topics <= MAX_BYTE_LENGTH:
        return entries, -1
    for _ in range(topics - 1):
        size = 16 if by_id else frame[at] - 1
        at += not by_id
        name = frame[at : at + size]
        topic = bytes(name) if by_id else str(name, "utf-8")
        at += size
        partitions = frame[at]
        at += 1
        if not 0 <= size < MAX_BYTE_LENGTH or not 0 < partitions <= MAX_BYTE_LENGTH:
            return entries, -1
        for _ in range(partitions - 1):
            index, epoch, offset, last_epoch, _, max_bytes, tags = _ENTRY.unpack_from(frame, at)
            if tags:
                return entries, -1
            at += _ENTRY.size
            entries.append(((topic, index), (offset, max_bytes, epoch, last_epoch)))
        if frame[at]:
            return entries, -1
        at += 1
    return entries, at


def _old_entries(frame: memoryview, at: int) -> tuple[list[Entry], int]:
    """`_entries` of the version before the flexible ones."""
    entries: list[Entry] = []
    (topics,) = _INT32(frame, at)
    at += 4
    if topics < 0:
        return entries, -1
    for _ in range(topics):
        (size,) = _SHORT(frame, at)
        at += 2
        topic = str(frame[at : at + size], "utf-8")
        at += size
        (partitions,) = _INT32(frame, at)
        at += 4
        if size < 0 or partitions < 0:
            return entries, -1
        for _ in range(partitions):
            index, epoch, offset, _, max_bytes = _OLD_ENTRY.unpack_from(frame, at)
            at += _OLD_ENTRY.size
            entries.append(((topic, index), (offset, max_bytes, epoch, NO_EPOCH)))
    return entries, at
