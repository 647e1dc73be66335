"""Three nodes by hand: each tells the truth, serves or names who does, and refuses what no node could keep.

Only on Lockstep's three nodes; what Kafka does alike is asked of both in the other files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests import harness
from compat_tests.clusters import LockstepThree
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.raw import Answer, RawConnection, batch, raw_connection, values_in
from compat_tests.targets import Target
from compat_tests.until import until

UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
NOT_COORDINATOR = 16
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
INVALID_REQUEST = 42
FENCED_LEADER_EPOCH = 74
AREA = "Three nodes"
LEADERS_SINCE = {"produce": 10, "fetch": 16}
"""Versions that name the leader and where it is (KIP-951)."""

FOLLOWERS_SINCE = 11

Nodes = dict[int, RawConnection]


@pytest.fixture(
    params=[pytest.param(each, id=f"on-{each}") for each in harness.wanted_targets() if each[-2:] == "-3"]
)
def target(request: pytest.FixtureRequest, world: World) -> Iterator[Target]:
    """The three nodes that other cases use, too."""
    found = world.target(request.param)
    yield found
    assert found.running, f"a node died during this case:\n{found.log_tail()}"


@pytest.fixture
def nodes(target: Target) -> Iterator[Nodes]:
    """A connection to each node that sends nothing elsewhere, by node id."""
    assert isinstance(target, LockstepThree)
    made = {}
    for node_id, node in target.cluster.nodes.items():
        made[node_id] = RawConnection("127.0.0.1", node.port)
    yield made
    for each in made.values():
        each.close()


def _followers(nodes: Nodes, topic: str) -> list[RawConnection]:
    """Those that do not lead; all of them know the topic by now."""
    leader = nodes[1].leader_of(topic)
    found = [connection for node_id, connection in nodes.items() if node_id != leader]
    for connection in found:
        until = time.monotonic() + 5
        asked = [{"name": topic}]
        while connection.call("metadata", 12, topics=asked, allow_auto_topic_creation=False)["topics"][0][
            "error_code"
        ]:
            assert time.monotonic() < until
    return found


# -- what each node tells -----------------------------------------------------------------------------------


@pytest.mark.case(AREA, "Metadata says the same of brokers, the controller and partitions on every node")
def test_metadata(nodes: Nodes, target: Target, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=6)

    def told(raw: RawConnection) -> Any:
        answer = raw.call("metadata", 12, topics=[{"name": topic}])
        return answer["cluster_id"], answer["brokers"], answer["controller_id"], answer["topics"]

    for raw in nodes.values():
        until(told(nodes[1]), lambda raw=raw: told(raw))  # type: ignore[misc]
    _, brokers, controller, (described,) = told(nodes[1])
    assert [each["node_id"] for each in brokers] == list(target.node_ids)
    assert controller in target.node_ids
    leaders = [each["leader_id"] for each in described["partitions"]]
    assert {leaders.count(each) for each in target.node_ids} == {2}, "partitions are spread"
    for part in described["partitions"]:
        assert sorted(part["replica_nodes"]) == sorted(part["isr_nodes"]) == list(target.node_ids)
        assert part["replica_nodes"][0] == part["leader_id"], "the first is the preferred leader"
        assert part["offline_replicas"] == []
    pages = [
        raw.call("describe_topic_partitions", 0, topics=[{"name": topic}], response_partition_limit=10)
        for raw in nodes.values()
    ]
    for page in pages:
        assert [each["leader_id"] for each in page["topics"][0]["partitions"]] == leaders


@pytest.mark.case(AREA, "DescribeCluster and DescribeQuorum say the same on every node")
def test_cluster_and_quorum(nodes: Nodes, target: Target) -> None:
    controllers = set()
    for raw in nodes.values():
        cluster = raw.call("describe_cluster", 2, endpoint_type=1)
        assert [each["broker_id"] for each in cluster["brokers"]] == list(target.node_ids)
        asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        quorum = raw.call("describe_quorum", 2, topics=asked)
        ((part,),) = [each["partitions"] for each in quorum["topics"]]
        assert part["error_code"] == 0
        assert sorted(each["replica_id"] for each in part["current_voters"]) == list(target.node_ids)
        ports = {each["node_id"]: each["listeners"][0]["port"] for each in quorum["nodes"]}
        assert ports == {each["broker_id"]: each["port"] for each in cluster["brokers"]}
        controllers |= {cluster["controller_id"], part["leader_id"]}
    assert len(controllers) == 1, "the controller leads the quorum"


@pytest.mark.case(AREA, "every node names the same coordinator of a group; only that one serves it")
def test_coordinators(nodes: Nodes, target: Target, unused_name: Callable[[], str]) -> None:
    groups = [unused_name() for _ in range(12)]
    found = []
    for raw in nodes.values():
        told = raw.call("find_coordinator", 4, coordinator_keys=groups)["coordinators"]
        assert {each["error_code"] for each in told} == {0}
        found.append({each["key"]: each["node_id"] for each in told})
    assert found[0] == found[1] == found[2]
    assert set(found[0].values()) == set(target.node_ids), "groups are spread"
    for group, coordinator in found[0].items():
        for node_id, raw in nodes.items():
            beat = raw.call("heartbeat", 4, group_id=group, generation_id=1, member_id="m")["error_code"]
            assert (beat == NOT_COORDINATOR) == (node_id != coordinator)
            (fetched,) = raw.call("offset_fetch", 8, groups=[{"group_id": group, "topics": []}])["groups"]
            assert fetched["error_code"] == (0 if node_id == coordinator else NOT_COORDINATOR)


@pytest.mark.case(AREA, "each node describes itself and its loggers, and refuses to for another")
def test_configs_of_each(nodes: Nodes) -> None:
    def described(raw: RawConnection, kind: int, name: str) -> Any:
        asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": ["node.id"]}]
        (found,) = raw.call("describe_configs", 4, resources=asked)["results"]
        return found["error_code"], [each["value"] for each in found["configs"]]

    for node_id, raw in nodes.items():
        assert described(raw, 4, str(node_id)) == (0, [str(node_id)])
        for other in nodes.keys() - {node_id}:
            for kind in (4, 8):
                assert described(raw, kind, str(other)) == (INVALID_REQUEST, [])


@pytest.mark.case(AREA, "a broker changes its own configuration, any node that of all")
def test_config_of_one(nodes: Nodes) -> None:
    name = "log.retention.bytes"

    def alter(raw: RawConnection, broker: str, value: str | None) -> int:
        edit = {"name": name, "config_operation": 0 if value else 1, "value": value}
        asked = [{"resource_type": 4, "resource_name": broker, "configs": [edit]}]
        (done,) = raw.call("incremental_alter_configs", 1, resources=asked)["responses"]
        return int(done["error_code"])

    def seen(node_id: int) -> str:
        asked = [{"resource_type": 4, "resource_name": str(node_id), "configuration_keys": [name]}]
        (found,) = nodes[node_id].call("describe_configs", 4, resources=asked)["results"]
        return str(found["configs"][0]["value"])

    assert alter(nodes[2], "2", "2000000000") == 0
    assert seen(2) == "2000000000", "where it was asked it is seen at once"
    assert (seen(1), seen(3)) == ("-1", "-1")
    for other in (1, 3):
        assert alter(nodes[other], "2", "2000000001") == INVALID_REQUEST, "as in Kafka: each for itself"
    assert seen(2) == "2000000000"
    assert alter(nodes[2], "2", None) == 0
    assert alter(nodes[3], "", "3000000000") == 0
    for node_id in nodes:
        until("3000000000", lambda node_id=node_id: seen(node_id))  # type: ignore[misc]
    assert alter(nodes[1], "", None) == 0
    for node_id in nodes:
        until("-1", lambda node_id=node_id: seen(node_id))  # type: ignore[misc]


# -- who does not lead --------------------------------------------------------------------------------------


@pytest.mark.case(AREA, "Produce v{version} to a follower: NOT_LEADER_OR_FOLLOWER, and who leads")
@pytest.mark.parametrize("version", [3, 8, 9, 10, 12, 13])
def test_produce_to_a_follower(nodes: Nodes, raw: RawConnection, new_topic: NewTopic, version: int) -> None:
    topic = new_topic()
    seen = raw.call("metadata", 12, topics=[{"name": topic}])
    (described,) = seen["topics"]
    leader = described["partitions"][0]["leader_id"]
    part = {"index": 0, "records": batch([b"a"])}
    data = [{"name": topic, "topic_id": described["topic_id"], "partition_data": [part]}]
    for follower in _followers(nodes, topic):
        answer = follower.call("produce", version, acks=-1, timeout=5000, topic_data=data)
        ((refused,),) = [each["partition_responses"] for each in answer["responses"]]
        assert (refused["error_code"], refused["base_offset"]) == (NOT_LEADER_OR_FOLLOWER, -1)
        if version >= LEADERS_SINCE["produce"]:
            _names(refused["current_leader"], answer["node_endpoints"], seen, leader)
    assert raw.list_offset(topic, -1)["offset"] == 0, "nothing was stored"


@pytest.mark.case(AREA, "Fetch v{version} from a follower: since 11 what it has, or who leads")
@pytest.mark.parametrize("version", [4, 10, 11, 12, 13, 16, 17])
def test_fetch_from_a_follower(nodes: Nodes, raw: RawConnection, new_topic: NewTopic, version: int) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"a"]))
    seen = raw.call("metadata", 12, topics=[{"name": topic}])
    (described,) = seen["topics"]
    leader, epoch = (described["partitions"][0][each] for each in ("leader_id", "leader_epoch"))

    def fetched(follower: RawConnection, leader_epoch: int) -> Answer:
        part = {"partition": 0, "current_leader_epoch": leader_epoch, "partition_max_bytes": 1000}
        wanted = [{"topic": topic, "topic_id": described["topic_id"], "partitions": [part]}]
        fields = {"max_wait": 100, "min_bytes": 1, "max_bytes": 1000, "replica_id": -1, "session_epoch": -1}
        return follower.call("fetch", version, topics=wanted, **fields)

    def part_of(answer: Answer) -> Answer:
        ((found,),) = [each["partitions"] for each in answer["responses"]]
        assert isinstance(found, dict)
        return found

    for follower in _followers(nodes, topic):
        if version < FOLLOWERS_SINCE:
            assert part_of(fetched(follower, epoch))["error_code"] == NOT_LEADER_OR_FOLLOWER
            continue
        until(1, lambda: part_of(fetched(follower, epoch))["high_watermark"])  # noqa: B023
        assert values_in(part_of(fetched(follower, epoch))["records"]) == [(0, b"a")]
        answer = fetched(follower, epoch - 1)
        refused = part_of(answer)
        assert refused["error_code"] == FENCED_LEADER_EPOCH
        if version >= LEADERS_SINCE["fetch"]:
            _names(refused["current_leader"], answer["node_endpoints"], seen, leader)


def _names(told: Answer, endpoints: list[Answer], seen: Answer, leader: int) -> None:
    assert told == {"leader_id": leader, "leader_epoch": seen["topics"][0]["partitions"][0]["leader_epoch"]}
    assert endpoints == [each for each in seen["brokers"] if each["node_id"] == leader]


@pytest.mark.case(AREA, "ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers on a follower")
def test_other_questions_to_a_follower(nodes: Nodes, new_topic: NewTopic) -> None:
    topic = new_topic()
    for follower in _followers(nodes, topic):
        assert follower.list_offset(topic, -1)["error_code"] == NOT_LEADER_OR_FOLLOWER
        asked: Answer = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 1}
        of_epoch = follower.call(
            "offset_for_leader_epoch", 4, replica_id=-2, topics=[{"topic": topic, "partitions": [asked]}]
        )
        below = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}]
        deleted = follower.call("delete_records", 2, topics=below, timeout=1000)
        active = follower.call("describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0]}])
        for answer in (of_epoch, deleted, active):
            ((part,),) = [each["partitions"] for each in answer["topics"]]
            assert part["error_code"] == NOT_LEADER_OR_FOLLOWER


# -- administration through any node ------------------------------------------------------------------------


@pytest.mark.case(
    AREA, "topics are made, grown, configured, deleted through any node, and seen there at once"
)
@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_administration(nodes: Nodes, unused_name: Callable[[], str], node_id: int) -> None:
    raw, topic = nodes[node_id], unused_name()
    wanted = {"name": topic, "num_partitions": 2, "replication_factor": 3}
    (made,) = raw.call("create_topics", 7, topics=[wanted], timeout=5000)["topics"]
    assert (made["error_code"], made["num_partitions"], made["replication_factor"]) == (0, 2, 3)

    def seen(by: RawConnection) -> tuple[int, int]:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        (found,) = by.call("metadata", 12, **asked)["topics"]
        return found["error_code"], len(found["partitions"])

    assert seen(raw) == (0, 2)
    for other in nodes.values():
        until((0, 2), lambda other=other: seen(other))  # type: ignore[misc]
    more = {"name": topic, "count": 5, "assignments": None}
    (grown,) = raw.call("create_partitions", 3, topics=[more], timeout=5000)["results"]
    assert grown["error_code"] == 0 and seen(raw) == (0, 5)
    edit = {"name": "retention.ms", "config_operation": 0, "value": "86400001"}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [edit]}
    (altered,) = raw.call("incremental_alter_configs", 1, resources=[resource])["responses"]
    asked = {"resource_type": 2, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    (found,) = raw.call("describe_configs", 4, resources=[asked])["results"]
    assert (altered["error_code"], found["configs"][0]["value"]) == (0, "86400001")
    gone = {"topic_names": [topic], "topics": [{"name": topic, "topic_id": None}], "timeout": 5000}
    (deleted,) = raw.call("delete_topics", 6, **gone)["responses"]
    assert deleted["error_code"] == 0 and seen(raw)[0] == UNKNOWN_TOPIC_OR_PARTITION
    for other in nodes.values():
        until((UNKNOWN_TOPIC_OR_PARTITION, 0), lambda other=other: seen(other))  # type: ignore[misc]


@pytest.mark.case(AREA, "a topic is made by asking any node for it")
@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_auto_creation(nodes: Nodes, target: Target, unused_name: Callable[[], str], node_id: int) -> None:
    topic = unused_name()
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}

    def led() -> bool:
        (found,) = nodes[node_id].call("metadata", 12, **asked)["topics"]
        return bool(found["error_code"] == 0 and found["partitions"][0]["leader_id"] > 0)

    until(True, led)
    with raw_connection(target.bootstrap, home=node_id - 1) as raw:
        until(0, lambda: raw.produce(topic, batch([b"a"]))["error_code"])
        assert values_in(raw.fetch(topic, 0)["records"]) == [(0, b"a")]


@pytest.mark.case(AREA, "producer ids that different nodes give are different")
def test_producer_ids(nodes: Nodes) -> None:
    found = [raw.producer_id()[0] for _ in range(3) for raw in nodes.values()]
    assert len(set(found)) == len(found)


# -- what cannot be kept is refused -------------------------------------------------------------------------


def _made(raw: RawConnection, name: str, **more: Any) -> int:
    wanted = {"name": name, "num_partitions": 1, "replication_factor": -1, **more}
    (made,) = raw.call("create_topics", 7, topics=[wanted], timeout=5000)["topics"]
    return int(made["error_code"])


@pytest.mark.case(AREA, "replication factors: one to three, never four")
def test_replication_factors(nodes: Nodes, unused_name: Callable[[], str]) -> None:
    for raw in nodes.values():
        for copies, code in ((1, 0), (2, 0), (3, 0), (4, INVALID_REPLICATION_FACTOR)):
            assert _made(raw, unused_name(), replication_factor=copies) == code


@pytest.mark.case(AREA, "min.insync.replicas: up to a majority, which is always met; more is INVALID_CONFIG")
def test_min_insync_replicas(nodes: Nodes, unused_name: Callable[[], str]) -> None:
    for raw in nodes.values():
        topic = unused_name()
        for value, code in (("3", INVALID_CONFIG), ("2", 0)):
            configs = [{"name": "min.insync.replicas", "value": value}]
            assert _made(raw, topic, configs=configs) == code
        edit = {"name": "min.insync.replicas", "config_operation": 0, "value": "3"}
        resource = {"resource_type": 2, "resource_name": topic, "configs": [edit]}
        (altered,) = raw.call("incremental_alter_configs", 1, resources=[resource])["responses"]
        assert altered["error_code"] == INVALID_CONFIG


@pytest.mark.case(AREA, "explicit assignments: the nodes of a log group in any order, nothing else")
def test_assignments(nodes: Nodes, new_topic: NewTopic, unused_name: Callable[[], str]) -> None:
    topic = new_topic()
    for raw in nodes.values():
        for brokers, code in (
            ([1, 2, 3], 0),
            ([3, 1, 2], 0),
            ([1, 2], INVALID_REPLICA_ASSIGNMENT),
            ([1], INVALID_REPLICA_ASSIGNMENT),
            ([1, 2, 4], INVALID_REPLICA_ASSIGNMENT),
            ([1, 2, 2], INVALID_REPLICA_ASSIGNMENT),
        ):
            chosen = [{"partition_index": 0, "broker_ids": brokers}]
            assert _made(raw, unused_name(), num_partitions=-1, assignments=chosen) == code
            more = {"name": topic, "count": 2, "assignments": [{"broker_ids": brokers}]}
            (grown,) = raw.call("create_partitions", 3, topics=[more], validate_only=True)["results"]
            assert grown["error_code"] == code


# -- groups over all nodes ----------------------------------------------------------------------------------


@pytest.mark.case(AREA, "ListGroups: each node its own, together all")
def test_list_groups(
    nodes: Nodes, raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]
) -> None:
    topic, groups = new_topic(), [unused_name() for _ in range(6)]
    part = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    for group in groups:
        done = raw.call(
            "offset_commit", 8, group_id=group, generation_id_or_member_epoch=-1, member_id="",
            topics=[{"name": topic, "partitions": [part]}],
        )  # fmt: skip
        assert done["topics"][0]["partitions"][0]["error_code"] == 0
    told = raw.call("find_coordinator", 4, coordinator_keys=groups)["coordinators"]
    for node_id, connection in nodes.items():
        own = {each["key"] for each in told if each["node_id"] == node_id}
        listed = connection.call("list_groups", 4, states_filter=[])["groups"]
        assert {each["group_id"] for each in listed} & set(groups) == own


@pytest.mark.case(AREA, "a deleted topic's offsets go, whichever node coordinates the group")
def test_offsets_of_a_deleted_topic(
    nodes: Nodes, raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]
) -> None:
    topic, groups = new_topic(), [unused_name() for _ in range(6)]
    part = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}

    def committed(group: str) -> int:
        answer = raw.call(
            "offset_commit", 8, group_id=group, generation_id_or_member_epoch=-1, member_id="",
            topics=[{"name": topic, "partitions": [part]}],
        )  # fmt: skip
        code = answer["topics"][0]["partitions"][0]["error_code"]
        assert isinstance(code, int)
        return code

    for group in groups:
        until(0, lambda: committed(group))  # noqa: B023 - called at once

    def fetched() -> set[int]:
        asked = [{"name": topic, "partition_indexes": [0]}]
        answer = raw.call("offset_fetch", 8, groups=[{"group_id": each, "topics": asked} for each in groups])
        return {each["topics"][0]["partitions"][0]["committed_offset"] for each in answer["groups"]}

    assert fetched() == {7}
    raw.call("delete_topics", 5, topic_names=[topic], timeout=5000)
    until({-1}, fetched)
    raw.create_topic(topic)
    assert fetched() == {-1}, "under the same name made again, too"
