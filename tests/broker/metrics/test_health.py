"""Each reason a node has to say that it does not serve; on a cluster that lost its majority, too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metrics import health
from lockstep.broker.metrics.health import unhealthy_reason
from lockstep.broker.peers.node_registry import NodeRegistry
from tests.broker.conftest import StartCluster
from tests.broker.metrics.scraping import get, scrape
from tests.storage.log.memory_log import NoDamage


class Node:
    """As much of a broker as is looked at; it has groups 0 and 1, and all is well."""

    def __init__(self) -> None:
        self.groups = {0: _group(), 1: _group()}
        self.leaders = {0: 1, 1: 2}
        self.nodes = SimpleNamespace(is_removed=False, live_leader_of=self.leaders.__getitem__)
        self.connections = SimpleNamespace(stopping=False)

    def unhealthy_reason(self, failed: BaseException | None = None) -> str:
        cluster = cast(MetadataCache, SimpleNamespace(groups=self.groups))
        return unhealthy_reason(cluster, cast(NodeRegistry, self.nodes), self.connections.stopping, failed)


def _group() -> Any:
    return SimpleNamespace(
        failed=None, log=SimpleNamespace(disk_full=False, disk_error="", write_error="", damage=NoDamage())
    )


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_node_that_serves(node: Node) -> None:
    assert node.unhealthy_reason() == ""


def test_a_failure_comes_first_and_is_one_line(node: Node) -> None:
    node.nodes.is_removed = node.connections.stopping = True
    assert node.unhealthy_reason(OSError("a\n  b")) == "the log cannot be trusted any more: a b"


def test_a_stop(node: Node) -> None:
    node.connections.stopping = True
    assert node.unhealthy_reason() == "stopping"


def test_a_removed_node(node: Node) -> None:
    node.nodes.is_removed = True
    assert node.unhealthy_reason() == "this node was removed from its cluster"


def test_a_node_without_a_part(node: Node) -> None:
    node.groups.clear()
    assert node.unhealthy_reason() == "this node has no log group of its cluster yet"


def test_a_group_that_failed(node: Node) -> None:
    node.groups[1].failed = OSError("gone")
    assert node.unhealthy_reason() == "log group 1 has failed: gone"


def test_a_full_disk(node: Node) -> None:
    node.groups[1].log = SimpleNamespace(disk_full=True, disk_error="no space left")
    assert node.unhealthy_reason() == "log group 1: the disk is full: no space left"


def test_writes_that_fail(node: Node) -> None:
    node.groups[1].log.write_error = "7.index: [Errno 5] Input/output error"
    assert node.unhealthy_reason() == (
        "log group 1: the log cannot be written: 7.index: [Errno 5] Input/output error"
    )


def test_a_group_without_a_leader(node: Node) -> None:
    node.leaders[1] = -1
    assert node.unhealthy_reason() == "log group 1: no leader is known"


def test_damage_until_it_is_given_up(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged: dict[str, Any] = {"group": 1, "segment": 7, "topic": None, "first_offset": 3, "last_offset": 5}
    known = [damaged | {"given_up": True}]
    monkeypatch.setattr(health, "node_damage", lambda cluster: known)
    assert node.unhealthy_reason() == ""
    known.append(damaged | {"given_up": False})
    assert node.unhealthy_reason().startswith("log entries 3 to 5 are damaged (log group 1, log file 7)")


async def test_a_node_that_is_left_alone(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(2, lockstep_metrics_listener="127.0.0.1:0")
    await cluster.settled()
    port = cluster.brokers[1].metrics_port

    async def is_well() -> bool:
        return (await get(port, "/health")).status == 200

    await cluster.until(is_well, "healthy node")
    told = await scrape(port)
    assert (told["lockstep_healthy"], told["lockstep_nodes"], told["lockstep_nodes_alive"]) == (1, 2, 2)
    await cluster.stop(2)

    async def is_alone() -> bool:
        answer = await get(port, "/health")
        return (answer.status, answer.body) == (503, "log group 0: no leader is known\n")

    await cluster.until(is_alone, "word of it")
    told = await scrape(port)
    assert (told["lockstep_healthy"], told["lockstep_nodes"], told["lockstep_nodes_alive"]) == (0, 2, 1)
    assert (
        told['lockstep_log_group_leader_known{log_group="0"}']
        == told['lockstep_log_group_leader{log_group="0"}']
        == 0
    )
