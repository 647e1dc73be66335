"""Making and ending topics: checks, then intent, partitions, and the word that it is done.

Owns: what a topic may be called and how large it may be; the three steps that make or end one, and
finishing whatever a crash left in between. Invariants: group 0 records the intent before a partition is
opened and the end only after the last one is closed, so that every half-done state can be finished at the
next start. A name is taken from its intent until its topic's deletion is recorded.
Does not: speak Kafka's messages (the handlers do). Source: specs, "Kafka semantics on log groups".
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.metadata import (
    METADATA_GROUP,
    METADATA_TOPIC_ID,
    Cluster,
    Command,
    Topic,
    TopicEntry,
    TopicState,
    cluster_command,
    create_command,
    delete_command,
    deleted_command,
    ready_command,
)
from broker.topic_config import InvalidTopicConfig, TopicConfig, topic_config
from protocol.errors import ErrorCode
from storage.group import LogGroup
from storage.partition import PartitionLog
from storage.types import CONTROL_PARTITION, NotLeader, StorageError, StorageFull

log = logging.getLogger("lockstep.topics")

MAX_NAME_CHARACTERS: Final = 249
"""Kafka's limit: a name, a dash and a partition number make a directory name there."""
METADATA_TOPIC: Final = "__cluster_metadata"
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


