"""Partitions that no topic knows of are closed; all others stay, whatever is going on."""

from __future__ import annotations

import pytest

from lockstep.broker.controller import orphan_partitions
from lockstep.storage.types import CONTROL_PARTITION
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.wire import batch

LOST = bytes(range(16, 32))
FIXED = bytes(15) + b"\x07"


def opened(cluster: BrokerCluster, number: int) -> set[tuple[bytes, int]]:
    """What the leader of a group has open."""
    leader = cluster.leader_of(number)
    if leader is None:
        return set()
    partitions = cluster.brokers[leader].groups[number].partitions.values()
    return {(each.topic_id, each.index) for each in partitions if each.local_id != CONTROL_PARTITION}


@pytest.mark.parametrize("led_by_controller", [True, False])
async def test_what_no_topic_knows_of_is_closed(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch, led_by_controller: bool
) -> None:
    monkeypatch.setattr(orphan_partitions, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(orphan_partitions, "EVERY_SECONDS", 0.3)
    cluster = await start_cluster(3, lockstep_data_groups="3")
    await cluster.settled()
    placement = cluster.controller.assembly.cluster.image.placement
    await cluster.until(
        lambda: all(cluster.leader_of(n) == placed[0] for n, placed in placement.items()),
        "leaders where they belong",
        60,
    )
    client = await cluster.client(1)
    topic_id = await client.create("t", partitions=3)

    def wanted() -> list[int]:  # leaders are still on their way to where they belong
        led = {n: cluster.leader_of(n) for n in range(4)}
        return [n for n in (1, 2, 3) if led[n] is not None and (led[n] == led[0]) == led_by_controller]

    await cluster.until(lambda: wanted() != [], "group to be tried")
    number = wanted()[0]
    before = opened(cluster, number)
    (index,) = [each for _, each in before]
    elsewhere = (index + 1) % 3  # of another group
    leader = cluster.leader_of(number)
    assert leader is not None
    strays = [(LOST, 0), (LOST, 3), (topic_id, elsewhere), (topic_id, 7)]
    await cluster.brokers[leader].groups[number].open_partitions([*strays, (FIXED, 0)])
    await cluster.until(lambda: opened(cluster, number) == before | {(FIXED, 0)}, "end of what is nobody's")

    async def is_served() -> bool:
        leader = cluster.leader_of(number)
        asked = await cluster.client(leader) if leader is not None else None
        return asked is not None and (await asked.produce("t", batch(b"a"), index)).error_code == 0

    await cluster.until(is_served, "partition that is somebody's")
