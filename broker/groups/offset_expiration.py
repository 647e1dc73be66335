"""Removes expired offsets (KIP-211), and those of deleted topics.

Owns: the rules (`expired`), enforced on all groups a little at a time. A group's offsets expire when it
has had no members for `offsets.retention.minutes`; where it has members, or never had any, an offset does so
long after its last commit, unless a member subscribes to the topic. A group without members and offsets goes.
Invariants: only groups coordinated here are touched; nothing expires that a transaction may change yet; what
is decided from committed state is written only while nothing of the group is under way, so that no tombstone
follows a commit it does not know of; a topic is taken for gone on the word of the controller alone, for
another node may not have heard of a new one yet; only this node's clock decides what is old.
Source: Kafka's OffsetMetadataManager.cleanupExpiredOffsets, ClassicGroup.offsetExpirationCondition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from lockstep.broker.coordination.expiration_loop import ExpirationRule
from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.groups.group_records import NEVER, CommittedOffset, group_record, offset_record
from lockstep.broker.groups.group_store import GroupStore, kafka_error
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache
from lockstep.broker.process.log_text import printable
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.types import StorageError

log = logging.getLogger("lockstep.groups")

OFFSETS_PER_STEP: Final = 1_000
"""Offsets looked at before others are served: about a millisecond."""
MINUTE_MS: Final = 60_000
HIDDEN_TIMEOUT_SECONDS: Final = 5.0
HIDDEN_RETRY_SECONDS: Final = 0.01
"""This node hears of a deletion a little later than the controller, which decided it."""

TopicPartition = tuple[str, int]


class OffsetExpiration:
    """The expiration of one broker's committed offsets."""

    def __init__(self, consumer_groups: GroupCoordinators, cluster: MetadataCache) -> None:
        self._consumer_groups = consumer_groups
        self._cluster = cluster

    def rules(self) -> list[ExpirationRule]:
        """The rule of committed offsets; topics whose deletion a crash cut short are looked for at once."""
        return [
            ExpirationRule(
                "the expiration of committed offsets",
                lambda: self._cluster.settings.offsets_retention_check_interval_ms,
                self.enforce,
                self._forget_lost,
            )
        ]

    async def _forget_lost(self) -> None:
        for store, _ in self._consumer_groups.active_shards():
            await self._forget(store, self._lost_topics(store))

    async def enforce(self) -> int:
        """Once over all groups; how many offsets are to go."""
        found = 0
        for store, coordinator in self._consumer_groups.active_shards():
            await self._forget(store, self._lost_topics(store))
            looked = 0
            for group_id in list(store.state.group_ids()):
                looked += 1 + len(store.state.offsets(group_id))
                found += self._expire(store, coordinator, group_id)
                if looked >= OFFSETS_PER_STEP:
                    looked = 0
                    await asyncio.sleep(0)
        return found

    async def forget(self, log_group_id: int, topic_name: str) -> bool:
        """The controller deletes a topic: no client commits offsets of it to a data group led here when this
        returns, and what was committed is gone. True: some of it had to stay for now, as on a full disk.

        Raises RequestError: the caller retries, perhaps at another node.
        """
        store, _ = self._consumer_groups.of_log_group(log_group_id)
        await self._wait_until_hidden(topic_name)
        await self._forget(store, {topic_name})
        try:
            await store.committed()
        except StorageError as error:
            raise RequestError(kafka_error(error), str(error)) from None
        return topic_name in store.state.topics()

    async def _wait_until_hidden(self, topic_name: str) -> None:
        """Wait until no client can commit offsets of it here. Raises RequestError."""
        loop = asyncio.get_running_loop()
        until = loop.time() + HIDDEN_TIMEOUT_SECONDS
        while self._cluster.topic(topic_name) is not None:
            if loop.time() >= until:
                raise RequestError(
                    ErrorCode.REQUEST_TIMED_OUT, f"topic {topic_name} is still to be seen here"
                )
            await asyncio.sleep(HIDDEN_RETRY_SECONDS)

    def _lost_topics(self, store: GroupStore) -> set[str]:
        controller = self._cluster.groups.get(METADATA_GROUP)
        if controller is None or not controller.has_lease or not store.state.topics():
            return set()
        known = {entry.name for entry in self._cluster.image.topics.values()}
        return {name for name in store.state.topics() if name not in known}

    async def _forget(self, store: GroupStore, names: set[str]) -> None:
        if not names:
            return
        try:
            await store.committed()  # of what clients committed while they still saw the topic
        except StorageError:
            return
        if names.isdisjoint(store.state.topics()):
            return
        looked = 0
        for group_id in list(store.state.group_ids()):
            topic_partitions = store.state.topic_partitions(group_id)
            # A topic of a lost one's name may have been made since the last step.
            names = {name for name in names if self._cluster.topic(name) is None}
            _write_end(
                store,
                group_id,
                [each for each in topic_partitions if each[0] in names],
            )
            looked += 1 + len(topic_partitions)
            if looked >= OFFSETS_PER_STEP:
                looked = 0
                await asyncio.sleep(0)

    def _expire(self, store: GroupStore, coordinator: GroupCoordinator, group_id: str) -> int:
        if coordinator.not_serving_error is not ErrorCode.NONE:
            return 0  # who is a member is not known here, or not any more
        if store.is_under_way(group_id) or not coordinator.exists(group_id):
            return 0
        if coordinator.consumer.is_busy(group_id):
            return 0
        retention_ms = self._cluster.settings.offsets_retention_minutes * MINUTE_MS
        topic_partitions = expired(store, coordinator, group_id, store.clock_ms(), retention_ms)
        offsets = store.state.offsets(group_id)
        is_over = len(topic_partitions) == len(offsets) and coordinator.is_empty(group_id)
        is_over = is_over and not store.state.pending(group_id)
        if is_over or topic_partitions:
            _write_end(store, group_id, topic_partitions, coordinator if is_over else None)
        return len(topic_partitions)


