"""Making and ending topics, and finishing what a crash left half done."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.controller.replica_assignment import check_assignments
from lockstep.broker.controller.topics import random_id
from lockstep.broker.metadata.metadata_image import (
    TopicEntry,
    TopicState,
    create_command,
    delete_command,
    grow_command,
)
from lockstep.broker.metadata.topic_names import check_name
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.server import Broker, CannotStart
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.ids import format_uuid
from lockstep.storage.types import Backlogged, NotLeader, StorageError
from tests.broker.conftest import StartBroker
from tests.broker.left_behind import copy_as_killed
from tests.broker.waiting import until
from tests.broker.wire import Client, batch, records_of
from tests.support.cases import each_case


@each_case("name", ["a", "A.b_c-9", "x" * 249, "...", "__mine"])
def test_names(name: str) -> None:
    check_name(name)


@each_case("name", ["", ".", "..", "x" * 250, "a b", "a/b", "a\0", "ä", "a\n", "٣"])
def test_names_refused(name: str) -> None:
    with pytest.raises(RequestError) as refused:
        check_name(name)
    assert refused.value.error == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_no_new_id_has_a_hyphen() -> None:
    """KAFKA-20072."""
    texts = [format_uuid(random_id()) for _ in range(200)]
    assert not any("-" in text for text in texts)
    assert len(set(texts)) == 200


@each_case("assignments", [{0: [2]}, {0: []}, {0: [1, 1]}, {1: [1]}, {0: [1], 2: [1]}])
def test_assignments_refused(assignments: dict[int, list[int]]) -> None:
    with pytest.raises(RequestError) as refused:
        check_assignments(assignments, [1])
    assert refused.value.error == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def plan_error(broker: Broker, name: str, partitions: int, replicas: int, **configs: str) -> ErrorCode:
    with pytest.raises(RequestError) as refused:
        broker.assembly.topics.plan(name, partitions, replicas, configs)
    return refused.value.error


def is_free(broker: Broker, name: str) -> bool:
    try:
        broker.assembly.topics.plan(name, 1, 1, {})
    except RequestError:
        return False
    return True


async def test_plans_refused(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_max_partitions="10")
    topics = broker.assembly.topics
    await topics.create(topics.plan("a.b", 4, 1, {}))
    assert plan_error(broker, "a.b", 1, 1) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert plan_error(broker, "a_b", 1, 1) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert plan_error(broker, "c", 0, 1) == ErrorCode.INVALID_PARTITIONS
    assert plan_error(broker, "c", -2, 1) == ErrorCode.INVALID_PARTITIONS
    assert plan_error(broker, "c", 1, 0) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert plan_error(broker, "c", 1, 2) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert plan_error(broker, "c", 7, 1) == ErrorCode.POLICY_VIOLATION
    assert plan_error(broker, "c", 1, 1, nothing="x") == ErrorCode.INVALID_CONFIG
    assert plan_error(broker, "__cluster_metadata", 1, 1) == ErrorCode.INVALID_REQUEST
    assert topics.plan("c", -1, -1, {}).partition_count == 1


async def test_many_at_once_make_one(broker: Broker) -> None:
    topics = broker.assembly.topics
    made = await asyncio.gather(*(topics.ensure_topic("t") for _ in range(20)))
    assert len({id(topic) for topic in made}) == 1
    results: list[Any] = await asyncio.gather(
        *(topics.create(topics.plan(name, 1, 1, {})) for name in ("x.y", "x_y")), return_exceptions=True
    )
    assert isinstance(results[1], RequestError)
    assert broker.assembly.cluster.topic("x.y") is not None


async def test_a_recreated_topic_is_a_new_one(broker: Broker, client: Client) -> None:
    first = await client.create("t", 2)
    await client.produce("t", batch(b"a"))
    cluster, topics = broker.assembly.cluster, broker.assembly.topics
    topic = cluster.topic("t")
    assert topic is not None
    await topics.delete(topic)
    assert cluster.topic("t") is None
    assert cluster.topic_by_id(first) is None
    assert topic.deleted
    second = await client.create("t")
    assert second != first
    assert (await client.produce("t", batch(b"b"))).base_offset == 0
    assert cluster.partition_count == 1


async def test_deleted_once(broker: Broker, client: Client) -> None:
    await client.create("t")
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    delete = broker.assembly.topics.delete
    results: Any = await asyncio.gather(delete(topic), delete(topic), return_exceptions=True)
    assert results[0] is None
    assert results[1].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.assembly.cluster.image.topics == {}
    await client.create("t")


async def test_a_deletion_that_is_recorded_is_no_failure(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever was told so tried again, and heard that there is no such topic."""
    monkeypatch.setattr("lockstep.broker.controller.topics.RETRY_SECONDS", 0.02)
    broker = await start_broker()
    topics, cluster = broker.assembly.topics, broker.assembly.cluster
    topic = await topics.create(topics.plan("t", 1, 1, {}))
    tries = 0

    async def led_nowhere(number: int, topic_id: bytes, first_index: int = 0) -> None:
        nonlocal tries
        tries += 1
        raise NotLeader("nobody leads the group")

    with monkeypatch.context() as patched:
        patched.setattr(topics.commands, "close", led_nowhere)
        await topics.delete(topic)
        assert cluster.topics() == []
        assert plan_error(broker, "t", 1, 1) == ErrorCode.TOPIC_ALREADY_EXISTS
        await until(lambda: tries >= 5)
    assert caplog.text.count("topic t: its incomplete creation or deletion is delayed") == 1
    await until(lambda: is_free(broker, "t"))
    assert cluster.image.topics == {}
    await topics.create(topics.plan("t", 1, 1, {}))


