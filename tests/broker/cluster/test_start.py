"""The first start of a cluster, and of nodes that come to it later or again."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import uvloop

from compat_tests.probe import free_port
from lockstep.broker import server
from lockstep.broker.main import ready_line
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.network.listeners import connection_limit
from lockstep.broker.node.data_directory import DataDirectory
from lockstep.broker.node.local_groups import LocalGroups
from lockstep.broker.peers import quorum_watch
from lockstep.broker.server import Broker, CannotStart
from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.properties import ConfigError
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.kafka_client import cluster as admin
from lockstep.kafka_client.client import Client
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_cluster import DescribeClusterRequest
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from lockstep.storage.log_group import LogGroup
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.types import StorageFull
from tests.broker.cluster.brokers import SMALL, BrokerCluster
from tests.broker.conftest import StartBroker, StartCluster, small_settings
from tests.broker.waiting import until
from tests.broker.wire import batch, records_of
from tests.support.cases import each_case

WAITS = "a majority of the nodes that elect the controller (1 of 3 reached)"


async def test_alone_among_three_a_node_answers_retriable_errors(tmp_path: Path) -> None:
    """It opens its Kafka listener and creates its data directory before a quorum exists."""
    cluster = BrokerCluster(tmp_path)
    await cluster.start(1)
    try:
        assert (tmp_path / "1" / "meta.properties").exists()
        client = await cluster.client(1)
        response = await client.call(MetadataRequest(topics=[]), 9)
        assert [each.node_id for each in response.brokers] == [1]
        assert (response.controller_id, response.cluster_id, response.topics) == (-1, None, [])
        named = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        (topic,) = (await client.call(named, 9)).topics
        assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        with pytest.raises(EOFError):  # none that it could name would be all there are
            await (await cluster.client(1)).call(MetadataRequest(topics=None), 9)
        described = await client.call(DescribeClusterRequest(), 0)
        assert [each.broker_id for each in described.brokers] == [1]
        refused = await client.produce("t", batch(b"a"))
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert cluster.brokers[1].groups == {}
    finally:
        await cluster.close()


async def test_peers_that_are_not_reached_are_named_with_the_reason(
    tmp_path: Path,
    start_broker: StartBroker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A closed port, and the likeliest mistake: a port for clients."""
    monkeypatch.setattr(quorum_watch, "TIMEOUT_SECONDS", 1.0)
    cluster = BrokerCluster(tmp_path / "cluster")
    cluster._peers[3] = (await start_broker()).port
    await cluster.start(1)
    try:
        assert cluster.brokers[1].waits_for == WAITS
        await until(
            lambda: f"waiting for {WAITS}" in caplog.text and "(no response yet)" not in caplog.text, 20.0
        )
        second = f"node 2 at 127.0.0.1:{cluster._peers[2]} (connection refused: nothing listens there)"
        third = f"node 3 at 127.0.0.1:{cluster._peers[3]} (what listens there is not a replication listener"
        assert "a node takes this port for a replication listener: its --peers names the wrong" in caplog.text
        assert second in caplog.text
        assert third in caplog.text
        async with Client(cluster.bootstrap_servers) as client:
            lacking = (await admin.status(client))["waits_for_majority"]
        assert [each["node"] for each in lacking["unreached"]] == [2, 3]
        assert (lacking["reached"], lacking["voters"]) == (1, [1, 2, 3])
        await cluster.start(2)
        await until(lambda: cluster.brokers[1].missing_majority == "", 20.0)
        async with Client(cluster.bootstrap_servers) as client:
            assert (await admin.status(client))["waits_for_majority"] is None
    finally:
        await cluster.close()


