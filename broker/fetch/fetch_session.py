"""Fetch sessions: the partitions that a consumer reads, cached between its requests (KIP-227).

Owns: the bounded cache of sessions, and what each request of a session means. Invariants: session ids are
random and never 0; a session's epoch grows by one per request, so a repeated or reordered request is
rejected; when the cache is full of sessions in use, a new client simply gets none (session id 0). An unknown
partition is cached like others, as it may be created yet, but not one whose topic name is impossible: that
gets an error in its own response only (Kafka caches it).
Does not: read partitions, or know which there are (the Fetch handler does). Clock and randomness are
arguments.
Source: KIP-227; Kafka's FetchSession for the errors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lockstep.broker.metadata.topic_names import MAX_NAME_CHARACTERS
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

if TYPE_CHECKING:
    from lockstep.broker.metadata.metadata_cache import Partition

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
TOPIC_IDS_MIN_VERSION: Final = 13
EVICTION_SECONDS: Final = 120.0
"""A session that is idle for this time may be evicted for a new one, as in Kafka."""
MAX_ID: Final = 2**31 - 1
ITEM_BYTES: Final = 200
"""The estimated size of a cached partition, without a long name of its topic."""


class FetchItem:
    """One requested partition, and what the client's last response contained."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "index",
        "is_diverging",
        "is_follower_read",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
    )

    def __init__(self, topic: str | bytes, requested: FetchPartition) -> None:
        self.topic = topic
        """Its topic as the client names it: a name, or an id since version 13."""
        self.index = requested.partition
        self.partition: Partition | None = None
        """The partition object of the last lookup."""
        self.high_watermark = -1
        self.log_start_offset = -1
        self.is_diverging = False
        """True if the current response has the place where the client's log diverges from the leader's."""
        self.is_follower_read = False
        """True if this node was a follower at the last check (KIP-392)."""
        self.update(requested)

    def update(self, requested: FetchPartition) -> None:
        """Replace the requested offset and limits."""
        self.fetch_offset = requested.fetch_offset
        self.max_bytes = requested.partition_max_bytes
        self.current_leader_epoch = requested.current_leader_epoch
        self.last_fetched_epoch = requested.last_fetched_epoch

    def has_changed(self, data: PartitionData) -> bool:
        """True if an incremental response must contain this partition."""
        return bool(
            data.records
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.error_code
            or data.preferred_read_replica >= 0
            or self.is_diverging
        )

    def update_cached(self, data: PartitionData) -> None:
        """Caches what the client learns from `data`; after an error the next response repeats it."""
        self.log_start_offset = data.log_start_offset
        self.high_watermark = -1 if data.error_code or self.is_diverging else data.high_watermark


class FetchSession:
    """One client's remembered partitions."""

    __slots__ = ("epoch", "items", "last_used", "session_id", "uses_topic_ids", "weight")

    def __init__(self, session_id: int, uses_topic_ids: bool, items: list[FetchItem], now: float) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        """The epoch of the next request."""
        self.items: dict[tuple[str | bytes, int], FetchItem] = {(i.topic, i.index): i for i in items}
        self.weight = sum([_weight(topic) for topic, _ in self.items])
        """Its partitions, those of a long name as two."""
        self.last_used = now

    def move_to_end(self, item: FetchItem) -> None:
        """Moves a partition that just got data to the end of the order."""
        key = (item.topic, item.index)
        if self.items.pop(key, None) is not None:
            self.items[key] = item


class FetchContext:
    """The partitions of one Fetch request, with those of its session."""

    __slots__ = ("is_incremental", "items", "session")

    def __init__(self, items: list[FetchItem], session: FetchSession | None, incremental: bool) -> None:
        self.items = items
        self.session = session
        self.is_incremental = incremental

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id


