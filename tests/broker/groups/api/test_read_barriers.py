"""The read barrier of each group API: of the one group that the request names, else of all shards here."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lockstep.broker.groups.api import build_handlers
from lockstep.broker.requests.request_context import Needs
from lockstep.broker.transactions.verification_client import Verification
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from lockstep.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from lockstep.protocol.messages.delete_groups import DeleteGroupsRequest
from lockstep.protocol.messages.describe_groups import DescribeGroupsRequest
from lockstep.protocol.messages.heartbeat import HeartbeatRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest
from lockstep.protocol.messages.leave_group import LeaveGroupRequest
from lockstep.protocol.messages.list_groups import ListGroupsRequest
from lockstep.protocol.messages.offset_commit import OffsetCommitRequest
from lockstep.protocol.messages.offset_delete import OffsetDeleteRequest
from lockstep.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from lockstep.protocol.messages.sync_group import SyncGroupRequest
from lockstep.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.broker.fakes import FakeMetadata
from tests.broker.groups.api.fakes import FakeGroups
from tests.support.cases import each_case

OF_ONE_GROUP: list[Callable[..., Struct]] = [
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetDeleteRequest,
    TxnOffsetCommitRequest,
    ConsumerGroupHeartbeatRequest,
]
SEVERAL = [OffsetFetchRequestGroup(group_id=name) for name in ("g", "h")]
REQUESTS: list[tuple[Struct, list[str]]] = [
    *((kind(group_id="g"), ["g"]) for kind in OF_ONE_GROUP),
    (OffsetFetchRequest(groups=SEVERAL), ["g", "h"]),
    (DescribeGroupsRequest(groups=["g"]), []),
    (ConsumerGroupDescribeRequest(group_ids=["g"]), []),
    (DeleteGroupsRequest(groups_names=["g"]), []),
    (ListGroupsRequest(), []),
]


@each_case(("request_", "keys"), REQUESTS, ids=[type(each).__name__ for each, _ in REQUESTS])
def test_the_shards_of_a_request(request_: Struct, keys: list[str]) -> None:
    groups = FakeGroups()
    room = build_handlers(groups(), FakeMetadata().cluster, cast(Verification, None), groups.time_slicer)
    (handler,) = [each for each in room if each.api_key == request_.SCHEMA.api_key]
    assert handler.needs is Needs.COORDINATOR
    assert [list(each) for each in handler.lapsed_leaderships(request_)] == [keys]  # type: ignore[call-overload]


def test_each_handler_takes_one() -> None:
    groups = FakeGroups()
    room = build_handlers(groups(), FakeMetadata().cluster, cast(Verification, None), groups.time_slicer)
    assert {each.api_key for each in room} == {each.SCHEMA.api_key for each, _ in REQUESTS}