async def test_the_ready_line_counts_the_nodes_that_are_reached(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was printed before the first connection was up, and counted this node alone."""
    monkeypatch.setattr(server, "REACH_SECONDS", 60.0)
    cluster = await start_cluster(3)
    await cluster.settled()
    await cluster.stop(3)
    await cluster.start(3)
    await cluster.brokers[3].wait_until_serving()
    assert " ready, serving clients on " in ready_line(cluster.brokers[3])


async def test_a_majority_without_leaders_is_not_ready(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A founding or an election takes seconds after the nodes have reached each other."""
    cluster = await start_cluster(3)
    await cluster.settled()
    broker = cluster.brokers[1]
    monkeypatch.setattr(broker.assembly.nodes, "live_leader_of", lambda group_id: -1 if group_id else 1)
    monkeypatch.setattr(server, "REACH_SECONDS", 0.05)
    await broker.wait_until_serving()
    line = ready_line(broker)
    assert " started, listening for clients on " in line and " ready" not in line
    assert ", waits for a leader of log group 1" in line
    monkeypatch.setattr(type(broker), "groups", {})
    assert ready_line(broker).endswith(", waits for the other nodes, which found the cluster or add this one")


async def test_the_ready_line_of_a_node_without_the_others_names_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REACH_SECONDS", 60.0)
    cluster = BrokerCluster(tmp_path / "cluster")
    await cluster.start(1)
    try:
        await cluster.brokers[1].wait_until_serving()
        assert " ready" not in ready_line(cluster.brokers[1])
        assert ready_line(cluster.brokers[1]).endswith(", waits for " + WAITS)
        quorum = cluster.brokers[1].assembly.quorum
        assert quorum is not None and quorum.has_contacted_voters()
    finally:
        await cluster.close()


@pytest.mark.parametrize("failing", ["open a log group", "remember the part"])
async def test_a_founder_without_room_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    failures = 2
    open_group, take_part = LocalGroups.open, DataDirectory.record_part

    def fail() -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")

    async def opened(hosting: LocalGroups, number: int, founders: tuple[int, ...] = ()) -> LogGroup:
        if number == 1 and failing == "open a log group":
            fail()
        return await open_group(hosting, number, founders)

    def taken(directory: DataDirectory, part: str) -> None:
        if failing == "remember the part":
            fail()
        take_part(directory, part)

    monkeypatch.setattr(LocalGroups, "open", opened)
    monkeypatch.setattr(DataDirectory, "record_part", taken)
    cluster = BrokerCluster(tmp_path, 2, lockstep_data_groups="1")
    try:
        await cluster.start()
        await cluster.settled()
    finally:
        await cluster.close()
    assert failures == 0
    assert caplog.text.count("taking part in the cluster has to wait: [Errno 28] No space left") >= 1


async def test_clients_leave_open_files_to_the_groups_of_a_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (4096, 4096))
    cluster = BrokerCluster(tmp_path)

    def limits() -> list[int]:
        return [broker.assembly.connections.max_connections for broker in cluster.brokers.values()]

    try:
        await cluster.start(1)
        assert cluster.brokers[1].groups == {}
        wanted = connection_limit(cluster.brokers[1].settings.max_connections, 4)
        assert limits() == [wanted], "it does not know of them yet"
        await cluster.start(2, 3)
        await cluster.settled()
        assert limits() == [wanted] * 3
        await cluster.stop()
        await cluster.start()
        assert limits() == [wanted] * 3
    finally:
        await cluster.close()


async def test_clients_leave_open_files_to_groups_that_come(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (4096, 4096))
    monkeypatch.setattr(Settings, "local_data_groups", 1)  # it was to hold one, and then there were more
    cluster = await start_cluster(3, lockstep_data_groups="3")
    await cluster.settled()
    for broker in cluster.brokers.values():
        allowed = connection_limit(broker.settings.max_connections, 4)
        await cluster.until(lambda at=broker: len(at.groups) == 4, "groups")  # type: ignore[misc]
        assert broker.assembly.connections.max_connections == allowed


