"""Reading from followers (KIP-392): who is sent where, what a follower serves, and what it never does."""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import Any

import pytest

from lockstep.broker.controller.transfer_requests import TransferRequests
from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.broker.node.cluster_node import ClusterNode
from lockstep.broker.settings.kafka_names import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_cluster import DescribeClusterRequest
from lockstep.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from lockstep.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lockstep.protocol.messages.metadata import MetadataRequest
from lockstep.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lockstep.storage.log_group import LogGroup
from lockstep.storage.raft.messages import Message
from lockstep.storage.types import ReadResult
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.wire import Client, batch, fetch_request, records_of

GROUP = 1


async def racks(start_cluster: StartCluster, **texts: str) -> BrokerCluster:
    """Three nodes in three racks, one data group, whose leader stays."""
    cluster = await start_cluster(
        3,
        **{
            "broker_rack": "rack-{node}",
            "replica_selector_class": RACK_AWARE_SELECTOR,
            "lockstep_data_groups": "1",
            "auto_leader_rebalance_enable": "false",
            **texts,
        },
    )
    await cluster.settled()
    return cluster


def leader_of(cluster: BrokerCluster) -> int:
    leader = cluster.leader_of(GROUP)
    assert leader is not None
    return leader


def followers_of(cluster: BrokerCluster) -> list[int]:
    return [node_id for node_id in sorted(cluster.brokers) if node_id != leader_of(cluster)]


def copy_on(cluster: BrokerCluster, node_id: int) -> Partition:
    """What a node has of partition 0 of topic t."""
    found = cluster.brokers[node_id].assembly.cluster.partition("t", 0)
    assert found is not None
    return found


async def with_records(cluster: BrokerCluster, *values: bytes) -> Client:
    """A connection to the leader of topic t, which is everywhere and holds these, each in its own batch."""
    client = await cluster.client(leader_of(cluster))
    await client.create("t")
    for value in values:
        assert (await client.produce("t", batch(value))).error_code == 0
    await everywhere(cluster, len(values))
    return client


async def everywhere(cluster: BrokerCluster, offset: int, *but: int) -> None:
    """Wait until every node that runs has committed so much of topic t."""

    def reached() -> bool:
        topics = [b.assembly.cluster.topic("t") for n, b in cluster.brokers.items() if n not in but]
        return all(
            t is not None and t.partitions[0].is_here and t.partitions[0].log.high_watermark >= offset
            for t in topics
        )

    await cluster.until(reached, "copy of everything")


async def fetched(client: Client, offset: int, version: int = 12, **options: Any) -> PartitionData:
    response = await client.call(asked(offset, **options), version)
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def asked(offset: int, **options: Any) -> FetchRequest:
    options.setdefault("session_epoch", -1)
    return fetch_request({"t": {0: offset}}, **options)


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for record in records_of(data)]


# --- who is sent where ------------------------------------------------------------------------------------


async def test_racks_are_reported_and_consumers_are_sent_to_theirs(start_cluster: StartCluster) -> None:
    cluster = await racks(start_cluster)
    client = await with_records(cluster, b"a")
    leader, (near, far) = leader_of(cluster), followers_of(cluster)
    wanted = {node_id: f"rack-{node_id}" for node_id in cluster.brokers}
    for node_id in cluster.brokers:
        other = await cluster.client(node_id)
        described = await other.call(DescribeClusterRequest(endpoint_type=1), 2)
        assert {each.broker_id: each.rack for each in described.brokers} == wanted
        metadata = await other.call(MetadataRequest(topics=[]), 12)
        assert {each.node_id: each.rack for each in metadata.brokers} == wanted
    for node_id in (near, far):
        began = time.monotonic()
        data = await fetched(client, 1, rack_id=f"rack-{node_id}", max_wait_ms=10_000)
        assert time.monotonic() - began < 5, "said at once"
        assert (data.error_code, data.preferred_read_replica, values(data)) == (0, node_id, [])
        assert (data.high_watermark, data.log_start_offset) == (1, 0)
    for rack in ("", "elsewhere", f"rack-{leader}"):
        data = await fetched(client, 0, rack_id=rack)
        assert (data.preferred_read_replica, values(data)) == (-1, [b"a"]), rack
    beyond = await fetched(client, 2, rack_id=f"rack-{near}")
    assert (beyond.error_code, beyond.preferred_read_replica) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    near_client = await cluster.client(near)
    data = await fetched(near_client, 0, rack_id=f"rack-{far}")
    assert (data.preferred_read_replica, values(data)) == (-1, [b"a"]), "only the leader sends anybody away"


