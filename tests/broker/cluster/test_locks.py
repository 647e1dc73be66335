"""Locks in a cluster: every member knows them, and a new leader refuses what the old one would have."""

from __future__ import annotations

from lockstep.protocol.errors import ErrorCode as E
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.locks.asking import asks, batch, lock, said

GROUP = 1


async def equal_tables(cluster: BrokerCluster, node_id: int) -> None:
    """Wait until all that run know what this node knows."""
    known = table_on(cluster, node_id)
    assert known
    await cluster.until(lambda: all(table_on(cluster, each) == known for each in cluster.brokers), "them")


def table_on(cluster: BrokerCluster, node_id: int) -> bytes:
    """What a node knows of the locks of the data group."""
    locks = cluster.brokers[node_id].assembly.appenders[GROUP].locks
    assert locks is not None
    return locks.table.snapshot(0)


async def test_a_new_leader_knows_what_was_raised(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1", auto_leader_rebalance_enable="false")
    await cluster.settled()
    first = cluster.leader_of(GROUP)
    assert first is not None
    client = await cluster.client(first)
    await client.create("t", lockstep_locks="true")
    assert await lock(client, -1, write_lock="a") == 0
    assert await lock(client, -1, append_lock="b") == 1
    known = table_on(cluster, first)
    assert known
    await cluster.until(
        lambda: all(table_on(cluster, each) == known for each in cluster.brokers), "equal tables"
    )
    await cluster.stop(first)
    await cluster.until(lambda: cluster.leader_of(GROUP) not in (None, first), "another leader")
    second = cluster.leader_of(GROUP)
    assert second is not None
    client = await cluster.client(second)
    refused = await client.produce("t", batch(asks(0, read_lock="b")))
    assert (refused.error_code, said(refused)["conflict_offset"]) == (E.POLICY_VIOLATION, "1")
    assert await lock(client, -1, write_lock="a") == -E.POLICY_VIOLATION
    assert await lock(client, 0, write_lock="a") == 2
    await cluster.start(first)
    known = table_on(cluster, second)
    await cluster.until(
        lambda: all(table_on(cluster, each) == known for each in cluster.brokers), "equal tables"
    )
