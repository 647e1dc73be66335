"""Reads from followers: the conditions under which a follower serves its replica (KIP-392).

Invariants: a follower serves up to its own high watermark, which is committed and never goes back, not even
over a restart: until it has the records again that it may have served before, it serves nothing; nor does it
while truncated records are not replaced yet, or records are missing at the beginning of its log. It never
reports an offset beyond the log: its leader may have more, and only the leader knows. Source: KIP-392,
KIP-320; Kafka's Partition.localLogWithEpochOrThrow. Where this is not what Kafka does:
`docs/decisions/0021-reading-from-followers.md`.
"""

from __future__ import annotations

from lockstep.broker.metadata.leader_epoch_check import epoch_mismatch
from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.log_group import LogGroup
from lockstep.storage.missing_records import may_miss_records

NOBODY = -1


def follower_error(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """NONE, or the error for which this follower serves nothing of the partition."""
    if not partition.is_here:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = epoch_mismatch(partition, current_leader_epoch)
    if error is ErrorCode.NONE and not _follows(partition.group):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error


def offset_error(partition: Partition, offset: int) -> ErrorCode:
    """NONE, or the error of reading a follower at an offset; OFFSET_NOT_AVAILABLE may pass.

    A reader at the end of a follower without a leader would wait there for nothing.
    """
    log = partition.log
    if offset < log.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if offset > log.high_watermark or (offset == log.high_watermark and partition.group.leader_id == NOBODY):
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.NONE


def _follows(group: LogGroup) -> bool:
    """True for a follower whose commit index has reached that of the time before its restart.

    What it served then is in the recovered log, and no leader truncates it.
    """
    raft = group.raft
    has_caught_up = group.applied_index >= min(group.recovered_index, raft.last_index)
    return raft.leader_state is None and has_caught_up and is_whole(group)


def is_whole(group: LogGroup) -> bool:
    """True if this node has replaced all records that it lost or truncated, and none is missing that is not
    skipped. Until then the leader serves its readers."""
    log = group.log
    return group.is_leader or (
        group.applied_index >= log.whole_index and not may_miss_records(log, group.control)
    )