@pytest.mark.parametrize("selector", [None, LEADER_SELECTOR])
async def test_without_the_selector_the_leader_serves_every_rack(
    start_cluster: StartCluster, selector: str | None
) -> None:
    texts = {} if selector is None else {"replica_selector_class": selector}
    cluster = await start_cluster(3, broker_rack="rack-{node}", lockstep_data_groups="1", **texts)
    await cluster.settled()
    client = await with_records(cluster, b"a")
    data = await fetched(client, 0, rack_id=f"rack-{followers_of(cluster)[0]}")
    assert (data.preferred_read_replica, values(data)) == (-1, [b"a"])


async def test_a_session_gets_the_preferred_replica_each_time(start_cluster: StartCluster) -> None:
    cluster = await racks(start_cluster)
    client = await with_records(cluster, b"a")
    near = followers_of(cluster)[0]
    first = await client.call(asked(1, rack_id=f"rack-{near}", session_epoch=0), 12)
    assert first.session_id
    again = FetchRequest(
        session_id=first.session_id, session_epoch=1, rack_id=f"rack-{near}", max_wait_ms=5_000, min_bytes=1
    )
    second: FetchResponse = await client.call(again, 12)
    assert [each.partitions[0].preferred_read_replica for each in second.responses] == [near]


# --- what a follower serves -------------------------------------------------------------------------------


async def test_a_follower_serves_its_copy_to_newer_versions(start_cluster: StartCluster) -> None:
    cluster = await racks(start_cluster)
    leading = await with_records(cluster, b"a", b"b", b"c")
    client = await cluster.client(followers_of(cluster)[0])
    topic = cluster.controller.assembly.cluster.topic("t")
    assert topic is not None
    for version in range(4, 19):
        request = asked(1)
        request.topics[0].topic_id = topic.topic_id
        data = (await client.call(request, version)).responses[0].partitions[0]
        if version < 11:
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, version
            continue
        assert (data.error_code, values(data), data.high_watermark) == (0, [b"b", b"c"], 3), version
        assert data.last_stable_offset == 3
    theirs, ours = await fetched(leading, 0), await fetched(client, 0)
    assert theirs.records == ours.records != b""
    assert (await fetched(client, 0, replica_id=2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_what_a_follower_refuses(start_cluster: StartCluster) -> None:
    cluster = await racks(start_cluster)
    leading = await with_records(cluster, b"a", b"b")
    follower = followers_of(cluster)[0]
    client = await cluster.client(follower)
    epoch = cluster.brokers[follower].groups[GROUP].term
    for told, error in (
        (epoch, ErrorCode.NONE),
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        assert (await fetched(client, 0, current_leader_epoch=told)).error_code == error
    for offset, error in ((3, ErrorCode.OFFSET_NOT_AVAILABLE), (-1, ErrorCode.OFFSET_OUT_OF_RANGE)):
        data = await fetched(client, offset, max_wait_ms=50)
        assert (data.error_code, data.high_watermark) == (error, -1)
    number = copy_on(cluster, leader_of(cluster)).log.local_id
    await cluster.brokers[leader_of(cluster)].groups[GROUP].advance_log_starts({number: 1})
    await cluster.until(lambda: copy_on(cluster, follower).log.log_start_offset == 1, "log start")
    assert (await fetched(client, 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values(await fetched(client, 1)) == [b"b"]
    end = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])
    ended = OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(leader_epoch=epoch)])
    for request, version in (
        (ListOffsetsRequest(topics=[end]), 7),
        (OffsetForLeaderEpochRequest(topics=[ended]), 4),
    ):
        for asks, error in ((client, ErrorCode.NOT_LEADER_OR_FOLLOWER), (leading, ErrorCode.NONE)):
            (topic,) = (await asks.call(request, version)).topics
            assert topic.partitions[0].error_code == error


async def test_a_node_without_a_copy_serves_nothing(start_cluster: StartCluster) -> None:
    cluster = await racks(start_cluster)
    client = await with_records(cluster, b"a")
    await cluster.start(4)
    await cluster.settled()
    await cluster.until(
        lambda: cluster.brokers[4].assembly.cluster.topic("t") is not None, "topic on the fourth node"
    )
    assert not copy_on(cluster, 4).is_here
    data = await fetched(await cluster.client(4), 0)
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await fetched(client, 0, rack_id="rack-4")).preferred_read_replica == -1


