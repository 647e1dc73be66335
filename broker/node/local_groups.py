"""The log groups of this node: opens them with their state machines.

Owns: the open groups, with their state machines, append paths and coordinators; removing groups that were
placed on other nodes. Invariants: a group is opened as a founder only once in a directory's life; one that
never was begins under a fresh member id (`docs/decisions/0018-the-first-start.md`).
Does not: decide where groups are placed or who is a member (`broker/membership/` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.groups.group_state import SECTION as GROUPS_SECTION
from lockstep.broker.groups.group_state import GroupsState
from lockstep.broker.locks.lock_check import LockChecks
from lockstep.broker.locks.lock_table import SECTION as LOCKS_SECTION
from lockstep.broker.locks.lock_table import LockTable
from lockstep.broker.metadata.metadata_cache import (
    CONSUMER_OFFSETS_TOPIC_ID,
    METADATA_GROUP,
    METADATA_TOPIC_ID,
    TRANSACTION_STATE_TOPIC_ID,
    MetadataCache,
)
from lockstep.broker.metadata.metadata_image import METADATA_SECTION
from lockstep.broker.node.data_directory import DataDirectory
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.broker.settings.config import Settings
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.broker.transactions.transaction_state import SECTION as TRANSACTIONS_SECTION
from lockstep.broker.transactions.transaction_state import TransactionsState
from lockstep.storage.append_codec import Send, no_peers
from lockstep.storage.group_options import fresh_incarnation, member_of
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.threads import in_thread
from lockstep.storage.types import NO_SEGMENT, StorageError

log = logging.getLogger("lockstep")

PRODUCERS_SECTION: Final = "producers"
MIN_RECENT_BYTES: Final = 1 << 20
"""The least memory for the newest frames: without it every follower would be served from the disk."""
MAX_NEEDED_BYTES: Final = 192 << 20
"""Frames that reachable followers are missing, shared by the data groups of a node; the metadata group may
have as much as one of them. With three groups that is twice what 64 producers of 100 KB have in flight."""
METADATA_SEGMENT_BYTES: Final = 8 << 20
"""Group 0 holds a few hundred bytes per topic: its files need not be as large as those of the data."""
HEARTBEAT_MS: Final = 200
"""Commits and entries do not wait for one: heartbeats only keep leases, and an idle cluster pays for each."""
COMMIT_PUSH_MS: Final = 3
"""A follower's commit may be this much late, and comes with the next entries; so do reads from the
follower."""
UNDO_TIMEOUT_SECONDS: Final = 5.0
"""A group that is closed because the disk is full may wait for room."""
CLEAN_ENDS: Final = ("no marker", "a marker of", "the segment is full")
"""Reasons to end a recovery's scan at which there is no further write. Any other reason is a torn write."""
MAX_LOGGED_FILES: Final = 10
"""Lost log files that one log line names."""
LOST_FILES_REMEDY: Final = (
    "put them back from a copy, or give their records up by `lockstep log skip-damage TOPIC-PARTITION`"
)