def expired(
    store: GroupStore, coordinator: GroupCoordinator, group_id: str, now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """The offsets of a group that are to go."""
    offsets = store.state.offsets(group_id)
    since_ms = coordinator.empty_since_ms(group_id)
    if since_ms is not None and since_ms < 0:
        since_ms = None  # the record was written before groups recorded since when
    old = [
        topic_partition
        for topic_partition, each in offsets.items()
        if _is_old(each, since_ms, now_ms, retention_ms)
    ]
    if old and (pending := store.state.pending(group_id)):
        old = [each for each in old if each not in pending]
    if not old or coordinator.is_empty(group_id):
        return old
    subscribed = coordinator.subscribed_topics(group_id)
    if subscribed is None or not coordinator.is_rebalanced(group_id):
        return []
    return [each for each in old if each[0] not in subscribed]


def _is_old(committed: CommittedOffset, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_time_ms != NEVER:
        return now_ms >= committed.expire_time_ms
    return now_ms - (committed.commit_time_ms if since_ms is None else since_ms) >= retention_ms


def _write_end(
    store: GroupStore,
    group_id: str,
    topic_partitions: Iterable[TopicPartition],
    coordinator: GroupCoordinator | None = None,
) -> None:
    """Write that these offsets are gone; and, given its coordinator, that the group is."""
    records = [offset_record(group_id, topic, index, None) for topic, index in topic_partitions]

    def written(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            log.warning("group %s: old offsets are kept for now: %s", printable(group_id), error.name)
        elif coordinator is not None and group_id not in store.state:
            coordinator.forget(group_id)

    def on_end(_: object, rejection: RequestError | None) -> None:
        written(ErrorCode.NONE if rejection is None else rejection.error)

    if coordinator is not None and coordinator.consumer.has(group_id):
        coordinator.consumer.end(group_id, lambda: records, on_end)
        return
    if coordinator is not None and store.state.group(group_id) is not None:
        records.append(group_record(group_id, None))
    if records:
        store.append(group_id, records, written)
