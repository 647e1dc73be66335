"""Starts of nodes whose data directory, or a part of it, was lost, and of the nodes beside them."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

import pytest

from lockstep.broker.node import cluster_node
from lockstep.broker.node.local_groups import LocalGroups
from lockstep.broker.peers.peer_rpc import PeerRpc
from lockstep.broker.server import Broker, CannotStart
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log_group import LogGroup
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartBroker, StartCluster, small_settings
from tests.broker.waiting import until
from tests.support.cases import each_case


@each_case("leaders_log", ["first", "last"])
async def test_a_wiped_node_is_no_founder_while_the_others_open_their_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, leaders_log: str
) -> None:
    """They dial it before that; group 0 is opened first, and on one of them nothing is open."""
    caplog.clear()
    monkeypatch.setattr(cluster_node, "UNDECIDED_SECONDS", 0.2)
    cluster = BrokerCluster(tmp_path / leaders_log)
    may_open, open_group = asyncio.Event(), LocalGroups.open

    async def slow(groups: LocalGroups, number: int, founders: tuple[int, ...] = ()) -> LogGroup:
        node_id = groups._settings.node_id
        if node_id == 2 or (node_id == 3 and (number > 0 or leaders_log == "last")):
            await may_open.wait()
        return await open_group(groups, number, founders)

    try:
        await cluster.start()
        await cluster.settled()
        await cluster.create("t")
        await cluster.stop()
        cluster.wipe(1)
        with monkeypatch.context() as patched:
            patched.setattr(LocalGroups, "open", slow)
            others = [asyncio.create_task(cluster.start(node_id)) for node_id in (2, 3)]
            await cluster.start(1)
            nodes = cluster.brokers[1].assembly.nodes
            await until(lambda: nodes.statuses.keys() == {2, 3}, 20.0)
            await asyncio.sleep(0.3)  # it looks at them every 50 ms
            meta = (cluster.directory / "1" / "meta.properties").read_text()
            may_open.set()
            await asyncio.gather(*others)
        assert "part=\n" in meta or "part=stranger\n" in meta
        if leaders_log == "last":
            told = "node 1 has no data and waits: nodes 2, 3 belong to a cluster that no node here knows yet"
            assert caplog.text.count(told) == 1
        await cluster.settled()
        assert "part=stranger\n" in (cluster.directory / "1" / "meta.properties").read_text()
    finally:
        may_open.set()
        await cluster.close()


async def test_a_founder_that_stopped_before_there_was_a_leader_founds_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its part is recorded and its log is empty, and the other one comes with an empty directory."""
    cluster = BrokerCluster(tmp_path, 2)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(PeerRpc, "send", lambda *arguments: None)
            await cluster.start()
            await until(lambda: all(broker.groups for broker in cluster.brokers.values()), 20.0)
            await cluster.stop()
        cluster.wipe(2)
        await cluster.start()
        await cluster.settled()
    finally:
        await cluster.close()
    assert "part=founder\n" in (tmp_path / "2" / "meta.properties").read_text()


async def test_a_node_whose_log_groups_are_not_there_does_not_start(
    start_cluster: StartCluster, start_broker: StartBroker, tmp_path: Path
) -> None:
    """A volume that is not mounted, for one. It would vote nowhere, and serve nothing, in silence."""
    cluster = await start_cluster(3)
    await cluster.settled()
    await until(lambda: "registered=" in (cluster.directory / "2" / "meta.properties").read_text(), 20.0)
    await cluster.stop(2)
    groups = cluster.directory / "2" / "groups"
    groups.rename(groups.with_name("elsewhere"))
    for _ in range(2):
        with pytest.raises(CannotStart, match=rf"^{groups} is lost, which has the votes"):
            await cluster.start(2)
    groups.with_name("elsewhere").rename(groups)
    await cluster.start(2)
    await cluster.settled()
    broker = await start_broker()
    await broker.stop()
    groups = broker.settings.directory / "groups"
    groups.rename(groups.with_name("elsewhere"))
    with pytest.raises(CannotStart, match=rf"^{groups} is lost, which has the records of this broker"):
        await Broker(broker.settings).start()


async def test_a_start_on_a_full_disk_names_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(DataLog, "open", fail)
    with pytest.raises(OSError, match="quota exceeded") as caught:
        await Broker(small_settings(tmp_path / "data")).start()
    assert caught.value.filename == str(tmp_path / "data")


async def test_a_group_of_another_node_is_not_opened(start_cluster: StartCluster) -> None:
    """Its votes are not this node's."""
    cluster = await start_cluster(3)
    await cluster.settled()
    await cluster.stop()
    groups = cluster.directory / "1" / "groups" / "1"
    groups.rename(cluster.directory / "kept")
    shutil.copytree(cluster.directory / "2" / "groups" / "1", groups)
    with pytest.raises(CannotStart, match=rf"^{groups} is of another data directory, of node 2"):
        await cluster.start(1)
    shutil.rmtree(groups)
    (cluster.directory / "kept").rename(groups)
    await cluster.start()
    await cluster.settled()
