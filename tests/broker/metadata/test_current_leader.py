"""broker/metadata/current_leader.py: the leader in error responses (KIP-951)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from lockstep.broker.metadata.current_leader import current_leader, leader_endpoints
from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.broker.requests.endpoint import Endpoint
from tests.broker import fakes


def test_the_leader_comes_with_its_epoch() -> None:
    partition = SimpleNamespace(group=SimpleNamespace(leader_id=2), leader_epoch=7)
    assert current_leader(cast(Partition, partition)) == (2, 7)


def test_each_leader_that_the_client_can_reach_has_one_endpoint() -> None:
    known = {each: Endpoint(each, f"node{each}", 9092, None) for each in (1, 2)}
    endpoints = cast(Any, SimpleNamespace(of=lambda node_id, _: known.get(node_id)))
    found = leader_endpoints([2, -1, 1, 2, 3], endpoints, fakes.client())
    assert [each.host for each in found] == ["node2", "node1"]
