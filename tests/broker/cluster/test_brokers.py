"""The fixture of clusters itself: nodes find each other, one stops and comes back, one loses its disk."""

from __future__ import annotations

from broker.metadata import METADATA_GROUP
from tests.broker.conftest import StartCluster


async def test_three_nodes_find_each_other(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    for broker in cluster.brokers.values():
        assert sorted(broker.groups) == [0, 1, 2, 3]
    assert cluster.controller is cluster.brokers[cluster.leader_of(METADATA_GROUP) or 0]


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
    assert 3 in cluster.controller.services.cluster.image.nodes