class Refused(Exception):
    """A topic is not made or ended; the Kafka error to answer, and why in words."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


@dataclass(frozen=True)
class TopicPlan:
    """A topic that may be made."""

    name: str
    partition_count: int
    overrides: Mapping[str, str]
    config: TopicConfig


def check_name(name: str) -> None:
    """Kafka's rules for topic names. Raises Refused with INVALID_TOPIC_EXCEPTION."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_CHARACTERS:
        problem = (
            f"the length of '{name[:32]}...' is longer than the max allowed length {MAX_NAME_CHARACTERS}"
        )
    elif not _NAME.fullmatch(name):
        problem = f"{name!r} contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def check_assignments(assignments: Mapping[int, Sequence[int]], node_ids: Sequence[int]) -> None:
    """Manual replica assignments must name this cluster's nodes. Raises Refused."""
    if sorted(assignments) != list(range(len(assignments))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    for index, brokers in assignments.items():
        problem = None
        if not brokers:
            problem = "includes an empty replica list"
        elif len(set(brokers)) != len(brokers):
            problem = "includes a broker more than once"
        elif set(brokers) != set(node_ids):
            problem = f"names brokers {list(brokers)}; the log group's are {list(node_ids)}"
        if problem is not None:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment of partition {index} {problem}."
            )


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
        self._settings = cluster.settings
        self._closed = closed
        """Told (group, partition numbers) of what is gone."""
        self._new_id = new_id
        self._taken: dict[str, str] = {}
        """Names in use with '.' as '_' -> the name itself. Kafka's metrics could not tell such two apart."""
        self._creating: dict[str, asyncio.Task[Topic]] = {}
        self._deleting: set[bytes] = set()
        self._promised_partitions = 0
        self._records: PartitionLog | None = None

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
        logs = [found.get((entry.topic_id, index)) for index in range(len(entry.groups))]
        self._taken[_folded(entry.name)] = entry.name
        missing = [index for index, partition in enumerate(logs) if partition is None]
        if entry.state is TopicState.CREATING:
            log.info("topic %s: finishing its creation (%d partitions)", entry.name, len(missing))
        elif missing:
            self._check_loss(entry, missing)
            log.error("topic %s: a power loss took %d partitions; empty again", entry.name, len(missing))
        for index, partition in (await self._open(entry, missing)).items():
            logs[index] = partition
        if entry.state is TopicState.CREATING:
            await self._commit([ready_command(entry.topic_id)])
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
        """Partitions whose topic nobody knows: opened before a crash that lost nothing else of them."""
        known = self._cluster.image.topics.keys() | {METADATA_TOPIC_ID}
        for group in self._cluster.groups.values():
            orphans = [
                partition.number
                for partition in group.partitions.values()
                if partition.number != CONTROL_PARTITION and partition.topic_id not in known
            ]
            if orphans:
                log.warning("group %d: closing %d partitions of no topic", group.group_id, len(orphans))
                await group.close_partitions(orphans)

    @property
    def records(self) -> PartitionLog:
        """The partition of group 0 that holds the metadata; there after `start`."""
        assert self._records is not None
        return self._records

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
        settings = self._settings
        if partition_count == -1:
            partition_count = settings.num_partitions
        if partition_count < 1:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        if replication_factor == 0 or replication_factor < -1:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if replication_factor > 1:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replication_factor} time(s): The target replication "
                f"factor of {replication_factor} cannot be reached because only 1 broker(s) are registered.",
            )
        total = self._cluster.partition_count + self._promised_partitions + partition_count
        if total > settings.lockstep_max_partitions:
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                f"{total} partitions on this broker; lockstep.max.partitions is "
                f"{settings.lockstep_max_partitions}",
            )
        try:
            config = topic_config(overrides, settings)
        except InvalidTopicConfig as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
        return TopicPlan(name, partition_count, dict(overrides), config)

    def _check_free(self, name: str) -> None:
        if name == METADATA_TOPIC:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            )
        holder = self._taken.get(_folded(name))
        if holder == name:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if holder is not None:
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {holder}",
            )

    async def create(self, plan: TopicPlan) -> Topic:
        """Make a planned topic. Not undone when the caller goes away. Raises Refused."""
        self._check_free(plan.name)
        self._check_room()
        self._taken[_folded(plan.name)] = plan.name
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
            self._taken.pop(_folded(plan.name), None)

    def _is_half_made(self, name: str) -> bool:
        """Does an intent stand that could not be undone? The next start makes that topic."""
        entries = self._cluster.image.topics.values()
        return any(entry.name == name and entry.state is TopicState.CREATING for entry in entries)

    async def _create(self, plan: TopicPlan) -> Topic:
        entry = TopicEntry(
            plan.name, self._new_id(), self._place(plan), dict(plan.overrides), TopicState.CREATING
        )
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

    def _place(self, plan: TopicPlan) -> list[int]:
        """A group for each partition: in turn, unless the topic is pinned to one."""
        if plan.config.lockstep_group is not None:
            return [plan.config.lockstep_group] * plan.partition_count
        count = self._settings.lockstep_data_groups
        first = self._cluster.partition_count
        return [(first + index) % count + 1 for index in range(plan.partition_count)]

    async def _open(self, entry: TopicEntry, indexes: Sequence[int]) -> dict[int, PartitionLog]:
        by_group: dict[int, list[int]] = {}
        for index in indexes:
            by_group.setdefault(entry.groups[index], []).append(index)
        opened: dict[int, PartitionLog] = {}
        for number, wanted in by_group.items():
            group = self._cluster.groups[number]
            logs = await group.open_partitions([(entry.topic_id, index) for index in wanted])
            opened.update(zip(wanted, logs, strict=True))
        return opened

    # --- delete -------------------------------------------------------------------------------------------

    async def delete(self, topic: Topic) -> None:
        """End a visible topic: gone for clients once that is recorded, then closed. Raises Refused."""
        if topic.topic_id in self._deleting:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' is being deleted.")
        self._deleting.add(topic.topic_id)
        task = asyncio.ensure_future(self._delete(topic))
        task.add_done_callback(lambda done: self._deleting.discard(topic.topic_id))
        await asyncio.shield(task)

    async def _delete(self, topic: Topic) -> None:
        try:
            await self._commit([delete_command(topic.topic_id)])
            self._cluster.hide(topic)
            self._taken.pop(_folded(topic.name), None)
            await self._close_all(topic.topic_id)
            for group in dict.fromkeys(partition.group for partition in topic.partitions):
                group.free_dead_segments()
        except StorageError as error:
            raise _refusal(error) from error
        log.info("topic %s: deleted", topic.name)

    async def _close_all(self, topic_id: bytes) -> None:
        for group in self._cluster.groups.values():
            numbers = [p.number for p in group.partitions.values() if p.topic_id == topic_id]
            if numbers:
                await group.close_partitions(numbers)
                self._closed(group.group_id, numbers)
        await self._commit([deleted_command(topic_id)])

    # --- records ------------------------------------------------------------------------------------------

    async def _commit(self, commands: Sequence[Command]) -> None:
        """Commit metadata records; the image has replayed them when this returns. Raises StorageError."""
        values = [json.dumps(command, separators=(",", ":")).encode() for command in commands]
        group: LogGroup = self._cluster.groups[METADATA_GROUP]
        await group.append_values(self.records, values)


def _folded(name: str) -> str:
    return name.replace(".", "_")


def _refusal(error: StorageError) -> Refused:
    if isinstance(error, StorageFull):
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk is full: {error}")
    if isinstance(error, NotLeader):
        return Refused(ErrorCode.NOT_CONTROLLER, str(error))
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
