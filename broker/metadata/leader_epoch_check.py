"""Checks that Fetch, ListOffsets and OffsetForLeaderEpoch share before they read a partition, and the errors
of failed reads.

Source: KIP-320 for the leader epochs a client may carry; Kafka's Partition and LeaderEpochFileCache.
"""

from __future__ import annotations

import logging
import time

from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.log.file_system import is_corruption
from lockstep.storage.rate_limited_log import RateLimitedLog

NO_EPOCH = -1
_read_failures = RateLimitedLog(time.monotonic, logging.getLogger("lockstep.partitions"))
"""Limits the log lines about unreadable records: clients may retry without a pause."""


def log_read_failure(partition: Partition, text: str) -> None:
    """Log that a part of a partition cannot be read; once a minute for each partition."""
    topic = partition.topic
    _read_failures.warning(f"{topic.name}-{partition.index}: {text}", same=(topic.topic_id, partition.index))


def read_error(error: Exception) -> ErrorCode:
    """The error of a failed read: CORRUPT_MESSAGE for damage, which clients report to their users, and
    KAFKA_STORAGE_ERROR for a passing fault, after which clients retry silently."""
    return ErrorCode.CORRUPT_MESSAGE if is_corruption(error) else ErrorCode.KAFKA_STORAGE_ERROR


def epoch_error(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """NONE, or why a client that knows this leader epoch must refresh what it knows."""
    if not partition.group.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return epoch_mismatch(partition, current_leader_epoch)


def epoch_mismatch(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """`epoch_error` on any replica."""
    if current_leader_epoch == NO_EPOCH:
        return ErrorCode.NONE
    leader_epoch = partition.leader_epoch
    if current_leader_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def end_of_epoch(partition: Partition, leader_epoch: int) -> tuple[int, int]:
    """The newest epoch at or below `leader_epoch` and the offset where it ends; (-1, -1) where unknown.

    As in Kafka, an epoch newer than every known one is unknown, and one older than every known one ends
    where the first known one starts. The current epoch ends at the high watermark, where Kafka returns the
    end of the log: only clients send this request here, none of them has read an uncommitted record, and
    one that is appended now may still be truncated.
    """
    if leader_epoch < 0:
        return -1, -1
    log = partition.log
    if leader_epoch == partition.leader_epoch:
        return leader_epoch, log.high_watermark
    epochs = log.leader_epochs
    if leader_epoch > partition.leader_epoch:
        return -1, -1
    if not epochs or leader_epoch < epochs[0][0]:
        return leader_epoch, epochs[0][1] if epochs else log.high_watermark
    return log.end_offset_of_epoch(leader_epoch)


def epoch_at(partition: Partition, offset: int) -> int:
    """The leader epoch of the record at `offset`; the leader's own at the end of the log."""
    log = partition.log
    if offset >= log.high_watermark or not log.leader_epochs:
        return partition.leader_epoch
    leader_epoch = NO_EPOCH
    for epoch, start in log.leader_epochs:
        if start > offset:
            break
        leader_epoch = epoch
    return leader_epoch
