"""Kafka's kafka-reassign-partitions on four nodes: log groups move, by a plan that names whole groups."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from compat_tests import harness
from compat_tests.clusters import LockstepCluster, LockstepThree
from compat_tests.harness import World
from compat_tests.java_driver import ToolResult
from compat_tests.raw import RawConnection, batch, raw_connection, values_in
from compat_tests.targets import Target
from compat_tests.until import until

AREA = "Kafka's tools, four nodes"
SECONDS = 30.0
PARTITIONS = 6

Plan = dict[tuple[str, int], list[int]]
Reassign = Callable[..., ToolResult]


class LockstepFour(LockstepThree):
    """As `LockstepThree` with a node more, so that each log group could be elsewhere."""

    node_ids = (1, 2, 3, 4)  # type: ignore[assignment]

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings)
        self.cluster = LockstepCluster(4, settings, directory=self.directory)


@pytest.fixture(
    params=[pytest.param(each, id=f"on-{each}") for each in harness.wanted_targets() if each[-2:] == "-3"],
    scope="module",
)
def target(request: pytest.FixtureRequest) -> Iterator[LockstepThree]:
    """Not the shared one."""
    with LockstepFour() as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_moves(target: LockstepFour) -> None:
    """An earlier try may have left reassignments, which end once every node is up."""
    with raw_connection(target.bootstrap) as raw:
        until([], lambda: raw.call("list_partition_reassignments", 0, topics=None)["topics"], SECONDS)


@pytest.fixture
def reassign(world: World, target: Target, tmp_path: Path) -> Reassign:
    """`reassign("--execute", plan)`: the tool as operators call it."""

    def run(action: str, plan: Plan | None = None, *more: str) -> ToolResult:
        words = ["--bootstrap-server", target.bootstrap, action, *more]
        if plan is not None:
            path = tmp_path / "plan.json"
            path.write_text(json.dumps(_written(plan)))
            words += ["--reassignment-json-file", str(path)]
        main = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        return world.driver().tool(main, *words)

    return run


def _written(plan: Plan) -> dict[str, Any]:
    moves = [{"topic": name, "partition": index, "replicas": to} for (name, index), to in plan.items()]
    return {"version": 1, "partitions": moves}


def _where(raw: RawConnection) -> Plan:
    """Every partition's replicas, the internal ones' left out."""
    answer = raw.call("metadata", 12, topics=None)
    return {
        (topic["name"], part["partition_index"]): part["replica_nodes"]
        for topic in answer["topics"]
        if not topic["is_internal"]
        for part in topic["partitions"]
    }


def _known_to_all(target: LockstepFour, topic: str) -> None:
    """The tool asks whichever node it likes."""
    deadline = time.monotonic() + SECONDS
    for node in target.cluster.nodes.values():
        with RawConnection("127.0.0.1", node.port) as raw:
            while topic not in {name for name, _ in _where(raw)}:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def _moved(where: Plan) -> Plan:
    """Each partition's log group without its first node, and with the one that it has not."""
    return {
        place: [*nodes[1:], *({1, 2, 3, 4} - set(nodes))] for place, nodes in where.items()
    }  # a group is told by its nodes: four groups of three of four nodes are four


def _until(ask: Callable[[], ToolResult], words: str) -> str:
    deadline = time.monotonic() + SECONDS
    while True:
        done = ask()
        assert done.status == 0, done.stdout + done.stderr
        if words in done.stdout:
            return done.stdout
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(0.3)


