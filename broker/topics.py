"""Making, growing and ending topics: intent, partitions, and the word that it is done.

Owns: which names are taken and how many partitions are promised; the three steps that make, grow or end a
topic, and finishing whatever a crash left in between. Invariants: group 0 records the intent before a
partition is opened and the end only after the last one is closed, so that every half-done state can be
finished at the next start. A name is taken from its intent until its topic's deletion is recorded.
Does not: say what a topic may be like (`topic_rules.py`) or speak Kafka's messages (the handlers do).
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence

from broker.cluster_image import (
    Command,
    TopicEntry,
    TopicState,
    cluster_command,
    create_command,
    delete_command,
    deleted_command,
    grow_command,
    grown_command,
    ready_command,
)
from broker.config import Settings
from broker.metadata import METADATA_GROUP, METADATA_TOPIC_ID, Cluster, Topic
from broker.refused import Refused
from broker.topic_config import TopicConfig
from broker.topic_rules import (
    TopicPlan,
    check_may_change,
    check_name,
    check_not_reserved,
    check_replication_factor,
    configured_plan,
    folded,
    new_partition_count,
)
from protocol.errors import ErrorCode
from storage.group import LogGroup
from storage.partition import PartitionLog
from storage.types import CONTROL_PARTITION, NotLeader, StorageError, StorageFull

log = logging.getLogger("lockstep.topics")


def random_id() -> bytes:
    """A new topic or cluster id: never one of Kafka's reserved ones, never starting with '-' when written."""
    while True:
        made = os.urandom(16)
        if made[:8] != bytes(8) and not base64.urlsafe_b64encode(made).startswith(b"-"):
            return made


def written_id(identity: bytes) -> str:
    """An id the way Kafka writes it."""
    return base64.urlsafe_b64encode(identity).rstrip(b"=").decode()