async def test_two_of_three_founders_begin_without_the_third(tmp_path: Path) -> None:
    cluster = BrokerCluster(tmp_path)
    try:
        await cluster.start(1, 2)
        await until(lambda: cluster.leader_of(METADATA_GROUP) is not None, 20.0)
        await cluster.start(3)
        third = cluster.brokers[3]
        await until(lambda: third.assembly.cluster.image.nodes.keys() == {1, 2, 3}, 20.0)
        assert (tmp_path / "3" / "meta.properties").read_text().count("part=founder") == 1
        members = third.groups[METADATA_GROUP].raft.configuration.voters
        assert members == (1, 2, 3), "the late one votes under the id that it was founded with"
    finally:
        await cluster.close()


async def test_a_group_that_cannot_be_opened_holds_up_no_other(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    node = cluster.brokers[1].assembly.node
    assert node is not None
    done: list[int | str] = []

    async def full(number: int) -> LogGroup:
        done.append(number)
        raise StorageFull(f"group {number}: no room")

    async def noted(what: str) -> None:
        done.append(what)

    with monkeypatch.context() as patched:
        patched.setattr(node._local_groups, "open", full)
        patched.setattr(node._cluster, "groups", {0: node._cluster.groups[0]})
        patched.setattr(node, "_delete_former_groups", partial(noted, "room is made"))
        patched.setattr(node, "_register", partial(noted, "registered"))
        with pytest.raises(StorageFull, match="group 1"):
            await node._follow()
    looks = len(done) // 5
    assert looks and done == ["room is made", 1, 2, 3, "registered"] * looks


async def test_a_leader_that_may_not_hand_over_now_stops_all_the_same(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its members change at this moment, for one."""
    cluster = await start_cluster(3)
    await cluster.settled()

    def refused(group: LogGroup) -> None:
        raise ConfigurationRejected("a change of members is under way")

    monkeypatch.setattr(LogGroup, "transfer_to_best", refused)
    stopped = cluster.controller
    node_id = stopped.settings.node_id
    await cluster.stop(node_id)
    assert all(group._is_closed for group in stopped.groups.values())
    await cluster.start(node_id)


async def test_a_wiped_node_comes_back_as_another_member(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    client = await cluster.client(1)
    await client.create("t", 3)
    await cluster.stop(3)
    cluster.wipe(3)
    await cluster.start(3)

    def is_back() -> bool:
        groups = cluster.brokers[3].groups
        return len(groups) == 4 and all(
            group.raft.member_id >> 32 and group.raft.member_id in group.raft.configuration.voters
            for group in groups.values()
        )

    await until(is_back, 20.0)
    leader = cluster.leader_of(1)
    assert leader is not None
    (tmp,) = {(cluster.directory / "3" / "meta.properties").read_text().count("part=stranger")}
    assert tmp == 1


async def test_everything_stopped_and_started_again(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    client = await cluster.client(1)
    await client.create("t", 1)
    leader = cluster.leader_of(cluster.brokers[1].assembly.cluster.partition("t", 0).group.group_id)  # type: ignore[union-attr]
    assert leader is not None
    writer = await cluster.client(leader)
    await writer.produce("t", batch(b"kept"))
    await cluster.stop()
    await cluster.start()
    await cluster.settled()
    partition = cluster.brokers[1].assembly.cluster.partition("t", 0)
    assert partition is not None
    leader = cluster.leader_of(partition.group.group_id)
    assert leader is not None
    data = await (await cluster.client(leader)).fetch("t", 0)
    assert [record.value for record in records_of(data)] == [b"kept"]


async def test_a_node_of_another_cluster_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = BrokerCluster(tmp_path / "a"), BrokerCluster(tmp_path / "b")
    try:
        for cluster in (first, second):
            await cluster.start()
            await cluster.settled()
        await second.stop(3)
        second._peers[1], second._peers[2] = first._peers[1], first._peers[2]
        await second.start(3)
        stray = second.brokers[3]
        await asyncio.sleep(1.0)
        assert all(not group.is_leader for group in stray.groups.values())
        known = first.brokers[1].groups[METADATA_GROUP].raft
        assert known.leader_id > 0
        assert stray.assembly.cluster.cluster_id in (None, second.brokers[1].assembly.cluster.cluster_id)
    finally:
        await first.close()
        await second.close()


async def test_data_of_a_node_alone_are_not_taken_over(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker()
    await broker.stop()
    settings = small_settings(tmp_path / "data")
    texts = dict(settings.explicit) | {"lockstep.peers": "1@127.0.0.1:1,2@127.0.0.1:2"}
    with pytest.raises(CannotStart, match="was alone"):
        await Broker(from_texts(texts)).start()


async def test_data_of_a_cluster_need_its_peers(tmp_path: Path) -> None:
    cluster = BrokerCluster(tmp_path)
    await cluster.start(1)
    await cluster.close()
    texts = dict(cluster.settings(1).explicit)
    del texts["lockstep.peers"]
    with pytest.raises(CannotStart, match=r"lockstep\.peers is missing"):
        await Broker(from_texts(texts)).start()


@each_case(
    ("peers", "problem"),
    [
        ("1@h:1,1@h:2", "twice"),
        ("1@h:1,2@h:1", "two nodes have this address"),
        ("2@h:1,3@h:2", "does not list this node"),
        ("1@h:1", "names this node alone"),
        ("1@h:1,2", "not of the form"),
        ("1@:1,2@h:2", "no host and port"),
        ("1@h:0,2@h:2", "no host and port"),
        ("1@127.0.0.1:1,2@0.0.0.0:2", "others could connect to"),
        ("1@[::]:1,2@127.0.0.1:2", "others could connect to; .*listens.*: lockstep.peers.listener$"),
        ("nowhere/peers", "no file to read"),
    ],
)
def test_peers_that_cannot_be(peers: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        from_texts({"lockstep.peers": peers})


async def test_a_node_may_listen_elsewhere_than_others_connect_to(tmp_path: Path) -> None:
    """Behind a port that is published."""
    cluster = BrokerCluster(tmp_path)
    inner = {node_id: free_port() for node_id in (1, 2, 3)}
    listening = cluster.settings
    forwarding = []

    def elsewhere(node_id: int) -> Settings:
        return replace(listening(node_id), lockstep_peers_listener=f"0.0.0.0:{inner[node_id]}")

    async def forward(to: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", inner[to])
        except OSError:
            writer.close()
            return
        await asyncio.gather(copied(reader, back), copied(there, writer), return_exceptions=True)

    async def copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while some := await source.read(1 << 16):
                target.write(some)
        finally:
            target.close()

    cluster.settings = elsewhere  # type: ignore[method-assign]
    try:
        for node_id, port in cluster._peers.items():
            forwarding.append(await asyncio.start_server(partial(forward, node_id), "127.0.0.1", port))
        await cluster.start()
        await cluster.settled()
    finally:
        await cluster.close()
        for server in forwarding:
            server.close()


@each_case("text", ["h", "PLAINTEXT://h:1", "h:99999"])
def test_a_listener_for_peers_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^lockstep.peers.listener"):
        from_texts({"lockstep.peers": "1@h:1,2@h:2", "lockstep.peers.listener": text})


def test_peers_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    path.write_text("# ours\n1@a:9, 2@b:9\n3@[::1]:9  # far away\n")
    found = from_texts({"lockstep.peers": str(path)}).peers()
    assert {node: (each.host, each.port) for node, each in found.items()} == {
        1: ("a", 9),
        2: ("b", 9),
        3: ("::1", 9),
    }


async def test_a_replication_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        peers = f"1@127.0.0.1:{port},2@127.0.0.1:1"
        settings = {"log.dirs": str(tmp_path / "data"), "lockstep.peers": peers, "node.id": "1"}
        with pytest.raises(CannotStart, match=rf"port {port} is in use.* port: in lockstep\.peers"):
            await Broker(from_texts({**settings, "listeners": "127.0.0.1:0"})).start()
        settings |= {"lockstep.peers": "1@h:1,2@h:2", "lockstep.peers.listener": f"127.0.0.1:{port}"}
        with pytest.raises(CannotStart, match=r"is in use.* port: lockstep\.peers\.listener=HOST:PORT$"):
            await Broker(from_texts({**settings, "listeners": "127.0.0.1:0"})).start()


async def test_an_address_for_peers_that_is_not_this_machines(tmp_path: Path) -> None:
    settings = {"log.dirs": str(tmp_path / "data"), "listeners": "127.0.0.1:0"}
    with pytest.raises(CannotStart, match=r"^cannot listen on 203\.0.*lockstep\.peers\.listener=HOST:PORT$"):
        await Broker(from_texts({**settings, "lockstep.peers": "1@203.0.113.1:1,2@h:2"})).start()


@pytest.mark.parametrize(
    ("peers", "listener"), [("1@localhost:{0},2@h:2", ""), ("1@h:1,2@h:2", "0.0.0.0:{0}")]
)
async def test_a_port_for_peers_and_clients(tmp_path: Path, peers: str, listener: str) -> None:
    port = free_port()
    texts = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": f"localhost:{port}",
        "lockstep.peers": peers.format(port),
        "lockstep.peers.listener": listener.format(port),
    }
    named = "lockstep.peers.listener=0.0.0.0" if listener else "lockstep.peers=1@localhost"
    with pytest.raises(
        CannotStart, match=rf"^listeners=PLAINTEXT://localhost:{port} .*{named}:{port} .*same"
    ):
        await Broker(from_texts(texts)).start()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("taken", ["listeners", "lockstep.metrics.listener", "lockstep.peers.listener"])
def test_a_port_that_another_takes_after_it_was_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    """Only listen() tells of it, and uvloop, on which brokers run, keeps it to itself."""
    serve = Broker._serve
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))

        async def served(broker: Broker) -> None:
            other.listen()
            await serve(broker)

        monkeypatch.setattr(Broker, "_serve", served)
        address = f"127.0.0.1:{other.getsockname()[1]}"
        texts = {"log.dirs": str(tmp_path), "lockstep.peers": "1@h:1,2@h:2"}
        texts |= {"listeners": "127.0.0.1:0", "lockstep.peers.listener": "127.0.0.1:0", taken: address}
        with pytest.raises(CannotStart, match=r"is in use: another program"):
            uvloop.run(Broker(from_texts({**SMALL, **texts})).start())


async def test_a_different_number_of_log_groups_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the first start, which founders that agree decide, and at each later one."""
    cluster = BrokerCluster(tmp_path, lockstep_data_groups="1")
    told = "the cluster has 1 log group; lockstep.data.groups=2 of this node has no effect"
    try:
        await cluster.start(1, 2)
        cluster._texts["lockstep.data.groups"] = "2"
        await cluster.start(3)
        await until(lambda: told in caplog.text, 20.0)
        await cluster.settled()
        await asyncio.sleep(0.1)
        assert caplog.text.count(told) == 1
        await cluster.stop(3)
        await cluster.start(3)
        await until(lambda: caplog.text.count(told) == 2, 20.0)
        del cluster._texts["lockstep.data.groups"]  # three by default, which nobody asked for
        await cluster.stop(3)
        await cluster.start(3)
        third = cluster.brokers[3].assembly.node
        await until(lambda: third is not None and third._groups_compared, 20.0)
        assert caplog.text.count("of this node has no effect") == 2
    finally:
        await cluster.close()


@each_case(("nodes", "groups", "held"), [(1, "4", 4), (2, "3", 3), (3, None, 3), (5, "10", 6), (5, "1", 1)])
def test_how_many_groups_a_node_holds(nodes: int, groups: str | None, held: int) -> None:
    peers = ",".join(f"{node}@h:{node}" for node in range(1, nodes + 1)) if nodes > 1 else ""
    wanted = {} if groups is None else {"lockstep.data.groups": groups}
    settings = from_texts({"lockstep.peers": peers, **wanted})
    assert settings.local_data_groups == held
