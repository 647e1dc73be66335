"""OffsetFetch over the wire: one group and several, names and ids, all topics, what is not there."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from lockstep.storage.log_group import LogGroup
from tests.broker.groups.api.offsets import TopicIds, commit, fetch, ready, request
from tests.broker.wire import Client

E = ErrorCode


@pytest.fixture
async def ids(client: Client) -> TopicIds:
    made = await ready(client)
    await commit(client, 9, {("t", 0): 5, ("t", 2): 7}, made)
    return made


def asking(version: int, ids: TopicIds, group_id: str = "g", indexes: tuple[int, ...] = (0, 1, 9)) -> Any:
    """Some partitions of `t`, in the words of a version."""
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=list(indexes))]
        return OffsetFetchRequest(group_id=group_id, topics=topics)
    named = OffsetFetchRequestTopics(name="t", partition_indexes=list(indexes))
    if version >= 10:
        named = OffsetFetchRequestTopics(topic_id=ids["t"], partition_indexes=list(indexes))
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[named])])


@pytest.mark.parametrize("version", [1, 8, 10])
async def test_an_unstable_offset_is_retried_at_an_interval(
    client: Client, ids: TopicIds, version: int
) -> None:
    """What was committed with it may be long: a few bytes must not ask for it again and again."""
    asked = asking(version, ids, indexes=(0, 2, 0, *[2] * 150, 9))
    if version >= 8:
        asked.groups += asking(version, ids, "other", (0, 0)).groups
    answer = await client.call(asked, version)
    answers = answer.groups if version >= 8 else [answer]
    told = [[each.partition_index for each in topic.partitions] for one in answers for topic in one.topics]
    assert told == [[0, 2, 0, *[2] * 99, 9], [0]][: len(answers)]


@pytest.mark.parametrize("group_id", ["g", "nobody"])
@pytest.mark.parametrize("version", range(1, 11))
async def test_every_version(client: Client, ids: TopicIds, version: int, group_id: str) -> None:
    response = await client.call(asking(version, ids, group_id), version)
    answer = response
    if version >= 8:
        (answer,) = response.groups
        assert answer.group_id == group_id
    assert answer.error_code == 0
    (topic,) = answer.topics
    assert topic.topic_id == ids["t"] if version >= 10 else topic.name == "t"
    assert [(each.partition_index, each.committed_offset, each.error_code) for each in topic.partitions] == [
        (0, 5 if group_id == "g" else -1, 0),
        (1, -1, 0),
        (9, -1, 0),
    ]
    assert {each.metadata for each in topic.partitions} == {""}


@pytest.mark.parametrize("version", range(2, 11))
async def test_all_topics(client: Client, ids: TopicIds, version: int) -> None:
    asked = OffsetFetchRequest(group_id="g", topics=None)
    if version >= 8:
        groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "nobody")]
        asked = OffsetFetchRequest(groups=groups)
    response = await client.call(asked, version)
    found = response
    if version >= 8:
        found, nobody = response.groups
        assert (nobody.topics, nobody.error_code) == ([], 0)
    (topic,) = found.topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 5), (2, 7)]
    if version >= 10:
        assert topic.topic_id == ids["t"]


async def test_an_unknown_topic_id(client: Client, ids: TopicIds) -> None:
    (group,) = (await client.call(asking(10, {"t": b"0123456789abcdef"}), 10)).groups
    assert group.error_code == 0
    (topic,) = group.topics
    assert {(each.committed_offset, each.error_code) for each in topic.partitions} == {
        (-1, E.UNKNOWN_TOPIC_ID)
    }


async def test_an_unknown_name_and_no_groups(client: Client, ids: TopicIds) -> None:
    assert await fetch(client, "g", {"nope": [0]}) == {("nope", 0): (-1, -1, "")}
    assert await fetch(client, "g", {}) == {}
    assert (await client.call(OffsetFetchRequest(groups=[]), 8)).groups == []


async def test_member_epochs_do_not_matter_to_classic_groups(client: Client, ids: TopicIds) -> None:
    asked = asking(9, ids)
    asked.groups[0].member_id, asked.groups[0].member_epoch = "somebody", 5
    (group,) = (await client.call(asked, 9)).groups
    assert (group.error_code, group.topics[0].partitions[0].committed_offset) == (0, 5)


@pytest.mark.parametrize("held_up", [False, True], ids=["", "without a lease"])
@pytest.mark.parametrize("stable", [True, False])
async def test_offsets_wait_for_commits(
    broker: Broker,
    client: Client,
    ids: TopicIds,
    stable: bool,
    held_up: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, store = LogGroup._propose_or_gather, broker.assembly.consumer_groups.store("g")
    if held_up:
        monkeypatch.setattr(LogGroup, "has_lease", False)
    monkeypatch.setattr(LogGroup, "_propose_or_gather", lambda self: None)
    other = await Client.connect(broker.port)
    client.send(request(9, {("t", 0): 77}, ids), 9)
    while not store.is_under_way("g"):
        await client_turn(other)
    asked = asking(8, ids)
    asked.require_stable = stable
    other.send(asked, 8)
    client.send(asked, 8)  # behind a commit that is not answered yet, as after kafka-python's commit_async
    third = await Client.connect(broker.port)
    while len(store._writes) < 2:  # the commit, and who waits for it
        await client_turn(third)
    await client_turn(third)
    monkeypatch.setattr(LogGroup, "_propose_or_gather", turn)
    broker.groups[1]._propose_or_gather()
    await client.receive(request(9, {("t", 0): 77}, ids), 9)
    for each in (other, client):
        _, response = await each.receive(asked, 8)
        (group,) = response.groups  # type: ignore[attr-defined]
        assert group.topics[0].partitions[0].committed_offset == 77
    await other.close()
    await third.close()


async def client_turn(client: Client) -> None:
    """A round trip: whatever was sent before has been served."""
    await client.call(OffsetFetchRequest(groups=[]), 8)


@pytest.mark.parametrize("version", [1, 2, 8])
async def test_another_node_leads(
    client: Client, ids: TopicIds, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogGroup, "is_leader", property(lambda self: False))
    response = await client.call(asking(version, ids), version)
    if version == 1:
        (topic,) = response.topics
        assert {each.error_code for each in topic.partitions} == {E.NOT_COORDINATOR}
        assert [each.partition_index for each in topic.partitions] == [0, 1, 9]
    else:
        answer = response.groups[0] if version >= 8 else response
        assert (answer.error_code, answer.topics) == (E.NOT_COORDINATOR, [])
