"""A member of a consumer group: its metadata, the range assignment, and when it joins again."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerError
from lockstep.kafka_client.group_member import (
    ConsumerMember,
    assign_ranges,
    assignment,
    subscribed_topics,
    subscription,
)
from lockstep.kafka_client.groups import committed_offsets, owned_partitions
from lockstep.protocol.errors import ErrorCode
from lockstep.testing import RunningBroker


@pytest.mark.parametrize("topics", [[], ["orders"], ["bücher", "b"]])
def test_a_subscription_is_read_back(topics: list[str]) -> None:
    assert subscribed_topics(subscription(topics)) == {*topics}


@pytest.mark.parametrize("metadata", [b"", b"\0\0\0\0\0\2\0\1a", b"\0\0\0\0\0\1\0\1\xff", b"\0\0\x7f\0\0\0"])
def test_metadata_that_cannot_be_read_has_no_topics(metadata: bytes) -> None:
    assert subscribed_topics(metadata) == set()


def test_an_assignment_is_read_back() -> None:
    places = [("a", 0), ("a", 7), ("bücher", 1)]
    assert owned_partitions(assignment(places)) == tuple(places)
    assert owned_partitions(assignment([])) == ()


def test_ranges_are_those_of_kafkas_range_assignor() -> None:
    topics = {"m2": {"a"}, "m1": {"a", "b"}, "m3": {"gone"}}
    assert assign_ranges(topics, {"a": 3, "b": 1}) == {
        "m1": [("a", 0), ("a", 1), ("b", 0)],
        "m2": [("a", 2)],
        "m3": [],
    }
    many = assign_ranges({f"m{number}": {"a"} for number in range(4)}, {"a": 2})
    assert many == {"m0": [("a", 0)], "m1": [("a", 1)], "m2": [], "m3": []}


async def test_a_member_whose_group_was_joined_by_another_joins_again(running: RunningBroker) -> None:
    topic = f"t-{uuid4().hex}"
    async with Client(running.bootstrap_servers) as client, Client(running.bootstrap_servers) as other_client:
        await client.create_topic(topic, partitions=2)
        member = ConsumerMember(client, f"of-{topic}", topic)
        await member.join()
        assert member.partitions == (0, 1) and await member.heartbeat()
        assert await member.commit({0: 3})
        stranger = ConsumerMember(other_client, f"of-{topic}", topic)
        stranger._member_id, stranger._generation = "nobody", 1
        assert not await stranger.heartbeat() and stranger._member_id == ""
        member._generation -= 1
        assert not await member.heartbeat() and not await member.commit({0: 9})
        await member.join()
        assert await member.heartbeat()
        await member.leave()
        await member.leave()
        assert await committed_offsets(client, f"of-{topic}") == {(topic, 0): 3}


async def test_the_leader_of_a_group_notices_new_partitions_and_its_other_members_do_not(
    running: RunningBroker,
) -> None:
    topic = f"t-{uuid4().hex}"
    async with Client(running.bootstrap_servers) as client, Client(running.bootstrap_servers) as other_client:
        await client.create_topic(topic, partitions=2)
        members = [ConsumerMember(each, f"of-{topic}", topic) for each in (client, other_client)]
        await members[0].join()
        assert not await members[0].has_new_partitions()
        joining = asyncio.ensure_future(members[1].join())
        await until_rebalance(members[0])
        await asyncio.gather(members[0].join(), joining)
        await client.grow_topic(topic, 4)
        assert [await each.has_new_partitions() for each in members] == [True, False]
        rejoining = asyncio.ensure_future(members[0].join())
        await until_rebalance(members[1])
        await asyncio.gather(members[1].join(), rejoining)
        assert sorted(members[0].partitions + members[1].partitions) == [0, 1, 2, 3]
        assert not await members[0].has_new_partitions()
        client.close()
        members[0]._assigned_counts = {topic: 9}
        assert not await members[0].has_new_partitions(), "a request that fails"
        await members[1].leave()


async def until_rebalance(member: ConsumerMember) -> None:
    while True:
        if not await member.heartbeat():
            return
        await asyncio.sleep(0.05)


async def test_a_group_that_assigns_otherwise_is_named(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"t-{uuid4().hex}"
    async with Client(running.bootstrap_servers) as client, Client(running.bootstrap_servers) as other_client:
        await client.create_topic(topic)
        with monkeypatch.context() as other:
            other.setattr("lockstep.kafka_client.group_member.RANGE", "roundrobin")
            member = ConsumerMember(client, f"of-{topic}", topic)
            await member.join()
        with pytest.raises(
            BrokerError, match="do not assign partitions by 'range'; choose another"
        ) as caught:
            await ConsumerMember(other_client, f"of-{topic}", topic).join()
        assert caught.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await member.leave()