class Topics:
    """Topic administration on the node that leads group 0."""

    def __init__(
        self,
        cluster: Cluster,
        closed: Callable[[int, Sequence[int]], None],
        new_id: Callable[[], bytes] = random_id,
    ) -> None:
        self._cluster = cluster
        self._closed = closed
        """Told (group, partition numbers) of what is gone."""
        self._new_id = new_id
        self._taken: dict[str, str] = {}
        """Names in use, `folded` -> the name itself."""
        self._creating: dict[str, asyncio.Task[Topic]] = {}
        self._growing: dict[bytes, asyncio.Task[None]] = {}
        self._deleting: set[bytes] = set()
        self._promised_partitions = 0
        self._records: PartitionLog | None = None
        self.hidden: Callable[[Topic], Awaitable[None]] | None = None
        """Told of a topic that clients see no more, before its name is free again."""

    # --- start --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Give a new cluster its id; finish what a crash left half done; show every ready topic.

        Raises StorageError where the metadata were lost and records were not.
        """
        group = self._cluster.groups[METADATA_GROUP]
        self._check_metadata()
        for partition in group.partitions.values():
            if partition.topic_id == METADATA_TOPIC_ID:
                self._records = partition
        if self._records is None:
            self._records = (await group.open_partitions([(METADATA_TOPIC_ID, 0)]))[0]
        image = self._cluster.image
        if image.cluster_id is None:
            await self._commit([cluster_command(written_id(self._new_id()))])
        found = self._found_partitions()
        for entry in list(image.topics.values()):
            if entry.state is TopicState.DELETING:
                await self._close_all(entry.topic_id)
            else:
                await self._finish(entry, found)
        await self._close_orphans()

    def _check_metadata(self) -> None:
        """A cluster has its id before its first topic: data without one would be closed as nobody's."""
        if self._cluster.image.cluster_id is not None:
            return
        for (topic_id, _), partition in self._found_partitions().items():
            if topic_id != METADATA_TOPIC_ID:
                raise StorageError(
                    f"log group {METADATA_GROUP} is empty, but others hold partitions ({partition}): "
                    f"groups/{METADATA_GROUP} of the data directory was lost or replaced; bring it back"
                )

    async def _finish(self, entry: TopicEntry, found: Mapping[tuple[bytes, int], PartitionLog]) -> None:
        logs = [found.get((entry.topic_id, index)) for index in range(len(entry.groups + entry.growing))]
        self._taken[folded(entry.name)] = entry.name
        missing = [index for index, partition in enumerate(logs) if partition is None]
        if entry.state is TopicState.CREATING:
            log.info("topic %s: finishing its creation (%d partitions)", entry.name, len(missing))
        elif entry.growing:
            log.info("topic %s: finishing its growth to %d partitions", entry.name, len(logs))
        lost = [index for index in missing if entry.state is TopicState.READY and index < len(entry.groups)]
        if lost:
            self._check_loss(entry, lost)
            log.error("topic %s: a power loss took %d partitions; empty again", entry.name, len(lost))
        for index, partition in (await self._open(entry, missing)).items():
            logs[index] = partition
        if entry.state is TopicState.CREATING:
            await self._commit([ready_command(entry.topic_id)])
        if entry.growing:
            await self._commit([grown_command(entry.topic_id)])
        self._cluster.show(entry, [partition for partition in logs if partition is not None])

    def _check_loss(self, entry: TopicEntry, missing: Sequence[int]) -> None:
        """With log.flush=os a power loss may take what one group knows and leave what another does. Raises
        StorageError for any other loss."""
        for index in missing:
            number = entry.groups[index]
            group = self._cluster.groups.get(number)
            if group is None or (group.log.checkpoint is None and not group.log.report.frames_scanned):
                raise StorageError(
                    f"topic {entry.name} lacks partition {index}: groups/{number} of the data directory was "
                    "lost; bring it back"
                )
            if self._settings.log_flush != "os":
                raise StorageError(
                    f"topic {entry.name} lacks partition {index} in the records of log group {number}; after "
                    "a power loss with log.flush=os, start with that once more"
                )

    def _found_partitions(self) -> dict[tuple[bytes, int], PartitionLog]:
        return {
            (partition.topic_id, partition.index): partition
            for group in self._cluster.groups.values()
            for partition in group.partitions.values()
            if partition.number != CONTROL_PARTITION
        }

    async def _close_orphans(self) -> None:
        """Partitions that no topic knows of: opened before a crash that lost nothing else of them."""
        topics = self._cluster.image.topics
        known = {(each.topic_id, index) for each in topics.values() for index in range(len(each.groups))}
        known.add((METADATA_TOPIC_ID, 0))
        for group in self._cluster.groups.values():
            orphans = [
                partition.number
                for partition in group.partitions.values()
                if partition.number != CONTROL_PARTITION
                and (partition.topic_id, partition.index) not in known
            ]
            if orphans:
                log.warning("group %d: closing %d partitions of no topic", group.group_id, len(orphans))
                await group.close_partitions(orphans)

    @property
    def records(self) -> PartitionLog:
        """The partition of group 0 that holds the metadata; there after `start`."""
        assert self._records is not None
        return self._records

    @property
    def _settings(self) -> Settings:
        return self._cluster.settings

    # --- create -------------------------------------------------------------------------------------------

    def plan(
        self,
        name: str,
        partition_count: int,
        replication_factor: int,
        overrides: Mapping[str, str],
    ) -> TopicPlan:
        """Check a new topic; -1 stands for the broker's default. Raises Refused."""
        check_name(name)
        self._check_free(name)
        count = new_partition_count(name, partition_count, self._settings)
        check_replication_factor(replication_factor)
        self._check_limit(count)
        return configured_plan(name, count, overrides, self._settings)

    def _check_limit(self, added: int) -> None:
        total = self._cluster.partition_count + self._promised_partitions + added
        limit = self._settings.lockstep_max_partitions
        if total > limit:
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                f"{total} partitions on this broker; lockstep.max.partitions is {limit}",
            )

    def _check_free(self, name: str) -> None:
        holder = self._taken.get(folded(name))
        if holder == name:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        check_not_reserved(name)
        if holder is not None:
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {holder}",
            )

    async def create(self, plan: TopicPlan) -> Topic:
        """Make a planned topic. Not undone when the caller goes away. Raises Refused."""
        self._check_free(plan.name)
        self._check_room()
        self._taken[folded(plan.name)] = plan.name
        self._promised_partitions += plan.partition_count
        task = asyncio.ensure_future(self._create(plan))
        self._creating[plan.name] = task
        task.add_done_callback(lambda done: self._created(plan, done))
        return await asyncio.shield(task)

    async def ensure(self, name: str) -> Topic:
        """The topic of this name, made with the broker's defaults if need be. Raises Refused."""
        topic = self._cluster.topic(name)
        if topic is not None:
            return topic
        creating = self._creating.get(name)
        if creating is not None:
            return await asyncio.shield(creating)
        return await self.create(self.plan(name, -1, -1, {}))

    def _check_room(self) -> None:
        for group in self._cluster.groups.values():
            if group.log.disk_full:
                raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full: no topic can be made now.")

    def _created(self, plan: TopicPlan, done: asyncio.Task[Topic]) -> None:
        del self._creating[plan.name]
        self._promised_partitions -= plan.partition_count
        if (done.cancelled() or done.exception() is not None) and not self._is_half_made(plan.name):
            self._taken.pop(folded(plan.name), None)

    def _is_half_made(self, name: str) -> bool:
        """Does an intent stand that could not be undone? The next start makes that topic."""
        entries = self._cluster.image.topics.values()
        return any(entry.name == name and entry.state is TopicState.CREATING for entry in entries)

    async def _create(self, plan: TopicPlan) -> Topic:
        groups = self._place(plan.config, plan.partition_count)
        topic_id = plan.topic_id or self._new_id()
        entry = TopicEntry(plan.name, topic_id, groups, dict(plan.overrides), TopicState.CREATING)
        try:
            await self._commit([create_command(entry)])
            try:
                opened = await self._open(entry, range(plan.partition_count))
                await self._commit([ready_command(entry.topic_id)])
            except StorageError:
                await self._commit([delete_command(entry.topic_id)])
                await self._close_all(entry.topic_id)
                raise
        except StorageError as error:
            raise _refusal(error) from error
        topic = self._cluster.show(entry, [opened[index] for index in range(plan.partition_count)])
        count = plan.partition_count
        log.info("topic %s: created with %d partition%s", plan.name, count, "" if count == 1 else "s")
        return topic

    def _place(self, config: TopicConfig, partition_count: int) -> list[int]:
        """A group for each new partition: in turn, unless the topic is pinned to one."""
        if config.lockstep_group is not None:
            return [config.lockstep_group] * partition_count
        count = self._settings.lockstep_data_groups
        first = self._cluster.partition_count
        return [(first + index) % count + 1 for index in range(partition_count)]

    async def _open(self, entry: TopicEntry, indexes: Sequence[int]) -> dict[int, PartitionLog]:
        groups = entry.groups + entry.growing
        by_group: dict[int, list[int]] = {}
        for index in indexes:
            by_group.setdefault(groups[index], []).append(index)
        opened: dict[int, PartitionLog] = {}
        for number, wanted in by_group.items():
            group = self._cluster.groups[number]
            logs = await group.open_partitions([(entry.topic_id, index) for index in wanted])
            opened.update(zip(wanted, logs, strict=True))
        return opened

    # --- grow ---------------------------------------------------------------------------------------------

    def check_growth(self, topic: Topic, partition_count: int) -> int:
        """How many partitions the topic lacks to have so many. Raises Refused.

        Source: Kafka's ReplicationControlManager.createPartitions.
        """
        present = len(topic.partitions)
        if topic.deleted or topic.topic_id in self._deleting:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise Refused(error, error.message)
        check_may_change(topic)
        if partition_count == present:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
        if partition_count < present:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {present} partition(s); "
                f"{partition_count} would not be an increase.",
            )
        self._check_limit(partition_count - present)
        return partition_count - present

    async def grow(self, topic: Topic, partition_count: int) -> None:
        """Give a visible topic so many partitions. Not undone when the caller goes away. Raises Refused."""
        while topic.topic_id in self._growing:
            await asyncio.wait([self._growing[topic.topic_id]])
        added = self.check_growth(topic, partition_count)
        self._check_room()
        self._promised_partitions += added
        task = asyncio.ensure_future(self._grow(topic, added))
        self._growing[topic.topic_id] = task
        task.add_done_callback(lambda done: self._grown(topic, added))
        await asyncio.shield(task)

    def _grown(self, topic: Topic, added: int) -> None:
        del self._growing[topic.topic_id]
        self._promised_partitions -= added

    async def _grow(self, topic: Topic, added: int) -> None:
        entry = self._cluster.image.topics[topic.topic_id]
        first = len(entry.groups)
        try:
            if entry.growing:  # of an intent that could neither be met nor undone
                await self._undo_growth(entry)
            await self._commit([grow_command(topic.topic_id, self._place(topic.config, added))])
            try:
                opened = await self._open(entry, range(first, first + added))
                await self._commit([grown_command(topic.topic_id)])
            except StorageError:
                await self._undo_growth(entry)
                raise
        except StorageError as error:
            raise _refusal(error) from error
        self._cluster.grow(topic, entry, [opened[index] for index in range(first, first + added)])
        log.info("topic %s: grown from %d to %d partitions", topic.name, first, first + added)

    async def _undo_growth(self, entry: TopicEntry) -> None:
        await self._close_where(lambda p: p.topic_id == entry.topic_id and p.index >= len(entry.groups))
        await self._commit([grow_command(entry.topic_id, [])])

    # --- delete -------------------------------------------------------------------------------------------

    async def delete(self, topic: Topic) -> None:
        """End a visible topic: gone for clients once that is recorded, then closed. Raises Refused."""
        check_may_change(topic)
        if topic.topic_id in self._deleting:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' is being deleted.")
        self._deleting.add(topic.topic_id)
        task = asyncio.ensure_future(self._delete(topic))
        task.add_done_callback(lambda done: self._deleting.discard(topic.topic_id))
        await asyncio.shield(task)

    async def _delete(self, topic: Topic) -> None:
        growing = self._growing.get(topic.topic_id)
        if growing is not None:
            await asyncio.wait([growing])
        try:
            await self._commit([delete_command(topic.topic_id)])
            self._cluster.hide(topic)
            if self.hidden is not None:
                await self.hidden(topic)
            self._taken.pop(folded(topic.name), None)
            await self._close_all(topic.topic_id)
            for group in dict.fromkeys(partition.group for partition in topic.partitions):
                group.free_dead_segments()
        except StorageError as error:
            raise _refusal(error) from error
        log.info("topic %s: deleted", topic.name)

    async def _close_all(self, topic_id: bytes) -> None:
        await self._close_where(lambda partition: partition.topic_id == topic_id)
        await self._commit([deleted_command(topic_id)])

    async def _close_where(self, unwanted: Callable[[PartitionLog], bool]) -> None:
        for group in self._cluster.groups.values():
            numbers = [each.number for each in group.partitions.values() if unwanted(each)]
            if numbers:
                await group.close_partitions(numbers)
                self._closed(group.group_id, numbers)

    # --- configure ----------------------------------------------------------------------------------------

    def check_alterable(self, topic: Topic) -> None:
        """Raises Refused for a topic that is going."""
        if topic.deleted or topic.topic_id in self._deleting:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic.name}' does not exist.")

    async def record_configs(self, commands: Sequence[Command]) -> None:
        """Commit configurations; the image has them when this returns. Raises Refused."""
        for group in self._cluster.groups.values():
            if group.log.disk_full:
                raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full: delete topics first.")
        try:
            await self._commit(commands)
        except StorageError as error:
            raise _refusal(error) from error

    # --- records ------------------------------------------------------------------------------------------

    async def _commit(self, commands: Sequence[Command]) -> None:
        """Commit metadata records; the image has replayed them when this returns. Raises StorageError."""
        values = [json.dumps(command, separators=(",", ":")).encode() for command in commands]
        group: LogGroup = self._cluster.groups[METADATA_GROUP]
        await group.append_values(self.records, values)


def _refusal(error: StorageError) -> Refused:
    if isinstance(error, StorageFull):
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk is full: {error}")
    if isinstance(error, NotLeader):
        return Refused(ErrorCode.NOT_CONTROLLER, str(error))
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
