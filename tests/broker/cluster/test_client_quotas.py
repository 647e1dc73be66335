"""Client quotas in a cluster: set at any node, in force at all; each counts what its own clients do."""

from __future__ import annotations

from functools import partial

from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.protocol.errors import ErrorCode
from tests.broker.conftest import StartCluster
from tests.broker.quotas.served import alter, describe, stop_clock
from tests.broker.test_client_quotas import CLIENT, creation, is_paused


def is_one(quotas: QuotaTable) -> bool:
    return len(quotas) == 1


async def test_a_quota_set_at_any_node_is_in_force_at_all_and_changes_count_at_the_controller(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    controller = cluster.leader_of(0)
    assert controller is not None
    other, third = (each for each in cluster.brokers if each != controller)
    for broker in cluster.brokers.values():
        stop_clock(broker)
    await alter(cluster.brokers[other].port, CLIENT, controller_mutation_rate=1)
    expected = {(("client-id", "test"),): {"controller_mutation_rate": 1.0}}
    for node_id, broker in cluster.brokers.items():
        quotas = broker.assembly.image.quotas
        await cluster.until(partial(is_one, quotas), "quota on a node")
        assert await describe(await cluster.client(node_id)) == expected

    client, second = await cluster.client(other), await cluster.client(third)
    made = await client.call(creation("a", partitions=20), 7)
    assert (made.topics[0].error_code, made.throttle_time_ms) == (0, 0)
    for node_id, each in ((other, client), (third, second)):
        refused = await each.call(creation("b"), 7)
        found = refused.topics[0].error_code, refused.throttle_time_ms
        assert found == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 9_000)
        assert is_paused(cluster.brokers[node_id], each), "its own node does not read it"
