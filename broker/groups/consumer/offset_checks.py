"""The checks of member epochs where members of a consumer group commit and fetch offsets.

Pure. A commit with the member's present epoch may name any partition; one with an earlier epoch only
partitions that the member has had since that epoch or longer (KIP-1251), so that what it read before a
rebalance is not lost. A fetch needs the present epoch. Source: Kafka's ConsumerGroup.validateOffsetCommit,
validateOffsetFetch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.protocol.errors import ErrorCode

MEMBER_EPOCHS_MIN_VERSION: Final = 9
"""The first OffsetCommit that has member epochs."""


def commit_error(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[tuple[bytes, int]],
    api_version: int,
    *,
    transactional: bool,
) -> ErrorCode:
    """The error of a commit, or NONE. Args: partitions: topic id and index of each. A version is given for
    OffsetCommit only."""
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if transactional and epoch == -1 and not member_id and instance_id is None:
        return ErrorCode.NONE
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and api_version < MEMBER_EPOCHS_MIN_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    current = group.current_of(member_id)
    if epoch == current.member_epoch:
        return ErrorCode.NONE
    stale = ErrorCode.ILLEGAL_GENERATION if transactional else ErrorCode.STALE_MEMBER_EPOCH
    if epoch > current.member_epoch:
        return stale
    for topic_id, index in partitions:
        assignment_epoch = current.assigned.get(topic_id, {}).get(index)
        if assignment_epoch is None:
            assignment_epoch = current.revoked.get(topic_id, {}).get(index)
        if assignment_epoch is None or epoch < assignment_epoch:
            return stale
    return ErrorCode.NONE


def fetch_error(group: ConsumerGroup | None, member_id: str | None, epoch: int) -> ErrorCode:
    """The error of a fetch, or NONE."""
    if group is None or (member_id is None and epoch < 0):
        return ErrorCode.NONE
    if member_id is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka, which looks for a member that is null
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch != group.current_of(member_id).member_epoch:
        return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE
