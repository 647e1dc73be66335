"""Commits and aborts stages: a commit is one entry of the log group, together with its commit record.

Owns: `StageCommit`, and the list of abandoned queries. Invariants: a commit is one frame: the markers of all
its stages and the record, whose locks decide; nothing of it is written where a stage is not open any more, is
in another log group, or the locks reject; the query's other open stages in the group are aborted after it; an
abort ends only open stages, and so undoes no commit.
Does not: know the content of the record, or wait for the commit (the handler does).
Source: the project's own (docs/staged.md); markers as of transaction version 2 (KIP-890, KIP-1228).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from lockstep.broker.locks.lock_headers import lock_requests
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.produce.append_result import AppendResult
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.topic_config import LOCKS_KEPT
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import ProduceRequest
from lockstep.protocol.staged_messages import (
    STAGED_PRODUCER_EPOCH,
    Stage,
    StagedRecord,
    is_staged_by,
    owner_of,
)
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog

log = logging.getLogger("lockstep.staging")

ENDED_EPOCH: Final = STAGED_PRODUCER_EPOCH + 1
"""The epoch of the marker that ends a stage: no batch of the stage can be appended after it."""
COORDINATOR_EPOCH: Final = 0
"""Staged ids have no coordinator that could be fenced."""
MAX_MARKERS: Final = 20_000
"""LIMIT. Markers of one commit, which is one frame, or of an abort: some 80 bytes each."""
MARKERS_IN_FRAME: Final = 500
"""LIMIT. Markers of aborted stages in one frame, as they need not end together: fits the smallest
segments."""
MAX_ABANDONED: Final = 1_000
"""LIMIT. Abandoned queries in memory; later stages of a forgotten one expire."""
MAX_TEXT_LENGTH: Final = 1_000
TRANSACTION_VERSION: Final = 2
PRODUCE_VERSION: Final = ProduceRequest.SCHEMA.versions.high

StagePartitions = dict[int, list[Partition]]
"""Producer id -> the partitions that it wrote to."""
LastWritten = tuple[int, tuple[tuple[int, int, int], ...]]
"""The last write of a query in a log group: the log's time of its newest batch; producer id, partition and
last sequence of each of its stages."""


class StageCommit:
    """Commits and aborts stages in the groups that this node leads. Args: appenders: by data group."""

    def __init__(self, cluster: MetadataCache, appenders: Mapping[int, Appender]) -> None:
        self._cluster = cluster
        self._appenders = appenders
        self._abandoned: dict[tuple[int, str], None] = {}
        """Log group and query, the oldest first: some of its tasks may still write."""

    def is_abandoned(self, group_id: int, query: str) -> bool:
        """Returns whether this node knows that a query was abandoned in a log group."""
        return (group_id, query) in self._abandoned

    def commit(
        self, query: str, stages: Sequence[Stage], record: StagedRecord
    ) -> tuple[LogGroup, AppendResult]:
        """Makes the stages visible, with the record. After RequestError nothing has changed.

        Returns the group, for whose commit the caller waits, and the position of the record.
        """
        _require_few(stages)
        stage_partitions = self._stage_partitions(query, stages)
        commit_partition = self._partition(record.topic, record.partition_index)
        if commit_partition.topic.is_internal:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{record.topic} is the broker's own topic")
        if commit_partition.topic.config.lockstep_locks != LOCKS_KEPT:
            text = f"a commit's record goes to a topic with lockstep.locks=true, which {record.topic} is not"
            raise RequestError(ErrorCode.INVALID_REQUEST, text)
        group = _the_group(
            [commit_partition, *(each for found in stage_partitions.values() for each in found)]
        )
        appender = self._appenders[group.group_id]
        beside = appender.validate_for_markers(
            (commit_partition.log, record.records, commit_partition.topic.config), PRODUCE_VERSION
        )
        if not any(each.writes for each in lock_requests(beside.batch, beside.header)):
            raise RequestError(ErrorCode.INVALID_REQUEST, "a commit's record has a write lock")
        ends = []
        for producer_id, found in stage_partitions.items():
            logs = [each.log for each in found]
            for each in found:
                if not _is_open(appender, producer_id, each.log):
                    text = f"stage {producer_id} is not open in {each.topic.name}-{each.index}: it has ended"
                    raise RequestError(ErrorCode.INVALID_TXN_STATE, text)
            ends.append((_marker(producer_id, is_commit=True), logs))
        appended = appender.end_several(ends, beside)
        assert appended is not None
        try:
            self._abort(appender, [each for each in _open_stages(appender) if is_staged_by(each[0], query)])
        except RequestError as rejection:  # the next commit aborts them, or they expire
            log.warning("what query %s has left open: %s", query, rejection)
        return group, appended

    def abort(self, query: str, stages: Sequence[Stage]) -> list[LogGroup]:
        """Aborts the open ones of these stages. Raises RequestError.

        Returns the groups, whose commit is to be waited for. Stages of deleted topics need no abort.
        """
        _require_few(stages)
        by_group: dict[int, list[tuple[int, PartitionLog]]] = {}
        groups: dict[int, LogGroup] = {}
        for producer_id, found in self._stage_partitions(query, stages, gone=True).items():
            for each in found:
                group = each.group
                _require_led(group)
                groups[group.group_id] = group
                by_group.setdefault(group.group_id, []).append((producer_id, each.log))
        for group_id, stage_logs in by_group.items():
            appender = self._appenders[group_id]
            self._abort(appender, [each for each in stage_logs if _is_open(appender, *each)])
        return list(groups.values())

    def abandon(self, query: str, topics: Sequence[str]) -> list[LogGroup]:
        """Aborts all open stages of a query in the log groups of these topics, and accepts no more of its
        batches. Raises RequestError.

        Returns the groups, whose commit is to be waited for.
        """
        groups = {
            each.group.group_id: each.group
            for name in dict.fromkeys(topics)
            for each in self._partitions(name)
        }
        for group in groups.values():
            _require_led(group)
            self._abandoned[group.group_id, query] = None
            if len(self._abandoned) > MAX_ABANDONED:
                del self._abandoned[next(iter(self._abandoned))]
            appender = self._appenders[group.group_id]
            self._abort(appender, [each for each in _open_stages(appender) if is_staged_by(each[0], query)])
        return list(groups.values())

    def abort_expired(self, is_expired: Callable[[int, int, LastWritten], bool]) -> int:
        """Aborts the stages of queries without a write for long, in all groups that are led here.

        Args: is_expired: returns whether enough time has passed, by log group, owner and its last write
        there. Returns the number of aborted stages, counted by partition. A query's stages expire together:
        the first of its tasks may be done long before the last.
        """
        found = 0
        for group_id, appender in self._appenders.items():
            group = self._cluster.groups.get(group_id)
            if group is None or not group.is_leader:
                continue
            newest: dict[int, int] = {}
            parts: dict[int, list[tuple[int, int, int]]] = {}
            stages = list(_open_stages(appender))
            for producer_id, partition in stages:
                producer = appender.producers.find(partition.local_id, producer_id)
                owner = owner_of(producer_id)
                newest[owner] = max(newest.get(owner, 0), producer.last_time_ms if producer else 0)
                last_sequence = producer.last_sequence if producer else -1
                parts.setdefault(owner, []).append((producer_id, partition.local_id, last_sequence))
            left = {
                owner for owner in newest if is_expired(group_id, owner, (newest[owner], tuple(parts[owner])))
            }
            late = [each for each in stages if owner_of(each[0]) in left]
            try:
                self._abort(appender, late)
                found += len(late)
            except RequestError as rejection:  # the other groups are served next
                log.warning("stages that are left over in group %d: %s", group_id, rejection)
        return found

    # --- private ------------------------------------------------------------------------------------------

    def _stage_partitions(
        self, query: str, stages: Sequence[Stage], *, gone: bool = False
    ) -> StagePartitions:
        stage_partitions: StagePartitions = {}
        for stage in stages:
            if not is_staged_by(stage.producer_id, query):
                text = f"producer {stage.producer_id} stages nothing for the query {query!r}"
                raise RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
            if stage.producer_id in stage_partitions:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"stage {stage.producer_id} is named twice")
            found = stage_partitions[stage.producer_id] = []
            for topic in stage.topics:
                for index in dict.fromkeys(topic.partition_indexes):
                    try:
                        found.append(self._partition(topic.name, index))
                    except RequestError:
                        if not gone:
                            raise
        return stage_partitions

    def _partitions(self, topic: str) -> Sequence[Partition]:
        found = self._cluster.topic(topic)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        return found.partitions

    def _partition(self, topic: str, index: int) -> Partition:
        found = self._cluster.partition(topic, index)
        if found is None:
            text = f"there is no partition {topic}-{index}"
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        return found

    def _abort(self, appender: Appender, partitions: Sequence[tuple[int, PartitionLog]]) -> None:
        for first in range(0, len(partitions), MARKERS_IN_FRAME):
            ends = [
                (_marker(producer_id, is_commit=False), [partition])
                for producer_id, partition in partitions[first : first + MARKERS_IN_FRAME]
            ]
            appender.end_several(ends)


def _the_group(partitions: Sequence[Partition]) -> LogGroup:
    """Returns the one log group of all of them, which is led here. Raises RequestError."""
    numbers = {each.group.group_id for each in partitions}
    if len(numbers) > 1:
        where = ", ".join(f"{each.topic.name}-{each.index} in {each.group.group_id}" for each in partitions)
        text = f"stages and their record are in one log group, not in {len(numbers)}: {where}"
        raise RequestError(ErrorCode.INVALID_REQUEST, text[:MAX_TEXT_LENGTH])
    _require_led(partitions[0].group)
    return partitions[0].group


def _require_led(group: LogGroup) -> None:
    if not group.is_leader:
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partitions")


def _is_open(appender: Appender, producer_id: int, partition: PartitionLog) -> bool:
    producer = appender.producers.find(partition.local_id, producer_id)
    return producer is not None and producer.is_open


def _marker(producer_id: int, *, is_commit: bool) -> TxnMarkerEntry:
    return TxnMarkerEntry(producer_id, ENDED_EPOCH, COORDINATOR_EPOCH, is_commit, TRANSACTION_VERSION)


def _require_few(stages: Sequence[Stage]) -> None:
    if sum(len(topic.partition_indexes) for stage in stages for topic in stage.topics) > MAX_MARKERS:
        text = f"stages end in at most {MAX_MARKERS} partitions at a time: writers times partitions of each"
        raise RequestError(ErrorCode.INVALID_REQUEST, text)


def _open_stages(appender: Appender) -> Iterator[tuple[int, PartitionLog]]:
    """Yields every open stage of a group that is led here, by producer id and partition."""
    for local_id, producer_id in list(appender.producers.open_stages):
        partition = appender.group.partitions.get(local_id)
        if partition is not None:
            yield producer_id, partition
