"""Handlers of consumer groups.

| subject | handlers |
|---|---|
| classic members | `join_group`, `sync_group`, `heartbeat`, `leave_group` |
| consumer groups | `consumer_group_heartbeat`, `consumer_group_describe` |
| groups | `describe_groups`, `list_groups`, `delete_groups` |
| offsets | `offset_commit`, `offset_fetch`, `offset_delete`, `txn_offset_commit` |
"""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.api.consumer_group_describe import ConsumerGroupDescribe
from lockstep.broker.groups.api.consumer_group_heartbeat import ConsumerGroupHeartbeat
from lockstep.broker.groups.api.delete_groups import DeleteGroups
from lockstep.broker.groups.api.describe_groups import DescribeGroups
from lockstep.broker.groups.api.heartbeat import Heartbeat
from lockstep.broker.groups.api.join_group import JoinGroup
from lockstep.broker.groups.api.leave_group import LeaveGroup
from lockstep.broker.groups.api.list_groups import ListGroups
from lockstep.broker.groups.api.offset_commit import OffsetCommit
from lockstep.broker.groups.api.offset_delete import OffsetDelete
from lockstep.broker.groups.api.offset_fetch import OffsetFetch
from lockstep.broker.groups.api.sync_group import SyncGroup
from lockstep.broker.groups.api.txn_offset_commit import TxnOffsetCommit
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.transactions.verification_client import Verification


def build_handlers(
    groups: GroupCoordinators,
    cluster: MetadataCache,
    verification: Verification,
    time_slicer: TimeSlicer,
    authorizer: Authorizer = ALLOW_ALL,
) -> list[RequestHandler]:
    """Builds the handlers of this package."""
    return [
        JoinGroup(groups, authorizer),
        SyncGroup(groups, authorizer),
        Heartbeat(groups, authorizer),
        LeaveGroup(groups, authorizer),
        ConsumerGroupHeartbeat(groups, authorizer),
        ConsumerGroupDescribe(groups, time_slicer, authorizer),
        DescribeGroups(groups, time_slicer, authorizer),
        ListGroups(groups, authorizer),
        DeleteGroups(groups, time_slicer, authorizer),
        OffsetCommit(groups, cluster, authorizer),
        OffsetFetch(groups, cluster, time_slicer, authorizer),
        OffsetDelete(groups, cluster, authorizer),
        TxnOffsetCommit(groups, cluster, verification, authorizer),
    ]
