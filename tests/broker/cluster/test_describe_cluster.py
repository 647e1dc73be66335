"""DescribeCluster of a cluster of which a node is down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.protocol.messages.describe_cluster import DescribeClusterRequest
from tests.broker.conftest import StartCluster


async def test_a_node_that_is_down_is_fenced(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await start_cluster(3, broker_rack="rack-{node}", lockstep_data_groups="1")
    await cluster.settled()
    client = await cluster.client(1)
    ports = {node_id: broker.port for node_id, broker in cluster.brokers.items()}

    async def told(version: int, fenced: bool) -> list[tuple[int, int, str | None, bool]]:
        answer = await client.call(DescribeClusterRequest(include_fenced_brokers=fenced), version)
        return [(each.broker_id, each.port, each.rack, each.is_fenced) for each in answer.brokers]

    def brokers(*node_ids: int, fenced: bool = False) -> list[tuple[int, int, str | None, bool]]:
        return [(each, ports[each], f"rack-{each}", fenced) for each in node_ids]

    assert await told(2, True) == brokers(1, 2, 3)
    await cluster.stop(2)
    nodes = cluster.brokers[1].assembly.nodes
    await cluster.until(lambda: nodes.alive() == {1, 3}, "end of node 2")
    assert await told(2, True) == brokers(1, 2, 3), "it may be back in a moment"
    monkeypatch.setattr("lockstep.broker.peers.node_registry.LISTED_SECONDS", 0.0)
    assert await told(2, True) == [*brokers(1, 3), *brokers(2, fenced=True)]
    assert await told(2, False) == brokers(1, 3)
    assert await told(1, False) == brokers(1, 3)
    image = cluster.brokers[1].assembly.cluster.image
    image.nodes[2] = replace(image.nodes[2], listeners={})
    assert await told(2, True) == brokers(1, 3), "none of its listeners is this client's"