class LocalGroups:
    """See the module.

    Args:
        clock_ms: milliseconds since 1970.
        on_fatal: called when a log cannot be trusted any more.
        send: sends messages to a group's members, by group id; None for a node alone.
    """

    def __init__(
        self,
        settings: Settings,
        directory: DataDirectory,
        cluster: MetadataCache,
        clock_ms: Callable[[], int],
        on_fatal: Callable[[BaseException], None],
        send: Callable[[int], Send] | None,
    ) -> None:
        self._settings = settings
        """The settings of the start."""
        self._producer_expiration_ms = settings.producer_id_expiration_ms
        self._directory = directory
        self._image = cluster.image
        cluster.on_settings.append(self.apply_settings)
        self._clock_ms = clock_ms
        self._on_fatal = on_fatal
        self._send = send
        cached_bytes = settings.lockstep_tail_cache_bytes // settings.local_data_groups
        self._log_options = LogOptions(
            segment_bytes=settings.lockstep_segment_bytes,
            spare_segments=settings.lockstep_spare_segments,
            tail_cache_bytes=cached_bytes,
            shared_reads_bytes=settings.lockstep_shared_reads_bytes // settings.local_data_groups,
            recent_frames_bytes=max(cached_bytes, MIN_RECENT_BYTES),
            needed_frames_bytes=MAX_NEEDED_BYTES // settings.local_data_groups,
            index_cache_bytes=settings.lockstep_index_cache_bytes,
            flush=settings.log_flush == "always",
            reserve_bytes=settings.lockstep_reserve_bytes,
        )
        self._states: dict[int, tuple[GroupsState, TransactionsState, LockTable]] = {}
        self.appenders: dict[int, Appender] = {}
        """The append path into each data group, by group id."""

    def apply_settings(self, settings: Settings) -> None:
        """Act on settings that were changed while running."""
        self._producer_expiration_ms = settings.producer_id_expiration_ms
        for appender in self.appenders.values():
            appender.producers.expiration_ms = settings.producer_id_expiration_ms

    async def open(self, group_id: int, founders: tuple[int, ...] = ()) -> LogGroup:
        """Open a group; `founders` are the nodes that vote in it from its beginning, where it has none yet.

        Clients are not served from it before `serve`. Raises CorruptLog, NewerFormat, StorageFull, OSError.
        """
        is_metadata = group_id == METADATA_GROUP
        options = self._options(group_id, founders)
        producers = ProducerState(self._producer_expiration_ms, self._clock_ms)
        state = GroupsState()
        transactional_ids = TransactionsState(log.warning)
        locks = LockTable()
        group = await LogGroup.open(
            self._directory.group(group_id),
            options,
            clock_ms=self._clock_ms,
            on_fatal=self._on_fatal,
            commit_machines=(
                {METADATA_TOPIC_ID: (METADATA_SECTION, self._image)}
                if is_metadata
                else {
                    CONSUMER_OFFSETS_TOPIC_ID: (GROUPS_SECTION, state),
                    TRANSACTION_STATE_TOPIC_ID: (TRANSACTIONS_SECTION, transactional_ids),
                }
            ),
            tail_machines=None if is_metadata else {PRODUCERS_SECTION: producers, LOCKS_SECTION: locks},
            send=no_peers if self._send is None else self._send(group_id),
        )
        await in_thread(partial(self._directory.record_owner, group_id))
        if self._send is None:
            _log_recovery(group)
        else:
            _log_salvage(group)
        _log_lost_files(group, self._has_replicas(group_id) and self._send is not None)
        _log_earlier_damage(group)
        if not is_metadata:
            control = group.control
            producers.is_closed = locks.is_closed = lambda each: (
                each < control.next_local_id and each not in control.partitions
            )
            self._states[group_id] = state, transactional_ids, locks
            self.appenders[group_id] = Appender(group, producers, self._clock_ms)
        return group

    def _options(self, group_id: int, founders: tuple[int, ...]) -> GroupOptions:
        settings = self._settings
        options = GroupOptions(
            group_id=group_id,
            node_id=settings.node_id,
            log=self._log_options,
            max_uncommitted_bytes=settings.lockstep_uncommitted_max_bytes,
            raft=RaftSettings(
                heartbeat_ms=HEARTBEAT_MS,
                commit_push_ms=COMMIT_PUSH_MS,
                deferral_ms=settings.spare_wait_ms,
            ),
        )
        if group_id == METADATA_GROUP:
            segment_bytes = min(METADATA_SEGMENT_BYTES, self._log_options.segment_bytes)
            # Every node serves what is recorded here: it is to know of a commit at once.
            raft = RaftSettings(heartbeat_ms=HEARTBEAT_MS)
            log_options = replace(self._log_options, segment_bytes=segment_bytes, spare_segments=1)
            options = replace(options, log=log_options, raft=raft)
        if self._send is None:
            return options
        salvage = self._has_replicas(group_id)
        if founders:
            return replace(options, voters=tuple(member_of(each) for each in founders), salvage=salvage)
        incarnation = fresh_incarnation(self._clock_ms())
        return replace(options, voters=(), incarnation=incarnation, salvage=salvage)

    def _has_replicas(self, group_id: int) -> bool:
        """Returns whether other nodes have what this one may have lost of a group, by the settings and by
        what is recorded so far."""
        if group_id == METADATA_GROUP:
            return True
        recorded = self._image.placement.get(group_id, ())
        return self._settings.lockstep_data_replicas > 1 and len(recorded) != 1

    def serve(
        self,
        group: LogGroup,
        cluster: MetadataCache,
        consumer_groups: GroupCoordinators,
        transactions: TransactionCoordinators,
    ) -> None:
        """Serves clients from an open group."""
        group_id = group.group_id
        cluster.add_group(group)
        if group_id == METADATA_GROUP:
            return
        state, transactional_ids, locks = self._states[group_id]
        producers = self.appenders[group_id].producers
        producers.first_sequences = cluster.first_sequences
        producers.partition_key = partial(_partition_key, group)
        self.appenders[group_id].locks = LockChecks(locks, group, cluster)

        def forget_partition(on_closed: Callable[[PartitionLog], None], partition: PartitionLog) -> None:
            producers.forget(partition.local_id)
            locks.forget(partition.local_id)
            on_closed(partition)

        group.control.on_close = partial(forget_partition, group.control.on_close)
        consumer_groups.add_shard(group_id, group, state, self.appenders[group_id])
        transactions.add_shard(group_id, group, transactional_ids)

    async def undo_open(self, groups: Sequence[LogGroup]) -> None:
        """Close groups that served no client yet, and remove what they wrote."""
        for group in groups:
            self.appenders.pop(group.group_id, None)
            self._states.pop(group.group_id, None)
            with contextlib.suppress(StorageError, OSError, TimeoutError):
                async with asyncio.timeout(UNDO_TIMEOUT_SECONDS):
                    await group.close()
        await in_thread(self._directory.remove_groups)

    async def remove(
        self,
        group_id: int,
        cluster: MetadataCache,
        consumer_groups: GroupCoordinators,
        transactions: TransactionCoordinators,
    ) -> None:
        """Close a group that was placed on other nodes, and remove its files: this node is no member any
        more."""
        consumer_groups.remove_shard(group_id)
        transactions.remove_shard(group_id)
        group = cluster.remove_group(group_id)
        self.appenders.pop(group_id, None)
        self._states.pop(group_id, None)
        await group.close()
        await in_thread(partial(self._remove_files, group_id))
        log.info("log group %d has moved to other nodes", group_id)

    def _remove_files(self, group_id: int) -> None:
        removed = self._directory.mark_removed(group_id)
        if removed is not None:
            shutil.rmtree(removed, ignore_errors=True)