@pytest.mark.case(AREA, "kafka-reassign-partitions --execute of all topics, --list, --verify; records stay")
def test_all(target: LockstepFour, reassign: Reassign, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    with raw_connection(target.bootstrap) as raw:
        raw.create_topic(topic, PARTITIONS)
        _known_to_all(target, topic)
        for index in range(PARTITIONS):
            assert raw.produce(topic, batch([b"%d" % index]), partition=index)["error_code"] == 0
        plan = _moved(_where(raw))
    assert "No partition reassignments found." in reassign("--list").stdout
    done = reassign("--execute", plan)
    assert done.status == 0, done.stdout + done.stderr
    assert "Successfully started partition reassignments for " in done.stdout
    assert f"{topic}-0,{topic}-1,{topic}-2" in done.stdout
    _until(lambda: reassign("--list"), "No partition reassignments found.")
    verified = reassign("--verify", plan)
    assert verified.status == 0, verified.stdout + verified.stderr
    for index in range(PARTITIONS):
        assert f"Reassignment of partition {topic}-{index} is completed." in verified.stdout
    assert "Clearing broker-level throttles" in verified.stdout, "by default the tool does that, too"
    with raw_connection(target.bootstrap) as raw:
        assert _where(raw) == plan
        for index in range(PARTITIONS):
            (part,) = [values_in(raw.fetch(topic, 0, partition=index)["records"])]
            assert part == [(0, b"%d" % index)]


@pytest.mark.case(
    AREA, "kafka-reassign-partitions: one partition of a log group is refused, and what is missing told"
)
def test_part_of_a_group(target: LockstepFour, reassign: Reassign, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    with raw_connection(target.bootstrap) as raw:
        raw.create_topic(topic, 8)
        where = _where(raw)
    _known_to_all(target, topic)
    plan = {(topic, 0): _moved(where)[topic, 0]}
    done = reassign("--execute", plan)
    assert done.status == 1
    assert "Name the other partitions of log group" in done.stdout + done.stderr
    assert f"{topic}-4" in done.stdout + done.stderr
    assert "No partition reassignments found." in reassign("--list").stdout
    with raw_connection(target.bootstrap) as raw:
        assert _where(raw) == where


@pytest.mark.case(AREA, "kafka-reassign-partitions to a node that is down: --list, --verify, --cancel")
def test_cancel(target: LockstepFour, reassign: Reassign, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    with raw_connection(target.bootstrap) as raw:
        raw.create_topic(topic, 8)  # two in each log group; one group has no copy on node 4
        where = _where(raw)
    _known_to_all(target, topic)
    down = 4
    plan = {place: to for place, to in _moved(where).items() if to[-1] == down}
    assert plan
    target.cluster.kill9(down)
    try:
        moves = [
            {"name": name, "partitions": [{"partition_index": index, "replicas": to}]}
            for (name, index), to in plan.items()
        ]
        with raw_connection(
            target.cluster.nodes[1].bootstrap
        ) as raw:  # the tool sends nothing to who is down
            done = raw.call("alter_partition_reassignments", 1, timeout=5000, topics=moves)
            assert {part["error_code"] for each in done["responses"] for part in each["partitions"]} == {0}
        name, index = next(iter(plan))
        assert f"{name}-{index}: replicas: " in reassign("--list").stdout
        assert f"adding: {down}. removing: " in reassign("--list").stdout
        assert "is still in progress." in reassign("--verify", plan, "--preserve-throttles").stdout
        ended = reassign("--cancel", plan, "--preserve-throttles")  # it would ask the node that is down
        assert ended.status == 0, ended.stdout + ended.stderr
        assert "Successfully cancelled partition reassignments" in ended.stdout
        assert "No partition reassignments found." in reassign("--list").stdout
    finally:
        target.cluster.restart(down)
    with raw_connection(target.bootstrap) as raw:
        assert _where(raw) == where


@pytest.mark.case(
    AREA,
    "kafka-reassign-partitions --throttle: the partitions move unthrottled; --verify removes the settings",
)
def test_throttle(target: LockstepFour, reassign: Reassign, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    with raw_connection(target.bootstrap) as raw:
        raw.create_topic(topic)
        plan = _moved(_where(raw))
    _known_to_all(target, topic)
    done = reassign("--execute", plan, "--throttle", "1000000")
    assert done.status == 0, done.stdout + done.stderr
    assert "The inter-broker throttle limit was set to 1000000 B/s" in done.stdout
    _until(lambda: reassign("--list"), "No partition reassignments found.")
    with raw_connection(target.bootstrap) as raw:
        assert _throttles(raw, topic), "the tool stores them before it moves anything"
        verified = reassign("--verify", plan)
        assert verified.status == 0, verified.stdout + verified.stderr
        assert f"Reassignment of partition {topic}-0 is completed." in verified.stdout
        assert not _throttles(raw, topic)
        assert _where(raw) == plan


def _throttles(raw: RawConnection, topic: str) -> dict[str, str]:
    """The throttled replicas that are set for a topic, by the setting's name."""
    asked = [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}]
    (found,) = raw.call("describe_configs", 4, resources=asked)["results"]
    assert found["error_code"] == 0
    return {
        each["name"]: each["value"]
        for each in found["configs"]
        if each["name"].endswith("replication.throttled.replicas") and each["value"]
    }
