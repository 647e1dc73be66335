"""OffsetDelete over the wire: what a group forgets, and what its members keep it from forgetting."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_records import Record
from lockstep.broker.groups.group_store import Done, GroupStore
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.broker.groups.api.offsets import TopicIds, commit, committed, ready, request
from tests.broker.wire import Client

E = ErrorCode


@pytest.fixture
async def ids(client: Client) -> TopicIds:
    made = await ready(client)
    made["u"] = await client.create("u", 1)
    await commit(client, 9, {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}, made)
    return made


def wanted(places: dict[str, list[int]], group_id: str = "g") -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in indexes]
            )
            for name, indexes in places.items()
        ],
    )


async def delete(
    client: Client, places: dict[str, list[int]], group_id: str = "g"
) -> tuple[int, dict[tuple[str, int], int]]:
    """The group's error and each partition's."""
    response = await client.call(wanted(places, group_id), 0)
    return response.error_code, {
        (topic.name, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }


async def test_what_is_forgotten(client: Client, ids: TopicIds) -> None:
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(2):
        assert await delete(client, {"t": [0, 2, 5, -1], "nope": [0]}) == (
            0,
            {("t", 0): 0, ("t", 2): 0, ("t", 5): unknown, ("t", -1): unknown, ("nope", 0): unknown},
        )
        assert await committed(client) == {("t", 1): 6, ("u", 0): 7}
    assert await delete(client, {}) == (0, {})
    assert await delete(client, {"t": [1], "u": [0, 0]}) == (0, {("t", 1): 0, ("u", 0): 0})
    assert await committed(client) == {}
    assert (await delete(client, {"t": [1]}))[0] == E.GROUP_ID_NOT_FOUND


async def test_what_members_subscribe_to(
    client: Client, ids: TopicIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupCoordinator, "is_empty", lambda self, group_id: False)
    monkeypatch.setattr(GroupCoordinator, "protocol_type", lambda self, group_id: "consumer")
    monkeypatch.setattr(GroupCoordinator, "subscribed_topics", lambda self, group_id: {"t"})
    subscribed = E.GROUP_SUBSCRIBED_TO_TOPIC
    assert await delete(client, {"t": [0, 1], "u": [0]}) == (
        0,
        {("t", 0): subscribed, ("t", 1): subscribed, ("u", 0): 0},
    )
    assert await committed(client) == {("t", 0): 5, ("t", 1): 6}
    monkeypatch.setattr(GroupCoordinator, "subscribed_topics", lambda self, group_id: None)
    assert (await delete(client, {"t": [0]}))[1] == {("t", 0): subscribed}
    monkeypatch.setattr(GroupCoordinator, "protocol_type", lambda self, group_id: "connect")
    assert await delete(client, {"t": [0]}) == (E.NON_EMPTY_GROUP, {})


async def test_a_commit_under_way_is_forgotten_too(client: Client, ids: TopicIds) -> None:
    """Both in one turn, from one client: the later request wins."""
    client.send(request(9, {("t", 2): 9}, ids), 9)
    client.send(wanted({"t": [2]}), 0)
    await client.receive(request(9, {}, ids), 9)
    await client.receive(wanted({}), 0)
    assert ("t", 2) not in await committed(client)


async def test_a_full_disk(
    broker: Broker, client: Client, ids: TopicIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(type(broker.groups[1].log), "has_space_for", lambda self, *_, **__: False)
        assert await delete(client, {"t": [0]}) == (E.COORDINATOR_NOT_AVAILABLE, {})
    assert await committed(client) == {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}


async def test_a_partition_named_again_is_written_once(
    client: Client, ids: TopicIds, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    append = GroupStore.append

    def counted(store: GroupStore, group_id: str, records: Sequence[Record], done: Done) -> None:
        written.append(len(records))
        append(store, group_id, records, done)

    monkeypatch.setattr(GroupStore, "append", counted)
    assert (await delete(client, {"t": [0] * 1000 + [1]}))[0] == 0
    assert written == [2]
    assert await committed(client) == {("u", 0): 7}
