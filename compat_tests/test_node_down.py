"""Three nodes of which one is killed, then two: what those that live tell and serve, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from compat_tests import harness
from compat_tests.clusters import LockstepThree
from compat_tests.probe import HOST
from compat_tests.raw import Answer, RawConnection, batch, raw_connection, values_in
from compat_tests.until import until

LEADER_NOT_AVAILABLE = 5
ELECTION_NOT_NEEDED = 84
AREA = "Three nodes, one down"


@pytest.fixture(
    params=[pytest.param(each, id=f"on-{each}") for each in harness.wanted_targets() if each[-2:] == "-3"]
)
def target(request: pytest.FixtureRequest) -> Iterator[LockstepThree]:
    """Not the shared one."""
    assert request.param == LockstepThree.name
    with LockstepThree() as running:
        yield running


def _asked(target: LockstepThree, node_id: int, api: str, version: int, **fields: Any) -> Answer:
    with RawConnection(HOST, target.cluster.nodes[node_id].port) as raw:
        return raw.call(api, version, **fields)


def _described(target: LockstepThree, node_id: int, topic: str) -> Any:
    """Who lives, and of each partition its error, whether it is led by one of these, its ISR, who is away."""
    answer = _asked(
        target, node_id, "metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False
    )
    living = [each["node_id"] for each in answer["brokers"]]
    parts = [
        (each["error_code"], each["leader_id"] in living, sorted(each["isr_nodes"]), each["offline_replicas"])
        for each in answer["topics"][0]["partitions"]
    ]
    return living, answer["controller_id"] in living, parts


def _leaders(target: LockstepThree, node_id: int, topic: str) -> list[int]:
    answer = _asked(target, node_id, "metadata", 12, topics=[{"name": topic}])
    return [each["leader_id"] for each in answer["topics"][0]["partitions"]]


@pytest.mark.case(AREA, "metadata, records, groups and administration go on; the node comes back and leads")
def test_one_down(target: LockstepThree) -> None:
    killed = target.node_ids[0]
    groups = [f"group-{n}" for n in range(6)]
    with raw_connection(target.bootstrap, home=killed) as raw:
        raw.create_topic("t", 6)
        first_leaders = [raw.leader_of("t", n) for n in range(6)]
        for n in range(6):
            assert raw.produce("t", batch([b"before"]), partition=n)["base_offset"] == 0
        assert {_commit(raw, each) for each in groups} == {0}
    living = [each for each in target.node_ids if each != killed]
    target.cluster.kill9(killed)
    for node_id in living:
        until((living, True, [(0, True, living, [killed])] * 6), partial(_described, target, node_id, "t"))
    bootstrap = ",".join(target.cluster.nodes[each].bootstrap for each in living)
    with raw_connection(bootstrap) as raw:
        for n in range(6):
            assert raw.produce("t", batch([b"without"]), partition=n)["base_offset"] == 1
            assert values_in(raw.fetch("t", 0, partition=n)["records"]) == [(0, b"before"), (1, b"without")]
        told = raw.call("find_coordinator", 4, coordinator_keys=groups)["coordinators"]
        assert {each["node_id"] for each in told} <= set(living)
        assert {_committed(raw, each) for each in groups} == {7}
        raw.create_topic("u", 3)
        assert set(_leaders(target, living[0], "u")) <= set(living)
        asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        quorum = raw.call("describe_quorum", 2, topics=asked)["topics"][0]["partitions"][0]
        assert quorum["error_code"] == 0 and quorum["leader_id"] in living
    target.cluster.restart(killed)
    every = list(target.node_ids)
    for node_id in every:
        until((every, True, [(0, True, every, [])] * 6), partial(_described, target, node_id, "t"))
    until(first_leaders, lambda: _leaders(target, killed, "t"))
    with raw_connection(target.bootstrap, home=killed - 1) as raw:
        assert raw.produce("u", batch([b"after"]), partition=0)["error_code"] == 0
        for n in range(6):
            assert [value for _, value in values_in(raw.fetch("t", 0, partition=n)["records"])] == [
                b"before",
                b"without",
            ]


def _commit(raw: RawConnection, group: str) -> int:
    part = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    answer = raw.call(
        "offset_commit", 8, group_id=group, generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": "t", "partitions": [part]}],
    )  # fmt: skip
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def _committed(raw: RawConnection, group: str) -> int:
    asked = [{"name": "t", "partition_indexes": [0]}]
    (found,) = raw.call("offset_fetch", 8, groups=[{"group_id": group, "topics": asked}])["groups"]
    return int(found["topics"][0]["partitions"][0]["committed_offset"])


@pytest.mark.case(AREA, "with two down the third says that nobody leads, and nothing is lost")
def test_two_down(target: LockstepThree) -> None:
    with raw_connection(target.bootstrap) as raw:
        raw.create_topic("t", 3)
        for n in range(3):
            raw.produce("t", batch([b"a"]), partition=n)
    for node_id in (2, 3):
        target.cluster.kill9(node_id)
    part = (LEADER_NOT_AVAILABLE, False, [1], [2, 3])

    def told() -> Any:
        living, _, parts = _described(target, 1, "t")
        return living, [(*each[:3], sorted(each[3])) for each in parts]

    until(([1], [part] * 3), told)
    data = [{"name": "t", "partition_data": [{"index": n, "records": batch([b"x"])} for n in range(3)]}]
    answer = _asked(target, 1, "produce", 9, acks=-1, timeout=1000, topic_data=data)
    refused = {each["error_code"] for each in answer["responses"][0]["partition_responses"]}
    assert refused <= {6, 7, 19}, "what clients try again"
    wanted = {"name": "u", "num_partitions": 1, "replication_factor": -1}
    began = time.monotonic()
    (made,) = _asked(target, 1, "create_topics", 7, topics=[wanted], timeout=2000)["topics"]
    assert made["error_code"] in (5, 7, 41) and time.monotonic() - began < 12
    for node_id in (2, 3):
        target.cluster.restart(node_id)
    with raw_connection(target.bootstrap) as raw:
        for n in range(3):
            until(0, lambda n=n: raw.list_offset("t", -1, partition=n)["error_code"])  # type: ignore[misc]
            assert values_in(raw.fetch("t", 0, partition=n)["records"])[0] == (0, b"a")