async def test_topics_survive_a_restart(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_data_groups="2")
    topics = broker.assembly.topics
    made = await topics.create(topics.plan("t", 4, 1, {"retention.ms": "77"}))
    pinned = await topics.create(topics.plan("pinned", 3, 1, {"lockstep.group": "2"}))
    assert [each.group.group_id for each in made.partitions] == [1, 2, 1, 2]
    assert {each.group.group_id for each in pinned.partitions} == {2}
    cluster_id = broker.assembly.cluster.cluster_id
    await broker.stop()
    again = await start_broker(lockstep_data_groups="2")
    cluster = again.assembly.cluster
    assert cluster.cluster_id == cluster_id
    topic = cluster.topic("t")
    assert topic is not None
    assert (topic.topic_id, topic.config.retention_ms, len(topic.partitions)) == (made.topic_id, 77, 4)
    assert [each.group.group_id for each in topic.partitions] == [1, 2, 1, 2]
    # Fewer data groups than before: the old ones are still served, new topics go to what is left.
    await again.stop()
    fewer = await start_broker(lockstep_data_groups="1")
    assert fewer.assembly.cluster.partition("t", 1) is not None
    more = await fewer.assembly.topics.create(fewer.assembly.topics.plan("u", 2, 1, {}))
    assert {each.group.group_id for each in more.partitions} == {1}


async def test_a_start_looks_at_each_partition_once(broker: Broker) -> None:
    """Walking through a topic's partitions for each of them took four of the five seconds of 10,000."""
    topics, cluster = broker.assembly.topics, broker.assembly.cluster
    made = await topics.create(topics.plan("t", 300, 1, {}))
    entry = cluster.image.topics[made.topic_id]
    cluster._logs[made.topic_id] = looked_up = LookedUp(cluster._logs[made.topic_id])
    await topics._check_open(entry)
    assert (looked_up.walks, looked_up.looks) == (0, 300)
    assert len(cluster.open_partitions(made.topic_id, made.partitions[0].group.group_id)) == 300
    assert looked_up.walks == 1


