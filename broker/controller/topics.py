"""Creates, grows and deletes topics: intent, partitions, and the record that it is done.

Owns: the three steps that create, grow or delete a topic, and finishing what a crash left half-done.
Invariants: group 0 records the intent before a partition is opened and the end only after the last one is
closed, so that every half-done state can be finished by the next leader of group 0. A name is in use from its
intent until nothing is left of its topic, offsets and logs included. Work of one controller epoch ends with
it: a controller between may have finished it, and clients use the topic. Does not: validate a topic
(`broker/metadata/topic_validation.py`), know Kafka's messages (the handlers do) or show topics to clients
(replay does, `broker/metadata/metadata_cache.py`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from lockstep.broker.controller.metadata_version_control import MetadataVersionControl
from lockstep.broker.controller.orphan_partitions import OrphanPartitions
from lockstep.broker.controller.partition_commands import PartitionCommands
from lockstep.broker.controller.rejected_creations import RejectedCreations
from lockstep.broker.controller.start_checks import check_metadata, close_orphans, lost_partitions
from lockstep.broker.controller.topic_reservations import TopicReservations
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, METADATA_TOPIC_ID, MetadataCache, Topic
from lockstep.broker.metadata.metadata_image import (
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
from lockstep.broker.metadata.topic_names import check_name
from lockstep.broker.metadata.topic_validation import (
    TopicPlan,
    check_may_change,
    check_replication_factor,
    configured_plan,
    new_partition_count,
)
from lockstep.broker.peers.metadata_versions import MetadataVersions
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.topic_config import TopicConfig, without_effect
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.ids import format_uuid
from lockstep.protocol.plural import pluralize
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.rate_limited_log import RateLimitedLog
from lockstep.storage.types import NotLeader, StorageError, StorageFull, WriteFailed

log = logging.getLogger("lockstep.topics")

RETRY_SECONDS: Final = 1.0


def random_id() -> bytes:
    """A new topic or cluster id: none of Kafka's reserved ones, and its text has no hyphen.

    Command lines take a leading hyphen for an option, and a double click selects up to one (KAFKA-20072).
    """
    while True:
        made = os.urandom(16)
        if made[:8] != bytes(8) and "-" not in format_uuid(made):
            return made


class Topics:
    """Topic administration; it acts on the leader of group 0, and rejects requests on other nodes."""

    def __init__(
        self,
        cluster: MetadataCache,
        commands: PartitionCommands,
        versions: MetadataVersions,
        new_id: Callable[[], bytes] = random_id,
        cluster_id: str | None = None,
    ) -> None:
        self._cluster = cluster
        self.commands = commands
        self._new_id = new_id
        self._given_cluster_id = cluster_id
        self._reservations = TopicReservations(cluster)
        self._creating: dict[str, asyncio.Task[Topic]] = {}
        self._growing: dict[bytes, asyncio.Task[None]] = {}
        self._deleting: set[bytes] = set()
        self._controller_epoch = 0
        """Counts the times that the leadership was lost."""
        self._records: PartitionLog | None = None
        self._finishing: asyncio.Task[None] | None = None
        self.version_control = MetadataVersionControl(versions, self._append)
        self._orphans = OrphanPartitions(cluster, commands, self._growing)
        self._rate_limited_log = RateLimitedLog(lambda: asyncio.get_running_loop().time(), log)
        """Failures that are retried each second are logged once a minute."""
        self.rejected_creations = RejectedCreations(lambda: asyncio.get_running_loop().time())

    # --- start --------------------------------------------------------------------------------------------

    async def start(self, founding: Sequence[Command] = ()) -> None:
        """Start as the leader of group 0: give a new cluster its id, finish incomplete topics.

        `founding` goes with a new cluster's id. Raises StorageError where the metadata were lost and records
        were not, or where the leadership is lost again.
        """
        group = self._cluster.groups[METADATA_GROUP]
        image = self._cluster.image
        self.commands.term = group.term
        if self._cluster.is_single_node:
            check_metadata(self._cluster)
        self._reservations.replace_names([*self._creating, *(entry.name for entry in image.topics.values())])
        self._records = next(
            (each for each in group.partitions.values() if each.topic_id == METADATA_TOPIC_ID), None
        )
        if self._records is None:
            self._records = (await group.open_partitions([(METADATA_TOPIC_ID, 0)]))[0]
        if image.cluster_id is None:
            cluster_id = self._given_cluster_id or format_uuid(self._new_id())
            version = self.version_control.founding_commands()
            await self.record([cluster_command(cluster_id), *version, *founding])
        if self._cluster.is_single_node:
            for entry in list(image.topics.values()):
                await self._finish(entry)
                if entry.state is TopicState.READY:
                    await self._check_open(entry)
            await close_orphans(self._cluster)
            self._finishing = asyncio.ensure_future(self._finish_incomplete_topics())

    def become_controller(self, founding: Sequence[Command]) -> None:
        """This node of a cluster has become the leader of group 0: `start`, in the background."""
        self.resign()
        self._finishing = asyncio.ensure_future(self._become_controller(founding))

    async def _become_controller(self, founding: Sequence[Command]) -> None:
        while True:
            try:
                await self.start(founding)
                break
            except StorageError as error:
                self._rate_limited_log.warning(
                    f"the leader of group 0 cannot start yet: {error}", METADATA_GROUP
                )
            except Exception:
                log.exception("the leader of group 0 could not start")
            await asyncio.sleep(RETRY_SECONDS)
        await asyncio.gather(self._finish_incomplete_topics(), self._orphans.run())

    async def _finish_incomplete_topics(self) -> None:
        """Finish incomplete topics that no task works on, and raise the metadata version, periodically."""
        while True:
            for entry in list(self._cluster.image.topics.values()):
                is_incomplete = entry.state is not TopicState.READY or entry.growing
                if is_incomplete and not self._is_under_way(entry):
                    try:
                        await self._finish(entry)
                    except StorageError as error:
                        text = f"topic {entry.name}: its incomplete creation or deletion is delayed: {error}"
                        self._rate_limited_log.warning(text, entry.topic_id)
                    except Exception:
                        log.exception("topic %s: its incomplete creation or deletion failed", entry.name)
            await self.version_control.poll()
            await asyncio.sleep(RETRY_SECONDS)

    def resign(self) -> None:
        """Stops the controller's work: another node leads group 0."""
        self._controller_epoch += 1
        self._records = None
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None

    def _is_under_way(self, entry: TopicEntry) -> bool:
        at_work = entry.topic_id in self._deleting or entry.topic_id in self._growing
        return at_work or entry.name in self._creating

    async def _finish(self, entry: TopicEntry) -> None:
        if entry.state is TopicState.DELETING:
            await self._close_all(entry, self._controller_epoch)
            return
        if entry.state is TopicState.CREATING:
            await self._open(entry, range(len(entry.groups)))
            await self.record([ready_command(entry.topic_id)])
            log.info("topic %s: finished its creation", entry.name)
        if entry.growing:
            task = asyncio.ensure_future(self._finish_growth(entry))
            self._growing[entry.topic_id] = task  # who grows it further, or ends it, waits
            try:
                await task
            finally:
                del self._growing[entry.topic_id]

    async def _finish_growth(self, entry: TopicEntry) -> None:
        await self._open(entry, range(len(entry.groups), len(entry.groups + entry.growing)))
        await self.record([grown_command(entry.topic_id)])
        log.info("topic %s: finished its growth", entry.name)

    async def _check_open(self, entry: TopicEntry) -> None:
        """Single node: open the partitions of a topic that a power loss took. Raises StorageError for any
        other loss."""
        lost = lost_partitions(self._cluster, entry)
        if lost:
            count_text = pluralize(len(lost), "partition")
            log.error("topic %s: a power loss destroyed %s, which is empty again", entry.name, count_text)
            await self._open(entry, lost)

    @property
    def records(self) -> PartitionLog:
        """The partition of group 0 that holds the metadata; there after `start`."""
        if self._records is None:
            raise NotLeader("group 0 is not led here")
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
        """Check a new topic; -1 means the broker's default. Raises RequestError."""
        check_name(name)
        self._reservations.check_name(name)
        count = new_partition_count(name, partition_count, self._settings)
        check_replication_factor(replication_factor, self._cluster.node_count, self._cluster.data_replicas)
        self._reservations.check_partitions(count)
        plan = configured_plan(name, count, overrides, self._settings)
        group = plan.config.lockstep_group
        if group is not None and group > self._cluster.data_groups:
            raise RequestError(
                ErrorCode.INVALID_CONFIG,
                f"Invalid value {group} for configuration lockstep.group: "
                f"there are {self._cluster.data_groups} log groups",
            )
        return plan

    async def create(self, plan: TopicPlan) -> Topic:
        """Creates a planned topic. Not undone when the caller is cancelled. Raises RequestError."""
        self.check_leads()
        self._reservations.check_name(plan.name)
        self._check_room()
        self._reservations.reserve_name(plan.name)
        self._reservations.reserve_partitions(plan.partition_count)
        task = asyncio.ensure_future(self._create(plan))
        self._creating[plan.name] = task
        task.add_done_callback(lambda done: self._on_created(plan, done))
        return await asyncio.shield(task)

    async def ensure_topic(self, name: str) -> Topic:
        """The topic of this name, created with the broker's defaults where there is none. Raises
        RequestError."""
        topic = self._cluster.topic(name)
        if topic is not None:
            return topic
        creating = self._creating.get(name)
        if creating is not None:
            return await asyncio.shield(creating)
        self.rejected_creations.check(name)
        return await self.create(self.plan(name, -1, -1, {}))

    @property
    def leads(self) -> bool:
        """True if this node creates and changes topics."""
        group = self._cluster.groups.get(METADATA_GROUP)
        return group is not None and group.is_leader and self._records is not None

    def check_leads(self) -> None:
        """Raises RequestError where this node may know outdated topics, so that the client retries on the
        controller."""
        if not self.leads:
            raise RequestError(
                ErrorCode.NOT_CONTROLLER,
                "This node is not the controller, or there is none now: it takes a majority of the nodes.",
            )

    def _check_room(self) -> None:
        for group in self._cluster.groups.values():
            if group.log.disk_full:
                raise RequestError(
                    ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full: no topic can be created now."
                )
            if group.log.write_error:
                raise RequestError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"The log cannot be written: no topic can be created now: {group.log.write_error}",
                )

    def _on_created(self, plan: TopicPlan, done: asyncio.Task[Topic]) -> None:
        del self._creating[plan.name]
        self._reservations.release_partitions(plan.partition_count)
        if (done.cancelled() or done.exception() is not None) and not self._is_incomplete(plan.name):
            self._reservations.release_name(plan.name)

    def _is_incomplete(self, name: str) -> bool:
        """True if a creation could not be undone. The next start completes or deletes that topic."""
        return any(entry.name == name for entry in self._cluster.image.topics.values())

    async def _create(self, plan: TopicPlan) -> Topic:
        groups = self._place(plan.config, plan.partition_count)
        topic_id = plan.topic_id or self._new_id()
        entry = TopicEntry(plan.name, topic_id, groups, dict(plan.overrides), TopicState.CREATING)
        controller_epoch = self._controller_epoch
        try:
            await self.record([create_command(entry)])
            try:
                await self._open(entry, range(plan.partition_count))
                await self.record([ready_command(entry.topic_id)], controller_epoch)
            except StorageError:
                await self.record([delete_command(entry.topic_id)], controller_epoch)
                await self._close_all(entry, controller_epoch)
                raise
        except StorageError as error:
            raise _request_error(error) from error
        topic = self._cluster.topic_by_id(topic_id)
        if topic is None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{plan.name}' was deleted meanwhile."
            )
        self.rejected_creations.forget(plan.name)
        log.info("topic %s: created with %s", plan.name, pluralize(plan.partition_count, "partition"))
        for line in without_effect(plan.overrides):
            log.warning("topic %s: %s", plan.name, line)
        return topic

    def _place(self, config: TopicConfig, partition_count: int) -> list[int]:
        """A group for each new partition: in turn, unless the topic is pinned to one."""
        if config.lockstep_group is not None:
            return [config.lockstep_group] * partition_count
        count = self._cluster.data_groups
        first = self._cluster.partition_count
        return [(first + index) % count + 1 for index in range(partition_count)]

    async def _open(self, entry: TopicEntry, indexes: Sequence[int]) -> None:
        groups = entry.groups + entry.growing
        by_group: dict[int, list[int]] = {}
        for index in indexes:
            by_group.setdefault(groups[index], []).append(index)
        await self._run_in_groups(
            {each: self.commands.open(each, entry.topic_id, added) for each, added in by_group.items()}
        )

    @staticmethod
    async def _run_in_groups(work: Mapping[int, Coroutine[Any, Any, None]]) -> None:
        """Run one coroutine for each group concurrently; raises the first error after all have ended."""
        if len(work) == 1:
            await next(iter(work.values()))
            return
        for outcome in await asyncio.gather(*work.values(), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    # --- grow ---------------------------------------------------------------------------------------------

    def check_growth(self, topic: Topic, partition_count: int) -> int:
        """The number of partitions to add for so many in total. Raises RequestError.

        Source: Kafka's ReplicationControlManager.createPartitions.
        """
        current = len(topic.partitions)
        if topic.deleted or topic.topic_id in self._deleting:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise RequestError(error, error.message)
        check_may_change(topic)
        if partition_count == current:
            raise RequestError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
        if partition_count < current:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {current} partition(s); "
                f"{partition_count} would not be an increase.",
            )
        self._reservations.check_partitions(partition_count - current)
        return partition_count - current

    async def grow(self, topic: Topic, partition_count: int) -> None:
        """Grows a visible topic, also where the caller is cancelled. Raises RequestError."""
        while topic.topic_id in self._growing:
            await asyncio.wait([self._growing[topic.topic_id]])
        added = self.check_growth(topic, partition_count)
        self.check_leads()
        self._check_room()
        self._reservations.reserve_partitions(added)
        task = asyncio.ensure_future(self._grow(topic, added))
        self._growing[topic.topic_id] = task
        task.add_done_callback(lambda done: self._on_grown(topic, added))
        await asyncio.shield(task)

    def _on_grown(self, topic: Topic, added: int) -> None:
        del self._growing[topic.topic_id]
        self._reservations.release_partitions(added)

    async def _grow(self, topic: Topic, added: int) -> None:
        entry = self._cluster.image.topics[topic.topic_id]
        first, controller_epoch = len(entry.groups), self._controller_epoch
        try:
            if entry.growing:  # of an intent that could neither be met nor undone
                await self._undo_growth(entry, controller_epoch)
            await self.record(
                [grow_command(topic.topic_id, self._place(topic.config, added))], controller_epoch
            )
            try:
                await self._open(entry, range(first, first + added))
                await self.record([grown_command(topic.topic_id)], controller_epoch)
            except StorageError:
                await self._undo_growth(entry, controller_epoch)
                raise
        except StorageError as error:
            raise _request_error(error) from error
        log.info("topic %s: grown from %d to %d partitions", topic.name, first, first + added)

    async def _undo_growth(self, entry: TopicEntry, controller_epoch: int) -> None:
        self._check_controller_epoch(controller_epoch)
        close, first = self.commands.close, len(entry.groups)
        await self._run_in_groups({each: close(each, entry.topic_id, first) for each in set(entry.growing)})
        await self.record([grow_command(entry.topic_id, [])], controller_epoch)

    # --- delete -------------------------------------------------------------------------------------------

    async def delete(self, topic: Topic) -> None:
        """Deletes a visible topic: for clients once that is recorded; then it is closed. Raises RequestError.

        What is recorded is done, as in Kafka; what cannot be closed yet is closed later.
        """
        check_may_change(topic)
        self.check_leads()
        if topic.topic_id in self._deleting:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' is being deleted."
            )
        self._deleting.add(topic.topic_id)
        task = asyncio.ensure_future(self._delete(topic))
        task.add_done_callback(lambda done: self._deleting.discard(topic.topic_id))
        await asyncio.shield(task)

    async def _delete(self, topic: Topic) -> None:
        growing = self._growing.get(topic.topic_id)
        if growing is not None:
            await asyncio.wait([growing])
        entry = self._cluster.image.topics.get(topic.topic_id)
        if entry is None:
            error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise RequestError(error_code, f"Topic '{topic.name}' was deleted meanwhile.")
        controller_epoch = self._controller_epoch
        try:
            await self.record([delete_command(topic.topic_id)])
        except StorageError as error:
            raise _request_error(error) from error
        try:
            await self._close_all(entry, controller_epoch)
        except StorageError as error:  # the next leader of group 0 finishes it
            log.warning("topic %s: deleted, but closing its partitions is delayed: %s", topic.name, error)
            return
        log.info("topic %s: deleted", topic.name)

    async def _close_all(self, entry: TopicEntry, controller_epoch: int) -> None:
        """Close all partitions of a deleted topic; then its name is free.

        Not before: a new topic would begin with the offsets of the old one, and a node that does not know yet
        of either change would take records by that name into a log that is about to be closed.
        """
        left: set[int] = set()

        async def forget(group_id: int) -> None:
            some_stay = await self.commands.forget(group_id, entry.name)
            (left.add if some_stay else left.discard)(group_id)

        await self._run_in_groups({each: forget(each) for each in range(1, self._cluster.data_groups + 1)})
        groups = {*entry.groups, *entry.growing}
        await self._run_in_groups({each: self.commands.close(each, entry.topic_id) for each in groups})
        if left:  # a full disk had no space for their ends, and has some again
            await self._run_in_groups({each: forget(each) for each in sorted(left)})
        if left:
            raise StorageError(f"offsets that groups committed are still in log groups {sorted(left)}")
        await self.record([deleted_command(entry.topic_id)], controller_epoch)
        if entry.name not in self._creating:
            self._reservations.release_name(entry.name)

    # --- configure ----------------------------------------------------------------------------------------

    def check_alterable(self, topic: Topic) -> None:
        """Raises RequestError for a topic that is being deleted."""
        if topic.deleted or topic.topic_id in self._deleting:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic.name}' does not exist."
            )

    async def record_configs(self, commands: Sequence[Command]) -> None:
        """Commit configurations; the image has them when this returns. On a full disk, too, where shorter
        retention makes room, as far as they leave alone what is kept for deletes. Raises RequestError."""
        if not self.leads:  # an older controller rejects what it does not know without a reason
            self.version_control.check(commands)
        self.check_leads()
        try:
            await self.record(commands, reserved=False)
        except StorageFull:
            raise RequestError(
                ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full: delete topics first."
            ) from None
        except StorageError as error:
            raise _request_error(error) from error

    # --- records ------------------------------------------------------------------------------------------

    def _check_controller_epoch(self, controller_epoch: int) -> None:
        if controller_epoch != self._controller_epoch:
            raise NotLeader("another node led group 0 meanwhile")

    async def record(
        self, commands: Sequence[Command], controller_epoch: int | None = None, *, reserved: bool = True
    ) -> None:
        """Commit metadata records; the image has replayed them when this returns. `reserved`: on a full disk,
        too, with what is kept for them. Raises StorageError; RequestError where nodes do not support them."""
        await self.version_control.require(commands)
        if controller_epoch is not None:
            self._check_controller_epoch(controller_epoch)
        await self._append(commands, reserved=reserved)

    async def _append(self, commands: Sequence[Command], *, reserved: bool = True) -> None:
        values = [json.dumps(command, separators=(",", ":")).encode() for command in commands]
        group: LogGroup = self._cluster.groups[METADATA_GROUP]
        await group.append_values(self.records, values, reserved=reserved)


def _request_error(error: StorageError) -> RequestError:
    if isinstance(error, StorageFull):
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk is full: {error}")
    if isinstance(error, WriteFailed):
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log cannot be written: {error}")
    if isinstance(error, NotLeader):
        return RequestError(ErrorCode.NOT_CONTROLLER, str(error))
    return RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
