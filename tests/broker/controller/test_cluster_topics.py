"""Topics whose making or ending was interrupted: controllers change, log groups have no leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from lockstep.broker.controller.partition_commands import MAX_PENDING_COMMANDS
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.metadata.metadata_image import TopicState
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.peers.limits import PeerLimits
from lockstep.storage.types import NotLeader
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.wire import batch, records_of
from tests.storage.loop_time import nobody_is_silent


@pytest.fixture(autouse=True)
async def clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Leaders change where a test says so, also on a machine that is too busy for heartbeats."""
    async with nobody_is_silent(monkeypatch):
        yield


async def lead_metadata(cluster: BrokerCluster, node_id: int) -> Broker:
    """Have a node be the controller."""
    wanted = cluster.brokers[node_id]
    await cluster.led_by(METADATA_GROUP, node_id)
    await cluster.until(lambda: wanted.assembly.topics.leads, f"controller {node_id}")
    return wanted


async def without_balance(start_cluster: StartCluster) -> BrokerCluster:
    cluster = await start_cluster(3, auto_leader_rebalance_enable="false")
    await cluster.settled()
    return cluster


async def test_what_a_later_controller_finished_is_not_undone(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that leads again goes on where it was; the topic has records by then."""
    cluster = await without_balance(start_cluster)
    first = await lead_metadata(cluster, 1)
    held = asyncio.Event()

    async def no_leader(*command: object) -> None:
        await held.wait()
        raise NotLeader("nobody is known to lead the group")

    topics = first.assembly.topics
    with monkeypatch.context() as patched:
        patched.setattr(topics.commands, "open", no_leader)
        making = asyncio.ensure_future(topics.create(topics.plan("t", 1, 1, {})))
        image = first.assembly.cluster.image
        await cluster.until(lambda: bool(image.topics), "intent")
    second = await lead_metadata(cluster, 2)
    await cluster.until(lambda: second.assembly.cluster.topic("t") is not None, "topic")
    partition = second.assembly.cluster.partition("t", 0)
    assert partition is not None
    number = next(iter(image.topics.values())).groups[0]
    leader = cluster.leader_of(number)
    assert leader is not None
    client = await cluster.client(leader)
    answer = await client.produce("t", batch(b"acknowledged"))
    assert answer.error_code == 0
    await lead_metadata(cluster, 1)
    held.set()
    with pytest.raises(RequestError):
        await making
    await asyncio.sleep(0.2)
    assert [each.state for each in image.topics.values()] == [TopicState.READY]
    data = await client.fetch("t", 0)
    assert [each.value for each in records_of(data)] == [b"acknowledged"]


@pytest.mark.parametrize("stuck", ["forget", "close"])
async def test_a_name_is_taken_until_nothing_is_left_of_its_topic(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    """A new topic would have the old one's offsets, and who lags would write into the old one's log."""
    cluster = await without_balance(start_cluster)
    first = await lead_metadata(cluster, 1)
    client = await cluster.client(1)
    await client.create("t", 3)

    async def no_leader(*command: object) -> None:
        raise NotLeader("nobody is known to lead the group")

    with monkeypatch.context() as patched:
        for broker in cluster.brokers.values():
            patched.setattr(broker.assembly.topics.commands, stuck, no_leader)
        topic = first.assembly.cluster.topic("t")
        assert topic is not None
        await first.assembly.topics.delete(topic)
        for node_id in (1, 2):
            controller = await lead_metadata(cluster, node_id)
            await asyncio.sleep(0.1)
            with pytest.raises(RequestError) as refused:
                controller.assembly.topics.plan("t", 1, 1, {})
            assert refused.value.error is ErrorCode.TOPIC_ALREADY_EXISTS

    image = cluster.controller.assembly.cluster.image
    await cluster.until(lambda: not image.topics, "end of the topic")
    await client.create("t", 1)
    assert [entry.state for entry in image.topics.values()] == [TopicState.READY]


async def test_one_group_without_a_leader_does_not_keep_other_topics_half_done(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await without_balance(start_cluster)
    controller = await lead_metadata(cluster, 1)
    topics = controller.assembly.topics
    closes = topics.commands.close

    async def not_in_the_second(number: int, topic_id: bytes) -> None:
        if number == 2:
            raise NotLeader("nobody is known to lead group 2")
        await closes(number, topic_id)

    async def nowhere(*command: object) -> None:
        raise NotLeader("nobody is known to lead the group")

    with monkeypatch.context() as patched:
        patched.setattr(topics.commands, "open", nowhere)
        patched.setattr(topics.commands, "forget", nowhere)
        for name, group in (("stuck", "2"), ("free", "1")):
            with pytest.raises(RequestError):
                await topics.create(topics.plan(name, 1, 1, {"lockstep.group": group}))
    with monkeypatch.context() as patched:
        patched.setattr(topics.commands, "close", not_in_the_second)
        left = controller.assembly.cluster.image.topics
        await cluster.until(lambda: [each.name for each in left.values()] == ["stuck"], "end of the other")


async def test_many_topics_at_once(start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a node answers questions of one peer; each is waited for as long as it takes."""
    for name in ("QUEUE_TIMEOUT_SECONDS", "COMMAND_TIMEOUT_SECONDS"):
        monkeypatch.setattr(f"lockstep.broker.controller.partition_commands.{name}", 3600.0)
    cluster = await without_balance(start_cluster)
    controller = await lead_metadata(cluster, 1)
    await cluster.led_by(1, 2)
    topics = controller.assembly.topics
    count = PeerLimits().max_requests + 50
    plans = [topics.plan(f"t{each}", 1, 1, {"lockstep.group": "1"}) for each in range(count)]
    made = await asyncio.gather(*map(topics.create, plans))
    assert len({topic.topic_id for topic in made}) == count


async def test_an_overloaded_node_gets_the_request_again(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await without_balance(start_cluster)
    await lead_metadata(cluster, 1)
    monkeypatch.setattr(cluster.brokers[1].assembly.peer_rpc.network, "limits", PeerLimits(max_requests=1))  # type: ignore[union-attr]
    ids = cluster.brokers[2].assembly.producer_ids
    blocks = await asyncio.gather(*(ids._block() for _ in range(8)))
    assert len(set(blocks)) == 8


async def test_commands_to_a_group_without_a_leader_do_not_pile_up(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await without_balance(start_cluster)
    commands = cluster.brokers[1].assembly.topics.commands
    monkeypatch.setattr("lockstep.broker.controller.partition_commands.QUEUE_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr("lockstep.broker.controller.partition_commands.COMMAND_TIMEOUT_SECONDS", 3600.0)
    nowhere = 99
    work = [
        asyncio.ensure_future(commands.close(nowhere, bytes(16))) for _ in range(3 * MAX_PENDING_COMMANDS)
    ]
    await cluster.until(
        lambda: sum(each.done() for each in work) == 2 * MAX_PENDING_COMMANDS, "end of what waits"
    )
    for each in [each for each in work if each.done()]:
        with pytest.raises(NotLeader, match="too many commands wait"):
            await each
    for each in work:
        each.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    monkeypatch.setattr("lockstep.broker.controller.partition_commands.COMMAND_TIMEOUT_SECONDS", 0.1)
    with pytest.raises(NotLeader, match="known"):
        await commands.close(nowhere, bytes(16))
