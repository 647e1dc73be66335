"""Offsets that nobody needs any more: expired ones (KIP-211), and those of topics that are gone.

Owns: the rules (`expired`) and the loop over all groups, a little at a time. A group's offsets expire when it
has had no members for `offsets.retention.minutes`; where it has members, or never had any, an offset does so
long after its last commit, unless a member subscribes to the topic. A group without members and offsets goes.
Invariants: what is decided from committed state is written only while nothing of the group is under way, so
that no tombstone follows a commit it does not know of.
Source: Kafka's OffsetMetadataManager.cleanupExpiredOffsets, ClassicGroup.offsetExpirationCondition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from broker.groups.classic import State
from broker.groups.coordinator import GroupCoordinator
from broker.groups.groups import Groups
from broker.groups.records import NEVER, CommittedOffset, group_record, offset_record
from broker.groups.store import GroupStore
from broker.metadata import Cluster, Topic
from protocol.errors import ErrorCode
from storage.types import StorageError

log = logging.getLogger("lockstep.groups")

OFFSETS_PER_STEP: Final = 1_000
"""Offsets looked at before others are served: about a millisecond."""
MINUTE_MS: Final = 60_000

Place = tuple[str, int]


class Expiration:
    """The loop over one broker's groups."""

    def __init__(self, groups: Groups, cluster: Cluster) -> None:
        self._groups = groups
        self._cluster = cluster

    async def run(self) -> None:
        """Look every so often, until cancelled; at once for topics whose deletion a crash cut short."""
        for store, _ in self._groups.of_log_groups():
            await self._forget(store, self._lost_topics(store))
        while True:
            await asyncio.sleep(self._cluster.settings.offsets_retention_check_interval_ms / 1000)
            await self.enforce()

    async def enforce(self) -> int:
        """Once over all groups; how many offsets are to go."""
        found = 0
        for store, coordinator in self._groups.of_log_groups():
            await self._forget(store, self._lost_topics(store))
            looked = 0
            for group_id in list(store.state.group_ids()):
                looked += 1 + len(store.state.offsets(group_id))
                found += self._expire(store, coordinator, group_id)
                if looked >= OFFSETS_PER_STEP:
                    looked = 0
                    await asyncio.sleep(0)
        return found

    async def topic_gone(self, topic: Topic) -> None:
        """A topic is being deleted, and its name not free yet: nothing is to be left under it."""
        for store, _ in self._groups.of_log_groups():
            await self._forget(store, {topic.name})

    def _lost_topics(self, store: GroupStore) -> set[str]:
        return {name for name in store.state.topics() if self._cluster.topic(name) is None}

    async def _forget(self, store: GroupStore, names: set[str]) -> None:
        if not names:
            return
        try:
            await store.group.committed()  # of what clients committed while they still saw the topic
        except StorageError:
            return
        if names.isdisjoint(store.state.topics()):
            return
        looked = 0
        for group_id in list(store.state.group_ids()):
            offsets = store.state.offsets(group_id)
            # A topic of a lost one's name may have been made since the last step.
            names = {name for name in names if self._cluster.topic(name) is None}
            _write_end(store, group_id, [place for place in offsets if place[0] in names])
            looked += 1 + len(offsets)
            if looked >= OFFSETS_PER_STEP:
                looked = 0
                await asyncio.sleep(0)

    def _expire(self, store: GroupStore, coordinator: GroupCoordinator, group_id: str) -> int:
        if store.is_under_way(group_id) or not coordinator.exists(group_id):
            return 0
        retention_ms = self._cluster.settings.offsets_retention_minutes * MINUTE_MS
        places = expired(store, coordinator, group_id, store.time_ms(), retention_ms)
        offsets = store.state.offsets(group_id)
        is_over = len(places) == len(offsets) and coordinator.is_empty(group_id)
        if is_over or places:
            _write_end(store, group_id, places, coordinator if is_over else None)
        return len(places)


def expired(
    store: GroupStore, coordinator: GroupCoordinator, group_id: str, now_ms: int, retention_ms: int
) -> list[Place]:
    """The offsets of a group that are to go."""
    offsets = store.state.offsets(group_id)
    since_ms = coordinator.empty_since_ms(group_id)
    if since_ms is not None and since_ms < 0:
        since_ms = None  # the record was written before groups said since when
    old = [place for place, each in offsets.items() if _is_old(each, since_ms, now_ms, retention_ms)]
    if not old or coordinator.is_empty(group_id):
        return old
    subscribed = coordinator.subscribed_topics(group_id)
    described = coordinator.describe(group_id)
    if subscribed is None or described is None or described.group_state != State.STABLE.value:
        return []
    return [place for place in old if place[0] not in subscribed]


def _is_old(committed: CommittedOffset, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_time_ms != NEVER:
        return now_ms >= committed.expire_time_ms
    return now_ms - (committed.commit_time_ms if since_ms is None else since_ms) >= retention_ms


def _write_end(
    store: GroupStore, group_id: str, places: Iterable[Place], coordinator: GroupCoordinator | None = None
) -> None:
    """Write that these offsets are gone; and, given its coordinator, that the group is."""
    records = [offset_record(group_id, topic, index, None) for topic, index in places]
    if coordinator is not None and store.state.group(group_id) is not None:
        records.append(group_record(group_id, None))

    def written(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            log.warning("group %s: old offsets are kept for now: %s", group_id, error.name)
        elif coordinator is not None and group_id not in store.state:
            coordinator.forget(group_id)

    if records:
        store.append(group_id, records, written)
