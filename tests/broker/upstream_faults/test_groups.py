"""Faults of Kafka's group coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from lockstep.protocol.messages.describe_groups import DescribeGroupsRequest
from lockstep.protocol.messages.heartbeat import HeartbeatRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from lockstep.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lockstep.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from lockstep.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.conftest import StartBroker
from tests.broker.groups.api.offsets import committed, ready
from tests.broker.wire import Client

E = ErrorCode


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    return await start_broker(group_initial_rebalance_delay_ms="0")


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    connected = await Client.connect(broker.port)
    await ready(connected)
    yield connected
    await connected.close()


def joining(member: str = "", instance: str | None = None, metadata: bytes = b"m") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        member_id=member,
        group_instance_id=instance,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


async def stable_member(client: Client, instance: str | None) -> Any:
    """A member of a stable group of one; the JoinGroup answer."""
    joined = await client.call(joining("", instance), 9)
    if joined.error_code == E.MEMBER_ID_REQUIRED:
        joined = await client.call(joining(joined.member_id, instance), 9)
    assert joined.error_code == 0
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"part")],
    )
    assert (await client.call(request, 5)).error_code == 0
    return joined


async def test_a_member_cannot_take_another_instance_id(client: Client) -> None:
    """KAFKA-20747: the old instance id must not stay behind as a name of a member that has another."""
    joined = await stable_member(client, "one")
    answer = await client.call(joining(joined.member_id, "two"), 9)
    assert answer.error_code == E.UNKNOWN_MEMBER_ID
    leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(group_instance_id="one")])
    answer = await client.call(leaving, 4)
    assert (answer.error_code, answer.members[0].error_code) == (0, 0)
    described = await client.call(DescribeGroupsRequest(groups=["g"]), 5)
    assert described.groups[0].members == []


async def test_a_member_that_left_has_its_name_in_the_response(client: Client) -> None:
    """KAFKA-18188: a member that is removed by its instance id is not told with a member id."""
    joined = await stable_member(client, "one")
    leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(group_instance_id="one")])
    (told,) = (await client.call(leaving, 4)).members
    assert (told.member_id, told.group_instance_id, told.error_code) == ("", "one", 0)
    beating = HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, group_instance_id="one"
    )
    assert (await client.call(beating, 4)).error_code == E.UNKNOWN_MEMBER_ID


async def test_an_expiration_beyond_64_bits_is_for_ever(client: Client) -> None:
    """KAFKA-17415: the sum of a commit's time and its retention overflowed."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    for retention_ms in (2**63 - 1, 2**62):
        request = OffsetCommitRequest(
            group_id="g",
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        answer = await client.call(request, 4)
        assert answer.topics[0].partitions[0].error_code == 0
        assert await committed(client) == {("t", 0): 7}


async def test_an_error_of_a_group_in_offset_fetch_1(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-19246: version 1 has no place for it but in each partition."""

    def nobody(group_id: str) -> Any:
        raise RequestError(E.COORDINATOR_LOAD_IN_PROGRESS, "later")

    monkeypatch.setattr(broker.assembly.consumer_groups, "store", nobody)
    asked = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 2])]
    )
    (topic,) = (await client.call(asked, 1)).topics
    assert [(each.partition_index, each.error_code, each.committed_offset) for each in topic.partitions] == [
        (0, E.COORDINATOR_LOAD_IN_PROGRESS, -1),
        (2, E.COORDINATOR_LOAD_IN_PROGRESS, -1),
    ]


async def test_the_offsets_topic_stays(client: Client) -> None:
    """KAFKA-19274: coordinators went on when their topic was deleted; here it cannot be."""
    answer = await client.call(DeleteTopicsRequest(topic_names=["__consumer_offsets"]), 5)
    assert answer.responses[0].error_code == E.INVALID_TOPIC_EXCEPTION
    await stable_member(client, None)


async def test_a_group_with_more_offsets_than_a_batch_takes(client: Client) -> None:
    """KAFKA-19760, KAFKA-20845: many large records become several batches, none empty or too large."""
    await client.create("wide", 100)
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=index, committed_metadata="m" * 4000
        )
        for index in range(100)
    ]
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="wide", partitions=partitions * 4)]
    )
    answer = await client.call(request, 8)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}
    assert await committed(client) == {("wide", index): index for index in range(100)}


async def test_a_leader_that_joins_again_with_nothing_new_rebalances(client: Client) -> None:
    """KAFKA-20272: a rebalance begins with the leader's join."""
    joined = await stable_member(client, None)
    again = await client.call(joining(joined.member_id), 9)
    assert (again.error_code, again.generation_id) == (0, joined.generation_id + 1)