def _partition_key(group: LogGroup, group_id: int) -> tuple[bytes, int] | None:
    """The topic's id and the index of an open partition."""
    partition = group.partitions.get(group_id)
    return None if partition is None else (partition.topic_id, partition.index)


def _log_recovery(group: LogGroup) -> None:
    """Log the result of a group's recovery in one line; nothing for a new group."""
    report = group.log.report
    own_no_op = 1
    replayed = group.log.last_index - own_no_op - group.checkpoint_index
    if replayed:
        text = f"replayed {replayed} frame{'s'[: replayed != 1]} after its last checkpoint"
    elif group.checkpoint_index:
        text = "was stopped cleanly, nothing to replay"
    else:
        return
    if not report.reason.startswith(CLEAN_ENDS):
        text += f"; an unfinished write was truncated at {report.end_text} ({report.reason})"
    log.info("log group %d %s", group.group_id, text)


def _log_lost_files(group: LogGroup, has_replicas: bool) -> None:
    """Log which sealed segments' files are missing, cut short, or without a valid header, and the remedy."""
    if lost := group.log.report.lost_files:
        remedy = "their records come from the other nodes" if has_replicas else LOST_FILES_REMEDY
        more = f" and {len(lost) - MAX_LOGGED_FILES} more" if len(lost) > MAX_LOGGED_FILES else ""
        log.error(
            "log group %d: files of sealed segments that are lost or cut short: %d; %s: %s%s",
            group.group_id,
            len(lost),
            remedy,
            "; ".join(lost[:MAX_LOGGED_FILES]),
            more,
        )
    if whole := group.log.report.wrongly_freed:
        log.warning(
            "log group %d: files of whole segments that a .freed file names: %d; they stay in the log, "
            "and that file is removed: %s",
            group.group_id,
            len(whole),
            "; ".join(whole[:MAX_LOGGED_FILES]),
        )


def _log_earlier_damage(group: LogGroup) -> None:
    """Log damage that was known before this start; the scrub soon reads the files and names offsets."""
    known, lost = group.log.damage.known(), group.log.report.lost_files
    ranges = [each for each in known if each.sequence != NO_SEGMENT and each.problem not in lost]
    missing = [each for each in known if each.sequence == NO_SEGMENT]
    possible = sum(each.is_possible for each in missing)
    if missing:
        log.warning(
            "log group %d: %d ranges of offsets are missing since an earlier start, and %d may be; `lockstep "
            "cluster status` names them",
            group.group_id,
            len(missing) - possible,
            possible,
        )
    if ranges:
        files = ", ".join(map(str, sorted({each.sequence for each in ranges})))
        log.warning(
            "log group %d: %d ranges of offsets are known to be damaged since an earlier start, in log files "
            "%s; `lockstep cluster status` names them",
            group.group_id,
            len(ranges),
            files,
        )


def _log_salvage(group: LogGroup) -> None:
    """Log what a recovery in a cluster found corrupt."""
    report, group_id = group.log.report, group.group_id
    if report.salvaged_from:
        log.warning(
            "log group %d is damaged at %s (%s): the records from there on come from the other nodes",
            group_id,
            report.end_text,
            report.reason,
        )
    if report.salvaged_state:
        log.warning("log group %d: its state is damaged, this node joins it as a new member", group_id)
    if report.skipped_segments:
        log.error(
            "log group %d: its log begins behind a gap, unless what is missing was freed: %s",
            group_id,
            report.skipped_segments,
        )