class FetchSessionError(Exception):
    """The request does not fit its session; the whole response is this error."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class FetchSessions:
    """The cache of sessions.

    Args:
        max_sessions, max_partitions: the cache's bounds.
        clock: seconds, monotonic.
        random_id: a number from 1 to the argument.
    """

    def __init__(
        self,
        max_sessions: int,
        max_partitions: int,
        clock: Callable[[], float],
        random_id: Callable[[int], int],
    ) -> None:
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._clock = clock
        self._random_id = random_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.partition_count = 0
        """The weight of all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, api_version: int) -> FetchContext:
        """The partitions that this request reads. Raises FetchSessionError."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(request.session_id)
            items = _items(request, api_version)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(items, None, False)
            return FetchContext(items, self._open(items, api_version), False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise FetchSessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (api_version >= TOPIC_IDS_MIN_VERSION):
            raise FetchSessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        items = self._update(session, request, api_version)
        if not items:
            self._remove(session.session_id)
            return FetchContext([], None, False)
        self.advance(session)
        return FetchContext(items, session, True)

    def find(self, session_id: int) -> FetchSession | None:
        """The session with this id."""
        return self._sessions.get(session_id)

    def advance(self, session: FetchSession) -> None:
        """Another request of the session is served."""
        session.epoch = 1 if session.epoch == MAX_ID else session.epoch + 1
        session.last_used = self._clock()
        self._sessions.move_to_end(session.session_id)

    def close(self, session: FetchSession) -> None:
        """Removes a session whose id the client does not get."""
        self._remove(session.session_id)

    def _open(self, items: list[FetchItem], api_version: int) -> FetchSession | None:
        items_kept = [item for item in items if _can_exist(item.topic)]
        if not self._make_room(sum([_weight(item.topic) for item in items_kept])):
            return None
        session_id = self._random_id(MAX_ID)
        while session_id in self._sessions:
            session_id = self._random_id(MAX_ID)
        session = FetchSession(session_id, api_version >= TOPIC_IDS_MIN_VERSION, items_kept, self._clock())
        self._sessions[session_id] = session
        self.partition_count += session.weight
        return session

    def _make_room(self, weight: int) -> bool:
        oldest_kept = self._clock() - EVICTION_SECONDS
        while (
            len(self._sessions) >= self._max_sessions or self.partition_count + weight > self._max_partitions
        ):
            if not self._sessions:
                return False
            oldest = next(iter(self._sessions.values()))
            if oldest.last_used > oldest_kept:
                return False
            self._remove(oldest.session_id)
        return True

    def _update(self, session: FetchSession, request: FetchRequest, api_version: int) -> list[FetchItem]:
        """The partitions that this request reads. Raises FetchSessionError."""
        weight_before = session.weight
        by_id = api_version >= TOPIC_IDS_MIN_VERSION
        uncached: list[FetchItem] = []
        for topic in request.topics:
            topic_key = topic.topic_id if by_id else topic.topic
            for requested in topic.partitions:
                item = session.items.get((topic_key, requested.partition))
                if item is not None:
                    item.update(requested)
                elif _can_exist(topic_key):
                    session.items[(topic_key, requested.partition)] = FetchItem(topic_key, requested)
                    session.weight += _weight(topic_key)
                else:
                    uncached.append(FetchItem(topic_key, requested))
        for forgotten in request.forgotten_topics_data:
            topic_key = forgotten.topic_id if by_id else forgotten.topic
            for index in forgotten.partitions:
                if session.items.pop((topic_key, index), None) is not None:
                    session.weight -= _weight(topic_key)
        self.partition_count += session.weight - weight_before
        if self.partition_count > self._max_partitions and session.weight > weight_before:
            self._remove(session.session_id)
            raise FetchSessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return [*session.items.values(), *uncached]

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= session.weight


def _can_exist(topic: str | bytes) -> bool:
    """True if such a topic may exist, now or later. Only the length of a name and its letters count."""
    return isinstance(topic, bytes) or (len(topic) <= MAX_NAME_CHARACTERS and topic.isascii())


def _weight(topic: str | bytes) -> int:
    """The weight of a partition of this topic: each may have its own copy of a long name."""
    return 1 + len(topic) // ITEM_BYTES


def _items(request: FetchRequest, api_version: int) -> list[FetchItem]:
    if api_version >= TOPIC_IDS_MIN_VERSION:
        return [
            FetchItem(topic.topic_id, requested) for topic in request.topics for requested in topic.partitions
        ]
    return [FetchItem(topic.topic, requested) for topic in request.topics for requested in topic.partitions]
