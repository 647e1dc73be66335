"""OffsetCommit over the wire: every version and not_serving_error; offsets survive a kill, a full disk stores
none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.broker.groups.group_coordinators import MAX_ID_LENGTH
from lockstep.broker.groups.group_records import MAX_COMMIT_BYTES, OFFSET_BYTES
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition
from tests.broker.conftest import StartBroker
from tests.broker.groups.api.offsets import TopicIds, commit, committed, fetch, ready, request, topic_of
from tests.broker.left_behind import copy_as_killed
from tests.broker.wire import Client

E = ErrorCode


@pytest.fixture
async def ids(client: Client) -> TopicIds:
    return await ready(client)


@pytest.mark.parametrize("version", range(2, 11))
async def test_every_version(client: Client, ids: TopicIds, version: int) -> None:
    assert await commit(client, version, {("t", 0): 5, ("t", 2): 7}, ids) == {("t", 0): 0, ("t", 2): 0}
    assert await committed(client) == {("t", 0): 5, ("t", 2): 7}


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (None, E.NONE),
        ("", E.NONE),
        ("x" * 4096, E.NONE),
        ("x" * 4097, E.OFFSET_METADATA_TOO_LARGE),
        ("\U0001f600" * 2048, E.NONE),
        ("\U0001f600" * 2049, E.OFFSET_METADATA_TOO_LARGE),
        ("\u00e4" * 4096, E.NONE),
    ],
)
async def test_metadata(client: Client, ids: TopicIds, metadata: str | None, error: ErrorCode) -> None:
    asked = request(9, {("t", 0): 1, ("t", 1): 2}, ids)
    asked.topics[0].partitions[0].committed_metadata = metadata
    asked.topics[0].partitions[0].committed_leader_epoch = 3
    (topic,) = (await client.call(asked, 9)).topics
    assert [each.error_code for each in topic.partitions] == [error, E.NONE]
    found = await fetch(client, "g", {"t": [0, 1]})
    if error is E.NONE:
        assert found["t", 0] == (1, 3, metadata or "")
    else:
        assert found["t", 0] == (-1, -1, "")
    assert found["t", 1] == (2, -1, "")


@pytest.mark.parametrize(
    ("version", "group_id", "generation", "member_id", "error"),
    [
        (8, "nobody", 5, "m", E.ILLEGAL_GENERATION),
        (9, "nobody", 5, "m", E.GROUP_ID_NOT_FOUND),
        (9, "nobody", -1, "m", E.NONE),
        (9, "known", 5, "m", E.UNKNOWN_MEMBER_ID),
        (8, "known", 0, "", E.UNKNOWN_MEMBER_ID),
        (8, "known", -1, "m", E.NONE),
        (8, "", -1, "", E.NONE),
    ],
)
async def test_members_and_generations(
    client: Client,
    ids: TopicIds,
    version: int,
    group_id: str,
    generation: int,
    member_id: str,
    error: ErrorCode,
) -> None:
    await commit(client, 8, {("t", 1): 1}, ids, group_id="known")
    asked = request(version, {("t", 0): 9, ("t", 7): 1}, ids, group_id=group_id)
    asked.generation_id_or_member_epoch, asked.member_id = generation, member_id
    (topic,) = (await client.call(asked, version)).topics
    assert [each.error_code for each in topic.partitions] == [error, E.UNKNOWN_TOPIC_OR_PARTITION]
    stored = await committed(client, group_id)
    assert stored.get(("t", 0)) == (9 if error is E.NONE else None)


async def test_retention_time_of_old_versions(broker: Broker, client: Client, ids: TopicIds) -> None:
    for version, retention_ms in ((4, 1000), (4, 2**63 - 1), (4, -1), (5, 1000)):
        asked = request(version, {("t", 0): 1}, ids)
        if version < 5:
            asked.retention_time_ms = retention_ms
        await client.call(asked, version)
        stored = broker.assembly.consumer_groups.store("g").state.offsets("g")["t", 0]
        expected = -1
        if version < 5 and retention_ms >= 0:
            expected = min(stored.commit_time_ms + retention_ms, 2**63 - 1)
        assert stored.expire_time_ms == expected
        assert abs(stored.commit_time_ms - broker.clock_ms()) < 10_000


async def test_an_empty_request(client: Client, ids: TopicIds) -> None:
    assert (await client.call(OffsetCommitRequest(group_id="g"), 9)).topics == []
    assert (await client.call(request(9, {}, ids), 9)).topics == []
    empty = topic_of(9, "t", ids, [])
    assert (await client.call(OffsetCommitRequest(group_id="g", topics=[empty]), 9)).topics == []


async def test_the_last_of_one_request_holds(client: Client, ids: TopicIds) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=n) for n in (3, 9, -7)]
    asked = OffsetCommitRequest(group_id="g", topics=[topic_of(9, "t", ids, partitions)])
    (topic,) = (await client.call(asked, 9)).topics
    assert [each.error_code for each in topic.partitions] == [0, 0, 0]
    assert await committed(client) == {("t", 0): -7}


async def test_before_there_is_a_coordinator(client: Client) -> None:
    ids = {"t": await client.create("t")}
    assert await commit(client, 9, {("t", 0): 1, ("t", 5): 1}, ids) == {
        ("t", 0): E.NOT_COORDINATOR,
        ("t", 5): E.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_pipelined_commits_share_a_flush(broker: Broker, client: Client, ids: TopicIds) -> None:
    index = broker.groups[1].log.last_index
    for number in range(50):
        client.send(request(9, {("t", 0): number}, ids, group_id=f"g{number % 5}"), 9)
    for _ in range(50):
        _, response = await client.receive(request(9, {}, ids), 9)
        assert response.topics[0].partitions[0].error_code == 0  # type: ignore[attr-defined]
    assert broker.groups[1].log.last_index - index < 25
    assert await committed(client, "g4") == {("t", 0): 49}


async def test_offsets_survive_a_kill(
    start_broker: StartBroker, client: Client, broker: Broker, ids: TopicIds, tmp_path: Path
) -> None:
    """The files as a kill would leave them: copied while the broker runs."""
    for number in range(20):
        await commit(client, 9, {("t", index): number for index in range(3)}, ids, group_id=f"g{number % 3}")
    copy_as_killed(broker, tmp_path / "killed")
    again = await start_broker(tmp_path / "killed")
    assert (
        again.assembly.consumer_groups.store("g0").state == broker.assembly.consumer_groups.store("g0").state
    )
    other = await Client.connect(again.port)
    assert await committed(other, "g1") == {("t", index): 19 for index in range(3)}
    assert await commit(other, 10, {("t", 0): 77}, ids, group_id="g1") == {("t", 0): 0}
    await other.close()


async def test_a_full_disk(
    client: Client, ids: TopicIds, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    await commit(client, 9, {("t", 0): 1}, ids)
    with monkeypatch.context() as full:
        full.setattr(type(broker.groups[1].log), "has_space_for", lambda self, *_, **__: False)
        assert await commit(client, 9, {("t", 0): 2}, ids) == {("t", 0): E.COORDINATOR_NOT_AVAILABLE}
        assert await committed(client) == {("t", 0): 1}
    assert await commit(client, 9, {("t", 0): 3}, ids) == {("t", 0): 0}
    assert await committed(client) == {("t", 0): 3}


@pytest.mark.parametrize("version", [2, 10])
async def test_a_request_that_would_come_to_too_much(client: Client, ids: TopicIds, version: int) -> None:
    group_id = "g" * MAX_ID_LENGTH
    count = MAX_COMMIT_BYTES // (MAX_ID_LENGTH + OFFSET_BYTES + 1)
    for many, error in ((count, E.NONE), (count + 1, E.INVALID_COMMIT_OFFSET_SIZE)):
        asked = request(version, {("t", 0): 1}, ids, group_id)
        asked.topics[0].partitions *= many
        (topic,) = (await client.call(asked, version)).topics
        assert {each.error_code for each in topic.partitions} == {error}


async def test_an_id_that_is_too_long(client: Client, ids: TopicIds) -> None:
    asked = request(9, {("t", 0): 1}, ids, "g" * (MAX_ID_LENGTH + 1))
    (topic,) = (await client.call(asked, 9)).topics
    assert [each.error_code for each in topic.partitions] == [E.INVALID_GROUP_ID]