class LookedUp(dict[int, Any]):
    """Counts single looks, and walks through all of it."""

    walks = looks = 0

    def get(self, key: int, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def items(self) -> Any:
        self.walks += 1
        return super().items()


async def test_half_done_topics_are_finished_at_the_next_start(start_broker: StartBroker) -> None:
    broker = await start_broker()
    topics = broker.assembly.topics
    kept = await topics.create(topics.plan("kept", 1, 1, {}))
    ended = await topics.create(topics.plan("ended", 2, 1, {}))
    creating = TopicEntry("creating", b"c" * 16, [1, 1, 1], {}, TopicState.CREATING)
    await topics.record([create_command(creating)])
    await topics._open(creating, [1])  # one of three partitions was opened before the crash
    await topics.record([delete_command(ended.topic_id)])
    await broker.groups[1].open_partitions([(b"o" * 16, 0)])  # of a topic nobody knows
    await broker.stop()

    again = await start_broker()
    cluster = again.assembly.cluster
    assert [topic.name for topic in cluster.topics()] == ["creating", "kept"]
    finished = cluster.topic_by_id(b"c" * 16)
    assert finished is not None
    assert [each.index for each in finished.partitions] == [0, 1, 2]
    assert len({each.log.local_id for each in finished.partitions}) == 3
    assert cluster.image.topics.keys() == {b"c" * 16, kept.topic_id}
    open_topics = {each.topic_id for each in again.groups[1].partitions.values() if each.local_id}
    assert open_topics == {b"c" * 16, kept.topic_id}
    plan = again.assembly.topics.plan("ended", 1, 1, {})
    assert (await again.assembly.topics.create(plan)).topic_id != ended.topic_id
    assert plan_error(again, "creating", 1, 1) == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_topic_that_could_not_be_made_comes_back_with_no_restart(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker()
    topics = broker.assembly.topics

    async def busy(wanted: object) -> None:
        raise Backlogged("too much waits for the disk")

    with monkeypatch.context() as patched:
        patched.setattr(broker.groups[1], "open_partitions", busy)
        with pytest.raises(RequestError):
            await topics.create(topics.plan("t", 1, 1, {}))
        assert broker.assembly.cluster.image.topics == {}
        record = topics.record

        async def record_no_end(commands: list[dict[str, object]], reign: int | None = None) -> None:
            if commands[0]["do"] == "delete":
                raise Backlogged("nor can it be undone")
            await record(commands, reign)

        patched.setattr(topics, "record", record_no_end)
        with pytest.raises(RequestError):
            await topics.create(topics.plan("u", 1, 1, {}))
    # Its intent stands, and so does its name.
    assert plan_error(broker, "u", 1, 1) == ErrorCode.TOPIC_ALREADY_EXISTS
    made = await topics.create(topics.plan("t", 1, 1, {}))
    await topics.delete(made)
    await broker.stop()
    again = await start_broker()
    assert [topic.name for topic in again.assembly.cluster.topics()] == ["u"]
    assert len(again.groups[1].partitions) == 2


async def grown(broker: Broker, name: str) -> list[int]:
    """The indexes of a topic's partitions, each with a log of its own, and no other open for it."""
    topic = broker.assembly.cluster.topic(name)
    assert topic is not None
    numbers = {(each.group.group_id, each.log.local_id) for each in topic.partitions}
    assert len(numbers) == len(topic.partitions)
    opened = {
        (group.group_id, each.local_id)
        for group in broker.groups.values()
        for each in group.partitions.values()
        if each.topic_id == topic.topic_id
    }
    assert opened == numbers
    entry = broker.assembly.cluster.image.topics[topic.topic_id]
    assert ([each.group.group_id for each in topic.partitions], []) == (entry.groups, entry.growing)
    return [each.index for each in topic.partitions]


@pytest.mark.parametrize("opened", [[], [1], [1, 2, 3]])
@pytest.mark.parametrize("checkpointed", [False, True])
async def test_half_done_growth_is_finished_at_the_next_start(
    start_broker: StartBroker, tmp_path: Path, opened: list[int], checkpointed: bool
) -> None:
    broker = await start_broker(lockstep_data_groups="2")
    client = await Client.connect(broker.port)
    await client.create("t")
    await client.produce("t", batch(b"old"))
    topics, cluster = broker.assembly.topics, broker.assembly.cluster
    topic = cluster.topic("t")
    assert topic is not None
    await topics.record([grow_command(topic.topic_id, [2, 1, 2])])
    await topics._open(cluster.image.topics[topic.topic_id], opened)
    if checkpointed:  # a clean stop writes one
        await broker.stop()
    copy_as_killed(broker, tmp_path / "crashed")

    again = await start_broker(tmp_path / "crashed", lockstep_data_groups="2")
    assert await grown(again, "t") == [0, 1, 2, 3]
    client = await Client.connect(again.port)
    assert [record.value for record in records_of(await client.fetch("t", 0))] == [b"old"]
    for index in (1, 2, 3):
        assert (await client.produce("t", batch(b"new"), index)).base_offset == 0
    await again.stop()
    last = await start_broker(tmp_path / "crashed", lockstep_data_groups="2")
    assert await grown(last, "t") == [0, 1, 2, 3]
    assert (await (await Client.connect(last.port)).fetch("t", 0, 3)).high_watermark == 1


async def test_growth_survives_a_restart_and_keeps_to_its_group(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_data_groups="2")
    topics = broker.assembly.topics
    spread = await topics.create(topics.plan("spread", 1, 1, {}))
    pinned = await topics.create(topics.plan("pinned", 1, 1, {"lockstep.group": "2"}))
    await asyncio.gather(topics.grow(spread, 5), topics.grow(pinned, 3))
    assert {each.group.group_id for each in spread.partitions} == {1, 2}
    assert {each.group.group_id for each in pinned.partitions} == {2}
    placed = [each.group.group_id for each in spread.partitions]
    assert broker.assembly.cluster.partition_count == 8
    await broker.stop()
    again = await start_broker(lockstep_data_groups="2")
    assert await grown(again, "spread") == [0, 1, 2, 3, 4]
    assert await grown(again, "pinned") == [0, 1, 2]
    topic = again.assembly.cluster.topic("spread")
    assert topic is not None
    assert [each.group.group_id for each in topic.partitions] == placed


async def test_growth_that_could_not_be_done_leaves_the_topic_as_it_was(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(lockstep_data_groups="2", lockstep_max_partitions="5")
    topics = broker.assembly.topics
    topic = await topics.create(topics.plan("t", 1, 1, {}))

    async def busy(wanted: object) -> None:
        raise Backlogged("too much waits for the disk")

    for undone in (True, False):
        with monkeypatch.context() as patched:
            patched.setattr(broker.groups[1], "open_partitions", busy)
            if not undone:
                patched.setattr(broker.groups[2], "close_partitions", busy)
            with pytest.raises(RequestError):
                await topics.grow(topic, 4)
        assert len(topic.partitions) == 1
        entry = broker.assembly.cluster.image.topics[topic.topic_id]
        assert (entry.growing == []) == undone
    await topics.grow(topic, 5)  # what was left of the last try is in nobody's way
    assert await grown(broker, "t") == [0, 1, 2, 3, 4]
    await broker.stop()
    again = await start_broker(lockstep_data_groups="2")
    assert await grown(again, "t") == [0, 1, 2, 3, 4]


async def test_partitions_beyond_a_topics_last_are_closed_at_the_start(start_broker: StartBroker) -> None:
    broker = await start_broker()
    topics = broker.assembly.topics
    topic = await topics.create(topics.plan("t", 1, 1, {}))
    await broker.groups[1].open_partitions([(topic.topic_id, 1)])  # of a growth that group 0 has lost
    await broker.stop()
    again = await start_broker()
    assert await grown(again, "t") == [0]


async def test_growth_and_deletion_at_once(broker: Broker) -> None:
    topics, cluster = broker.assembly.topics, broker.assembly.cluster
    for first in ("grow", "delete"):
        topic = await topics.create(topics.plan("t", 1, 1, {}))
        both = [topics.grow(topic, 3), topics.delete(topic), topics.grow(topic, 4)]
        if first == "delete":
            both.reverse()
            both[0], both[1] = both[1], both[0]
        results: Any = await asyncio.gather(*both, return_exceptions=True)
        ended = {"grow": 1, "delete": 0}[first]
        assert results[ended] is None
        assert all(each is None or isinstance(each, RequestError) for each in results)
        assert cluster.topics() == []
        assert cluster.image.topics == {}
        assert cluster.partition_count == 0
        assert [each.local_id for each in broker.groups[1].partitions.values()] == [0]


async def test_internal_topics_do_not_grow(broker: Broker) -> None:
    topics = broker.assembly.topics
    topic = await topics.create(topics.plan("__consumer_offsets", -1, 1, {}))
    with pytest.raises(RequestError) as refused:
        await topics.grow(topic, 51)
    assert refused.value.error == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_data_without_their_metadata_are_refused_and_kept(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")
    await client.produce("t", batch(b"kept"))
    await broker.stop()
    metadata = tmp_path / "data" / "groups" / "0"
    metadata.rename(tmp_path / "saved")
    with pytest.raises(CannotStart, match=r"groups/0 is lost"):
        await start_broker()
    metadata.mkdir()
    for _ in range(2):
        words = r"is empty, but log group 1 holds partitions: groups/0 of the data directory was lost"
        with pytest.raises(StorageError, match=words):
            await start_broker()
    shutil.rmtree(metadata)
    (tmp_path / "saved").rename(metadata)
    again = await start_broker()
    client = await Client.connect(again.port)
    assert [record.value for record in records_of(await client.fetch("t", 0))] == [b"kept"]


async def test_partitions_that_a_power_loss_took_are_empty_where_nothing_was_flushed(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t", 2)
    for partition in (0, 1):
        await client.produce("t", batch(b"x"), partition)
    lost = broker.assembly.cluster.partition("t", 1)
    assert lost is not None
    await broker.groups[1].close_partitions([lost.log.local_id])  # of a deletion that group 0 has lost
    await broker.stop()
    with pytest.raises(StorageError, match=r"topic t has no partition 1 in the records of log group 1"):
        await start_broker(log_flush="always")
    again = await start_broker(log_flush="os")
    client = await Client.connect(again.port)
    assert [record.value for record in records_of(await client.fetch("t", 0, 0))] == [b"x"]
    assert (await client.fetch("t", 0, 1)).high_watermark == 0
    assert (await client.produce("t", batch(b"y"), 1)).base_offset == 0
    await again.stop()
    shutil.rmtree(tmp_path / "data" / "groups" / "1")
    with pytest.raises(StorageError, match=r"groups/1 of the data directory was lost"):
        await start_broker(log_flush="os")
