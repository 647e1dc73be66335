"""Consumer groups (KIP-848) over the wire, against the real broker: heartbeats, descriptions, offsets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from lockstep.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from lockstep.protocol.messages.delete_groups import DeleteGroupsRequest
from lockstep.protocol.messages.describe_groups import DescribeGroupsRequest
from lockstep.protocol.messages.heartbeat import HeartbeatRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lockstep.protocol.messages.list_groups import ListGroupsRequest
from lockstep.protocol.messages.offset_commit import OffsetCommitRequest
from lockstep.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.conftest import StartBroker
from tests.broker.groups.api.offsets import TopicIds, ready, request
from tests.broker.wire import Client

E = ErrorCode


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    return await start_broker(group_consumer_assignment_interval_ms="0")


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    connected = await Client.connect(broker.port)
    yield connected
    await connected.close()


@pytest.fixture
async def ids(client: Client) -> TopicIds:
    return await ready(client)


async def beat(client: Client, member: str = "a", epoch: int = 0, version: int = 1, **fields: Any) -> Any:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 10_000, "topic_partitions": []} | fields
        fields.setdefault("subscribed_topic_names", ["t"])
    return await client.call(
        ConsumerGroupHeartbeatRequest(
            group_id=fields.pop("group", "g"), member_id=member, member_epoch=epoch, **fields
        ),
        version,
    )


async def describe(client: Client, *groups: str, version: int = 1) -> list[DescribedGroup]:
    response = await client.call(ConsumerGroupDescribeRequest(group_ids=list(groups)), version)
    found: list[DescribedGroup] = response.groups
    return found


@pytest.mark.parametrize("version", [0, 1])
async def test_two_members_share_a_topic(client: Client, ids: TopicIds, version: int) -> None:
    first = await beat(client, "a", version=version)
    assert (first.error_code, first.member_epoch, first.heartbeat_interval_ms) == (E.NONE, 2, 5_000)
    assert first.assignment.topic_partitions == [TopicPartitions(topic_id=ids["t"], partitions=[0, 1, 2])]
    second = await beat(client, "b", version=version)
    assert (second.member_epoch, second.assignment.topic_partitions) == (3, [])
    kept = (await beat(client, "a", 2, version)).assignment.topic_partitions
    owned = [TopicPartitions(topic_id=each.topic_id, partitions=each.partitions) for each in kept]
    moved = await beat(client, "a", 2, version, topic_partitions=owned)
    assert (moved.member_epoch, moved.assignment) == (3, None)
    given = (await beat(client, "b", 3, version)).assignment.topic_partitions
    assert sorted(index for each in (*kept, *given) for index in each.partitions) == [0, 1, 2]
    (group,) = await describe(client, "g", version=version)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
    assert [each.member_type for each in group.members] == [1 if version else -1] * 2
    names = {each.topic_name for member in group.members for each in member.assignment.topic_partitions}
    assert (names, group.assignor_name) == ({"t"}, "uniform")


async def test_groups_of_both_protocols_are_told_apart(client: Client, ids: TopicIds) -> None:
    await beat(client)
    joining = JoinGroupRequest(
        group_id="c",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"meta")],
    )
    await client.call(joining, 3)
    listed = await client.call(ListGroupsRequest(types_filter=["Consumer"]), 5)
    assert [(each.group_id, each.group_type, each.group_state) for each in listed.groups] == [
        ("g", "consumer", "Stable")
    ]
    classic, unknown, found = await describe(client, "c", "x", "g")
    assert (classic.error_code, classic.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        "Group c is not a consumer group.",
    )
    assert (unknown.error_code, unknown.error_message) == (E.GROUP_ID_NOT_FOUND, "Group x not found.")
    assert found.error_code == E.NONE
    for version, error, text in (
        (5, E.NONE, None),
        (6, E.GROUP_ID_NOT_FOUND, "Group g is not a classic group."),
    ):
        (described,) = (await client.call(DescribeGroupsRequest(groups=["g"]), version)).groups
        assert (described.group_state, described.error_code) == ("Dead", error)
        assert described.error_message == text
    joining.group_id = "g"
    assert (await client.call(joining, 3)).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    classic_heartbeat = HeartbeatRequest(group_id="g", member_id="a", generation_id=2)
    assert (await client.call(classic_heartbeat, 4)).error_code == E.UNKNOWN_MEMBER_ID


async def test_offsets_by_member_epochs(client: Client, ids: TopicIds) -> None:
    await beat(client)

    async def commit(version: int, member: str, epoch: int) -> int:
        message: OffsetCommitRequest = request(version, {("t", 0): 7, ("t", 1): 7}, ids)
        message.member_id, message.generation_id_or_member_epoch = member, epoch
        response = await client.call(message, version)
        (error,) = {each.error_code for topic in response.topics for each in topic.partitions}
        return int(error)

    assert await commit(9, "a", 2) == E.NONE
    assert await commit(10, "a", 2) == E.NONE
    assert await commit(9, "a", 1) == E.STALE_MEMBER_EPOCH
    assert await commit(8, "a", 2) == E.UNSUPPORTED_VERSION
    assert await commit(9, "", -1) == E.UNKNOWN_MEMBER_ID

    async def fetch(member: str | None, epoch: int, group: str = "g") -> tuple[int, list[int]]:
        wanted = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=None)
        (found,) = (await client.call(OffsetFetchRequest(groups=[wanted]), 9)).groups
        offsets = [each.committed_offset for topic in found.topics for each in topic.partitions]
        return found.error_code, offsets

    assert await fetch("a", 2) == (E.NONE, [7, 7])
    assert await fetch(None, -1) == (E.NONE, [7, 7])
    assert await fetch("a", 1) == (E.STALE_MEMBER_EPOCH, [])
    assert await fetch("x", 2) == (E.UNKNOWN_MEMBER_ID, [])
    assert await fetch("x", 2, "unknown") == (E.NONE, [])


async def test_a_group_without_members_is_deleted(client: Client, ids: TopicIds) -> None:
    await beat(client)

    async def delete() -> int:
        (result,) = (await client.call(DeleteGroupsRequest(groups_names=["g"]), 2)).results
        return int(result.error_code)

    assert await delete() == E.NON_EMPTY_GROUP
    assert (await beat(client, epoch=-1)).error_code == E.NONE
    assert await delete() == E.NONE
    assert await delete() == E.GROUP_ID_NOT_FOUND


async def test_a_malformed_heartbeat_is_rejected_with_a_text(client: Client, ids: TopicIds) -> None:
    response = await beat(client, rebalance_timeout_ms=-1)
    assert (response.error_code, response.error_message) == (
        E.INVALID_REQUEST,
        "RebalanceTimeoutMs must be provided in first request.",
    )


async def test_the_protocol_can_be_off(start_broker: StartBroker) -> None:
    broker = await start_broker(group_coordinator_rebalance_protocols="classic")
    client = await Client.connect(broker.port)
    await ready(client)
    assert (await beat(client)).error_code == E.UNSUPPORTED_VERSION
    (described,) = await describe(client, "g")
    assert described.error_code == E.UNSUPPORTED_VERSION
    await client.close()
