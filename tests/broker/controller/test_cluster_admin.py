"""Nodes come, go and come back: what `lockstep cluster` asks for, on brokers in this process."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from lockstep.broker.controller import cluster_admin
from lockstep.broker.membership.reconciler import RECONCILE_SECONDS
from lockstep.kafka_client import cluster as admin
from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerError
from lockstep.protocol.cluster_messages import (
    CLUSTER_API_KEY,
    LockstepClusterRequest,
    LockstepClusterResponse,
)
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from lockstep.protocol.records.batch import iter_headers
from lockstep.protocol.records.record import iter_records
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.wire import batch


def nodes(cluster: BrokerCluster) -> list[int]:
    """The nodes that are recorded."""
    return sorted(cluster.controller.assembly.cluster.image.nodes)


async def test_a_node_that_nobody_lists_registers(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(2, lockstep_data_groups="1")
    await cluster.settled()
    await cluster.start(3)
    await cluster.until(lambda: nodes(cluster) == [1, 2, 3], "third node")
    assert sorted(cluster.brokers[3].groups) == [0]


async def test_a_registered_node_comes_back_at_another_address(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    await cluster.stop(3)
    cluster.move(3)
    await cluster.start(3)
    port = cluster.brokers[3].settings.peers()[3].port

    def is_known() -> bool:
        image = cluster.controller.assembly.cluster.image
        return image.nodes[3].peer == ("127.0.0.1", port)

    await cluster.until(is_known, "new address")


# --- lockstep cluster ---------------------------------------------------------------------------------------


async def well(cluster: BrokerCluster) -> dict[str, Any]:
    """The status once all is well."""
    found: dict[str, Any] = {}

    async def is_well() -> bool:
        nonlocal found
        async with Client(cluster.bootstrap_servers) as client:
            found = await admin.status(client)
        return bool(found["healthy"])

    await cluster.until(is_well, "healthy cluster")
    return found


def voters(found: dict[str, Any], group: int) -> list[int]:
    """The nodes that vote in a group."""
    return [each["node"] for each in found["groups"][group]["voters"]]


async def write(cluster: BrokerCluster, values: list[bytes], partitions: int = 3) -> None:
    """Some records into each partition of topic t, which is made."""
    async with Client(cluster.bootstrap_servers) as client:
        topic = await client.create_topic("t", partitions=partitions)
        for index in range(partitions):
            for value in values:
                await client.produce(topic, index, batch(value))


async def read(cluster: BrokerCluster, partitions: int = 3) -> list[bytes]:
    """All of topic t; leaders may be moving."""
    found: list[bytes] = []

    async def is_read() -> bool:
        found.clear()
        try:
            found.extend(await read_once(cluster, partitions))
        except BrokerError as error:
            assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            return False
        return True

    await cluster.until(is_read, "answer of all leaders")
    return found


async def read_once(cluster: BrokerCluster, partitions: int) -> list[bytes]:
    async with Client(cluster.bootstrap_servers) as client:
        topic = await client.topic("t")
        found = []
        for index in range(partitions):
            (part,) = await client.fetch(topic, {index: 0})
            for at, _ in iter_headers(bytes(part.records)):
                found += [record.value or b"" for record in iter_records(bytes(part.records), at)]
        return found


def hosted(cluster: BrokerCluster) -> dict[int, list[int]]:
    """The groups that each node has."""
    return {node_id: sorted(broker.groups) for node_id, broker in sorted(cluster.brokers.items())}


def placed(cluster: BrokerCluster) -> dict[int, list[int]]:
    """The groups that each node should have; group 0 is everywhere."""
    placement = cluster.controller.assembly.cluster.image.placement
    return {
        node_id: [0, *(n for n, found in sorted(placement.items()) if n and node_id in found)]
        for node_id in sorted(cluster.brokers)
    }


async def test_the_status_of_three_nodes(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    found = await well(cluster)
    assert found["cluster_id"] == cluster.controller.assembly.cluster.cluster_id
    assert found["controller"] == cluster.leader_of(0)
    assert [each["node"] for each in found["nodes"]] == [1, 2, 3]
    for node in found["nodes"]:
        assert node["alive"]
        assert node["metadata"] == "voter"
        assert node["disk_full"] is False
        assert node["listeners"] == {"PLAINTEXT": f"127.0.0.1:{cluster.brokers[node['node']].port}"}
        assert node["peer"] == f"127.0.0.1:{cluster.settings(1).peers()[node['node']].port}"
    assert [each["group"] for each in found["groups"]] == [0, 1, 2, 3]
    for group in found["groups"]:
        assert sorted(group["placed"]) == voters(found, group["group"]) == [1, 2, 3]
        assert group["leader"] == cluster.leader_of(group["group"])
        assert group["commit_index"] > 0


async def test_a_full_disk_is_reported_by_every_node(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    await well(cluster)
    cluster.brokers[2].groups[1].installer._no_room_index = 1 << 60

    async def is_told(node: int) -> bool:
        async with Client(f"127.0.0.1:{cluster.brokers[node].port}") as client:
            found = await admin.status(client)
        assert found["answered_by"] == node
        return not found["healthy"] and [each["disk_full"] for each in found["nodes"]] == [False, True, False]

    for node in (1, 3):
        await cluster.until(partial(is_told, node), "word of a full disk")


async def test_writes_that_fail_are_reported_by_every_node_and_are_no_full_disk(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    await well(cluster)
    cluster.brokers[2].groups[1].log._maintenance._write_error = "7.index: [Errno 5] Input/output error"

    async def is_reported(node: int) -> bool:
        async with Client(f"127.0.0.1:{cluster.brokers[node].port}") as client:
            found = await admin.status(client)
        assert not any(each["disk_full"] for each in found["nodes"])
        failed = [each["write_failed"] for each in found["nodes"]]
        return not found["healthy"] and failed == [False, True, False]

    for node in (1, 3):
        await cluster.until(partial(is_reported, node), "report of failed writes")


async def test_a_status_without_a_majority_reports_what_is_unknown(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    await well(cluster)
    await cluster.stop(2, 3)
    async with Client(cluster.bootstrap_servers) as client:

        async def is_seen() -> bool:  # a lease lasts for a moment
            found = await admin.status(client)
            alive = [each["alive"] for each in found["nodes"]]
            return alive == [True, False, False] and not any(each["voters"] for each in found["groups"])

        await cluster.until(is_seen, "loss of two nodes")
        found = await admin.status(client)
        assert not found["healthy"]
        assert [(each["voters"], each["commit_index"]) for each in found["groups"]] == [(None, None)] * 2
        assert {each["metadata"] for each in found["nodes"]} == {"unknown"}
        with pytest.raises(BrokerError, match="there is no controller: of the nodes that elect it"):
            await admin.add(client, 1, 5)


async def test_a_fourth_node_comes_and_the_first_goes(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    await write(cluster, [b"one", b"two"])
    await cluster.start(4)
    await cluster.until(lambda: 4 in nodes(cluster), "fourth node")
    async with Client(cluster.bootstrap_servers) as client:
        done = await admin.add(client, 4, 30)
        assert 0 in done["groups"]
        assert len(done["groups"]) >= 3
        found = await well(cluster)
        for number in done["groups"]:
            assert 4 in voters(found, number)
        assert (await admin.add(client, 4, 30))["groups"] == done["groups"]  # again is harmless
        await cluster.until(lambda: hosted(cluster) == placed(cluster), "end of groups that moved away")

        await admin.transfer(client, 0, 1, 20)
        assert cluster.leader_of(0) == 1
        await admin.remove(client, 1, 60)
    await cluster.until(lambda: sorted(cluster.brokers[1].groups) == [0], "end of the drained groups")
    found = await well(cluster)
    assert [(each["node"], each["registered"]) for each in found["nodes"]] == [
        (1, False),  # asked, it tells of itself, too
        (2, True),
        (3, True),
        (4, True),
    ]
    assert {tuple(voters(found, number)) for number in range(4)} == {(2, 3, 4)}
    await cluster.stop(1)
    assert await read(cluster) == [b"one", b"two"] * 3


async def test_a_dead_node_is_removed(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    await write(cluster, [b"one"], 1)
    await well(cluster)
    await cluster.stop(3)
    async with Client(cluster.bootstrap_servers) as client:
        await admin.remove(client, 3, 30)
    found = await well(cluster)
    assert [each["node"] for each in found["nodes"]] == [1, 2]
    assert await read(cluster, 1) == [b"one"]


async def test_no_more_replicas_than_the_nodes_that_are_left(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    async with Client(cluster.bootstrap_servers) as client:
        assert len((await client.create_topic("before", replication=3)).partitions) == 1
        await well(cluster)
        await cluster.stop(3)
        await admin.remove(client, 3, 30)
        with pytest.raises(BrokerError, match=r"replication factor of 3 .* only 2 broker\(s\)") as refused:
            await client.create_topic("t", replication=3)
        assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert (await client.create_topic("t", replication=2)).name == "t"
        assert (await client.create_topic("u")).name == "u"


async def test_what_a_dead_voter_lacks_is_unknown_to_the_next_leader(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    await write(cluster, [b"one"], 1)
    await well(cluster)
    leading = cluster.leader_of(1)
    gone, heir = (node for node in cluster.brokers if node != leading)
    await cluster.stop(gone)
    async with Client(cluster.bootstrap_servers) as client:
        await admin.transfer(client, 1, heir, 20)
    lacks: list[tuple[int | None, int | None]] = []

    async def is_told() -> bool:
        async with Client(cluster.bootstrap_servers) as client:
            found = await admin.status(client)
        members = found["groups"][1]["voters"] or []
        lacks[:] = [(each["match_index"], each["lag"]) for each in members if each["node"] == gone]
        return bool(lacks)

    await cluster.until(is_told, "report of the next leader")
    assert lacks == [(None, None)]


async def told_by(cluster: BrokerCluster, node_id: int) -> tuple[list[int], set[int]]:
    """The brokers and the coordinators that a node tells clients of; -1 is none."""
    client = await cluster.client(node_id)
    told = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    asked = FindCoordinatorRequest(coordinator_keys=[f"group-{number}" for number in range(9)])
    found = await client.call(asked, 4)
    leaders = {part.leader_id for topic in told.topics for part in topic.partitions}
    assert node_id not in leaders | {told.controller_id}
    return [each.node_id for each in told.brokers], {each.node_id for each in found.coordinators}


async def test_a_node_that_was_removed_and_runs_on_sends_clients_to_the_others(
    start_cluster: StartCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    await write(cluster, [b"one"])
    await well(cluster)
    async with Client(cluster.bootstrap_servers) as client:
        await admin.remove(client, 3, 30)

    async def is_out() -> bool:
        brokers, coordinators = await told_by(cluster, 3)
        return brokers == [1, 2] and 3 not in coordinators

    await cluster.until(is_out, "answer that sends clients elsewhere")
    assert "node 3 was removed from the cluster and serves no clients any more" in caplog.text
    assert nodes(cluster) == [1, 2]


async def test_a_node_that_was_removed_while_it_was_down_serves_nobody(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    await write(cluster, [b"one"], 1)
    await well(cluster)
    await cluster.stop(3)
    async with Client(cluster.bootstrap_servers) as client:
        await admin.remove(client, 3, 30)
    await cluster.start(3)

    async def is_out() -> bool:
        brokers, coordinators = await told_by(cluster, 3)
        return brokers == [1, 2] and 3 not in coordinators

    await cluster.until(is_out, "answer that sends clients elsewhere")
    assert nodes(cluster) == [1, 2]


async def test_a_group_of_one_voter_grows_again(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_admin, "MIN_NODES", 1)
    cluster = await start_cluster(2, lockstep_data_groups="1")
    await cluster.settled()
    await write(cluster, [b"one"], 1)
    await well(cluster)
    async with Client(cluster.bootstrap_servers) as client:
        await admin.remove(client, 1, 30)
    await cluster.stop(1)
    await asyncio.sleep(3 * RECONCILE_SECONDS)  # keepers rest
    await cluster.start(3)
    await cluster.until(lambda: 3 in nodes(cluster), "third node")
    async with Client(cluster.bootstrap_servers) as client:
        await admin.add(client, 3, 20)
    assert await read(cluster, 1) == [b"one"]


async def test_a_node_that_lost_its_disk_comes_back_by_itself(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    await write(cluster, [b"one", b"two"])
    before = await well(cluster)
    await cluster.stop(2)
    cluster.wipe(2)
    await cluster.start(2)

    def member(found: dict[str, Any], group: int) -> int:
        member_ids = (each["member"] for each in found["groups"][group]["voters"] if each["node"] == 2)
        return int(next(member_ids))

    async def is_back() -> bool:
        found = await well(cluster)
        return all(member(found, each) != member(before, each) for each in range(4))

    await cluster.until(is_back, "second node with new members")
    await cluster.stop(3)
    assert await read(cluster) == [b"one", b"two"] * 3


async def test_leadership_goes_where_it_is_sent_and_stays(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    await well(cluster)
    async with Client(cluster.bootstrap_servers) as client:
        for node_id in (3, 2):
            await admin.transfer(client, 1, node_id, 20)
            assert cluster.leader_of(1) == node_id
            found = await admin.status(client)
            assert found["groups"][1]["preferred_leader"] == node_id


async def test_what_cannot_be_done_is_refused_in_words(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(2, lockstep_data_groups="1")
    await cluster.settled()
    await well(cluster)
    async with Client(cluster.bootstrap_servers) as client:
        for asked, words in (
            (admin.add(client, 9, 5), "node 9 is not registered: start it first"),
            (admin.remove(client, 9, 5), "there is no node 9"),
            (admin.transfer(client, 7, 1, 5), "there is no log group 7"),
            (admin.transfer(client, 1, 9, 5), "log group 1 has no part on node 9, but on"),
        ):
            with pytest.raises(BrokerError, match=words):
                await asked
        with pytest.raises(BrokerError, match="2 nodes hold all groups, 1 is one: add another first"):
            await admin.remove(client, 1, 5)


async def test_a_single_node_reports_its_status_and_rejects_the_rest(start_broker: StartBroker) -> None:
    broker = await start_broker()
    async with Client(broker.bootstrap_servers) as client:
        found = await admin.status(client)
        assert found["healthy"]
        assert [(each["group"], voters(found, each["group"])) for each in found["groups"]] == [
            (0, [1]),
            (1, [1]),
        ]
        assert found["nodes"][0]["listeners"] == {"PLAINTEXT": f"127.0.0.1:{broker.port}"}
        for asked in (admin.add(client, 2, 5), admin.remove(client, 1, 5), admin.transfer(client, 0, 1, 5)):
            with pytest.raises(BrokerError, match="this node is alone and stays so"):
                await asked


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"do": "dance"}',
        b'{"do": "add", "node": "4"}',
        b'{"do": "add"}',
        b"\xff",
        b"[" * 900,
    ],
)
async def test_an_invalid_request_is_rejected(start_broker: StartBroker, body: bytes) -> None:
    broker = await start_broker()
    async with Client(broker.bootstrap_servers) as client:
        connection = await client.any_broker()
        answer = await connection.call(LockstepClusterRequest(body=body), LockstepClusterResponse)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert bytes(answer.body) == b""


async def test_the_api_is_not_advertised_to_clients(start_broker: StartBroker) -> None:
    broker = await start_broker()
    async with Client(broker.bootstrap_servers) as client:
        connection = await client.any_broker()
        assert CLUSTER_API_KEY not in connection.versions
