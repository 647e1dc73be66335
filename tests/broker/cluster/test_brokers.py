"""The fixture of clusters itself: nodes find each other, one stops and comes back, one loses its disk."""

from __future__ import annotations

import asyncio
import socket

import pytest

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.log.checkpoint_file import PREFIX
from lockstep.storage.log.segment_files import segment_name
from lockstep.storage.log.state_file import SLOT_BYTES, STATE_NAME
from lockstep.storage.log_group import LogGroup
from lockstep.storage.peers.network import PeerNetwork
from lockstep.storage.peers.outgoing import CONNECTION_REFUSED
from tests.broker.conftest import StartCluster
from tests.broker.wire import batch, fetch_request, frame


async def test_three_nodes_find_each_other(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    for broker in cluster.brokers.values():
        assert sorted(broker.groups) == [0, 1, 2, 3]
    assert cluster.controller is cluster.brokers[cluster.leader_of(METADATA_GROUP) or 0]


async def test_a_stop_hands_over_before_a_slow_client_has_taken_its_answer(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1", lockstep_shutdown_timeout_ms="60000")
    await cluster.settled()
    leading, writer = await cluster.create("t")
    for _ in range(80):
        assert (await writer.produce("t", batch(bytes(150_000)))).error_code == ErrorCode.NONE
    request = frame(fetch_request({"t": {0: 0}}, max_bytes=50 << 20, partition_max_bytes=50 << 20), 12)
    reader, held = socket.socket(), 0
    with reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        reader.connect(("127.0.0.1", cluster.brokers[leading].port))
        reader.setblocking(False)
        reader.send(request)
        connections = cluster.brokers[leading].assembly.connections
        await cluster.until(lambda: any(each.is_busy for each in connections._open), "an answer")
        stopping = asyncio.ensure_future(cluster.stop(leading))
        await asyncio.wait_for(
            cluster.until(lambda: cluster.leader_of(1) not in (None, leading), "a leader"), 5
        )
        assert not stopping.done()
        while chunk := await asyncio.get_running_loop().sock_recv(reader, 1 << 20):
            held += len(chunk)
        await stopping
    assert held > 80 * 150_000, "what was answered is sent to its end"


async def test_a_node_comes_back_and_another_loses_its_disk(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    port = cluster.brokers[2].port
    await cluster.stop(2)
    await cluster.start(2)
    assert cluster.brokers[2].port == port
    await cluster.settled()
    await cluster.stop(3)
    cluster.wipe(3)
    await cluster.start(3)
    await cluster.settled()
    assert 3 in cluster.controller.assembly.cluster.image.nodes


async def test_corruption_in_a_nodes_log_is_reported_and_repaired(
    start_cluster: StartCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1", log_flush="always")
    await cluster.settled()
    leading, writer = await cluster.create("t")

    def alike() -> bool:
        return len({broker.groups[1].log.last_index for broker in cluster.brokers.values()}) == 1

    for _ in range(4):  # what comes in a write of its own says that what is before it was flushed
        assert (await writer.produce("t", batch(bytes(20_000)))).error_code == ErrorCode.NONE
        await cluster.until(alike, "nodes that have the same")
    damaged = next(each for each in (1, 2, 3) if each != leading)
    await cluster.stop(damaged)
    directory = cluster.directory / str(damaged) / "groups" / "1"
    for checkpoint in directory.glob(f"{PREFIX}*"):
        checkpoint.unlink()  # below the newest one nothing is looked at again at a start
    with (directory / segment_name(1)).open("r+b") as segment:
        segment.seek(10_000)
        segment.write(b"\xff" * 64)
    await cluster.start(damaged)
    assert [each for each in caplog.messages if each.startswith("log group 1 is damaged at ")]
    await cluster.settled()
    await cluster.stop(damaged)
    (directory / STATE_NAME).write_bytes(bytes(2 * SLOT_BYTES))
    await cluster.start(damaged)
    assert [each for each in caplog.messages if each.startswith("log group 1: its state is damaged")]
    await cluster.settled()
    await cluster.until(alike, "nodes that have the same")


async def test_a_leader_in_contact_has_not_ended_though_its_port_refuses(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is not over: another leader beside it would be believed, too."""
    cluster = await start_cluster(3, lockstep_data_groups="1", auto_leader_rebalance_enable="false")
    await cluster.settled()
    leader = cluster.leader_of(1)
    assert leader is not None
    follower = next(each for each in (1, 2, 3) if each != leader)
    gone: list[int] = []
    monkeypatch.setattr(LogGroup, "on_node_stopped", lambda group, node_id: gone.append(node_id))
    led, followed = network_of(cluster.brokers[leader]), network_of(cluster.brokers[follower])
    for server in led._servers:
        server.close()
    for (node_id, _), incoming in list(led._incoming.items()):
        if node_id == follower:
            incoming.abort()
    await cluster.until(lambda: followed._peers[leader].control.problem == CONNECTION_REFUSED, "refusal")
    assert gone == []
    await cluster.stop(leader)
    await cluster.until(lambda: leader in gone, "end of the leader")


def network_of(broker: Broker) -> PeerNetwork:
    assert broker.assembly.peer_rpc is not None
    return broker.assembly.peer_rpc.network