async def test_a_follower_without_what_came_in_the_place_of_records_serves_nothing(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await racks(start_cluster)
    leading = await with_records(cluster, b"a")
    follower = followers_of(cluster)[0]

    def hide() -> None:
        """As where it gave up files for a checkpoint that finds no room."""
        group = cluster.brokers[follower].groups[GROUP]
        group.log.expect_whole_at(group.applied_index + 1)

    hide()
    assert (await fetched(await cluster.client(follower), 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await cluster.stop(follower)
    await cluster.start(follower)
    await everywhere(cluster, 1)
    client = await cluster.client(follower)
    assert (await fetched(client, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await leading.produce("t", batch(b"b"))
    await everywhere(cluster, 2)
    assert values(await fetched(client, 0)) == [b"a", b"b"]

    read_cold = LogGroup.read_cold

    async def freed_meanwhile(self: LogGroup, *arguments: Any) -> ReadResult:
        hide()
        return await read_cold(self, *arguments)

    monkeypatch.setattr(LogGroup, "read", lambda *_: ReadResult([], 0, cold=True))
    monkeypatch.setattr(LogGroup, "read_cold", freed_meanwhile)
    data = await fetched(client, 0)
    assert (data.error_code, values(data)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])


# --- long polls -------------------------------------------------------------------------------------------


async def test_a_long_poll_at_a_follower_ends_when_it_learns_of_a_commit(
    start_cluster: StartCluster,
) -> None:
    cluster = await racks(start_cluster)
    leading = await with_records(cluster, b"a")
    client = await cluster.client(followers_of(cluster)[0])
    session = (await client.call(asked(0, session_epoch=0), 12)).session_id
    for epoch, value in enumerate((b"b", b"c"), 1):
        request = asked(epoch, session_epoch=epoch, session_id=session, max_wait_ms=15_000)
        waiting = asyncio.ensure_future(client.call(request, 12))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await leading.produce("t", batch(value))
        data = (await asyncio.wait_for(waiting, 5)).responses[0].partitions[0]
        assert (data.error_code, values(data), data.high_watermark) == (0, [value], epoch + 1)
    idle = FetchRequest(session_id=session, session_epoch=3, max_wait_ms=10, min_bytes=1)
    idle.topics = asked(3).topics
    assert (await client.call(idle, 12)).responses == [], "nothing that the session does not know"


async def test_a_consumer_ahead_of_a_follower_waits_for_it(start_cluster: StartCluster) -> None:
    cluster = await racks(start_cluster)
    leading = await with_records(cluster, b"a")
    client = await cluster.client(followers_of(cluster)[0])
    waiting = asyncio.ensure_future(fetched(client, 2, max_wait_ms=15_000))
    await asyncio.sleep(0.1)
    for value in (b"b", b"c"):
        assert not waiting.done()
        await leading.produce("t", batch(value))
    assert values(await asyncio.wait_for(waiting, 5)) == [b"c"]


async def test_a_long_poll_ends_when_the_follower_leads_and_when_its_topic_goes(
    start_cluster: StartCluster,
) -> None:
    cluster = await racks(start_cluster)
    await with_records(cluster, b"a")
    before, heir = leader_of(cluster), followers_of(cluster)[0]
    client, epoch = await cluster.client(heir), cluster.brokers[heir].groups[GROUP].term
    waiting = asyncio.ensure_future(fetched(client, 1, current_leader_epoch=epoch, max_wait_ms=15_000))
    await asyncio.sleep(0.1)
    await TransferRequests(cluster.brokers[before].assembly.peer_rpc).begin(GROUP, heir)
    data = await asyncio.wait_for(waiting, 10)
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    await cluster.until(lambda: cluster.leader_of(GROUP) == heir, "new leader")
    other = await cluster.client(before)
    waiting = asyncio.ensure_future(fetched(other, 1, max_wait_ms=15_000))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    topic = cluster.controller.assembly.cluster.topic("t")
    assert topic is not None
    await cluster.controller.assembly.topics.delete(topic)
    assert (await asyncio.wait_for(waiting, 10)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_long_poll_ends_when_the_copy_is_given_up(start_cluster: StartCluster) -> None:
    cluster = await racks(start_cluster)
    await with_records(cluster, b"a")
    follower = followers_of(cluster)[0]
    client, parts = await cluster.client(follower), cluster.brokers[follower].assembly
    waiting = asyncio.ensure_future(fetched(client, 1, max_wait_ms=15_000))
    await asyncio.sleep(0.1)
    assert parts.node is not None
    parts.node.stop()
    await parts.local_groups.remove(GROUP, parts.cluster, parts.consumer_groups, parts.transactions)
    assert (await asyncio.wait_for(waiting, 5)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- what a follower never does ---------------------------------------------------------------------------


async def test_a_follower_that_is_cut_off_serves_what_is_committed_and_sends_the_rest_away(
    start_cluster: StartCluster,
) -> None:
    cluster = await racks(start_cluster)
    leading = await with_records(cluster, b"a", b"b")
    cut, other = followers_of(cluster)
    peer_rpc = cluster.brokers[cut].assembly.peer_rpc
    assert peer_rpc is not None
    peer_rpc.open = False  # Raft neither hears nor is heard
    for value in (b"c", b"d"):
        assert (await leading.produce("t", batch(value))).error_code == 0
    await everywhere(cluster, 4, cut)
    client = await cluster.client(cut)
    data = await fetched(client, 0)
    assert (values(data), data.high_watermark) == ([b"a", b"b"], 2)
    group = cluster.brokers[cut].groups[GROUP]
    await cluster.until(lambda: group.leader_id == -1, "loss of the leader")
    data = await fetched(client, 0)
    assert (values(data), data.high_watermark) == ([b"a", b"b"], 2), "what is committed stays readable"
    for offset in (2, 4):
        assert (await fetched(client, offset, max_wait_ms=50)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    data = await fetched(leading, 0, rack_id=f"rack-{cut}")
    assert (data.preferred_read_replica, values(data)) == (-1, [b"a", b"b", b"c", b"d"])
    assert (await fetched(leading, 0, rack_id=f"rack-{other}")).preferred_read_replica == other
    peer_rpc.open = True
    await everywhere(cluster, 4)
    assert values(await fetched(client, 2)) == [b"c", b"d"]
    await cluster.until(lambda: _is_preferred(leading, cut), "follower that is preferred again")


async def _is_preferred(leading: Client, node_id: int) -> bool:
    return (await fetched(leading, 0, rack_id=f"rack-{node_id}")).preferred_read_replica == node_id


async def test_the_high_watermark_of_a_follower_never_goes_back_over_a_crash(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await racks(start_cluster)
    leading = await with_records(cluster, b"a")
    crashed = followers_of(cluster)[0]
    await cluster.brokers[crashed].groups[GROUP]._replica.write_last_checkpoint()
    for value in (b"b", b"c"):
        await leading.produce("t", batch(value))
    await everywhere(cluster, 3)
    assert (await fetched(await cluster.client(crashed), 0)).high_watermark == 3
    directory, image = cluster.directory / str(crashed), cluster.directory / "crashed"
    shutil.copytree(directory, image)  # as kill -9 leaves it: what was committed since is not known
    await cluster.stop(crashed)
    cluster.wipe(crashed)
    image.rename(directory)

    hears = False
    receive = ClusterNode.receive

    def received(node: ClusterNode, number: int, message: Message) -> None:
        others = [broker.assembly.node for each, broker in cluster.brokers.items() if each != crashed]
        if hears or number != GROUP or node in others:
            receive(node, number, message)

    monkeypatch.setattr(ClusterNode, "receive", received)
    await cluster.start(crashed)
    await cluster.until(
        lambda: cluster.brokers[crashed].assembly.cluster.topic("t") is not None, "topic on the node"
    )
    client, log = await cluster.client(crashed), copy_on(cluster, crashed).log
    assert (copy_on(cluster, crashed).is_here, log.high_watermark, log.next_offset) == (True, 1, 3)
    assert (await fetched(client, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    hears = True
    await everywhere(cluster, 3)
    data = await fetched(client, 0)
    assert (values(data), data.high_watermark) == ([b"a", b"b", b"c"], 3)
