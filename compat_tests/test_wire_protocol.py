"""The protocol itself by hand: versions, closing, pipelining; metadata and topics with ids, every version."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import Answer, RawConnection, batch, raw_connection
from compat_tests.targets import Target

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC_EXCEPTION = 17
UNSUPPORTED_VERSION = 35
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_REQUEST = 42
REBOOTSTRAP_REQUIRED = 129
UNKNOWN_TOPIC_ID = 100

SERVED = {
    "Produce": (0, 0, 13),
    "Fetch": (1, 4, 18),
    "ListOffsets": (2, 1, 11),
    "Metadata": (3, 0, 13),
    "FindCoordinator": (10, 0, 6),
    "ApiVersions": (18, 0, 5),
    "CreateTopics": (19, 2, 7),
    "DeleteTopics": (20, 1, 6),
    "DeleteRecords": (21, 0, 2),
    "InitProducerId": (22, 0, 5),
    "OffsetForLeaderEpoch": (23, 2, 4),
    "DescribeAcls": (29, 1, 3),
    "CreateAcls": (30, 1, 3),
    "DeleteAcls": (31, 1, 3),
    "DescribeConfigs": (32, 1, 4),
    "DescribeLogDirs": (35, 1, 5),
    "CreatePartitions": (37, 0, 3),
    "ElectLeaders": (43, 0, 2),
    "AlterPartitionReassignments": (45, 0, 1),
    "ListPartitionReassignments": (46, 0, 0),
    "DescribeQuorum": (55, 0, 2),
    "DescribeCluster": (60, 0, 2),
    "DescribeProducers": (61, 0, 0),
    "DescribeTransactions": (65, 0, 0),
    "ListTransactions": (66, 0, 2),
    "DescribeTopicPartitions": (75, 0, 0),
}
"""Key, lowest and highest version that Kafka 4.4.0 advertises for what Lockstep serves so far."""


@pytest.mark.case("Every version", "ApiVersions v{version}")
@pytest.mark.parametrize("version", range(6))
def test_api_versions(raw: RawConnection, version: int) -> None:
    answer = raw.call("api_versions", version, client_software_name="compat", client_software_version="1.0")
    assert answer["error_code"] == 0
    ranges = {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}
    assert {name: ranges.get(key) for name, (key, _, _) in SERVED.items()} == {
        name: (low, high) for name, (_, low, high) in SERVED.items()
    }


@pytest.mark.case("Protocol", "ApiVersions of a later version: error 35 in version 0, with the range to use")
def test_api_versions_later(raw: RawConnection) -> None:
    raw.send_bytes(struct.pack(">ihhih", 14, 18, 99, 5, -1) + b"\0\1\1\0")
    frame = raw.receive_frame()
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code, count) == (5, UNSUPPORTED_VERSION, 1)
    assert struct.unpack_from(">hhh", frame, 10) == (18, 0, 5)
    assert raw.call("metadata", 12, topics=[])["brokers"], "the connection lives on"


@pytest.mark.case("Protocol", "ApiVersions with an empty client name is INVALID_REQUEST (KIP-511)")
def test_api_versions_names(raw: RawConnection) -> None:
    unnamed = raw.call("api_versions", 3, client_software_name="", client_software_version="1.0")
    assert (unnamed["error_code"], unnamed["api_keys"]) == (INVALID_REQUEST, [])
    odd = raw.call("api_versions", 3, client_software_name="compat", client_software_version="1 beta!")
    assert odd["error_code"] == INVALID_REQUEST


@pytest.mark.case(
    "Protocol", "ApiVersions 5: a client that means another cluster or node is refused (KIP-1242)"
)
def test_api_versions_address(raw: RawConnection) -> None:
    own_cluster, own_node = raw.call("metadata", 12, topics=[])["cluster_id"], raw.node_id()

    def error(cluster_id: str | None, node_id: int, name: str = "compat") -> int:
        named = {"client_software_name": name, "client_software_version": "1.0"}
        answer = raw.call("api_versions", 5, cluster_id=cluster_id, node_id=node_id, **named)
        assert bool(answer["api_keys"]) == bool(answer["finalized_features"]) == (not answer["error_code"])
        return int(answer["error_code"])

    assert error(None, -1) == error(own_cluster, own_node) == 0
    half = [(own_cluster, -1), ("another", -1), (None, own_node), (None, own_node + 7)]
    assert [error(*each) for each in half] == [INVALID_REQUEST] * len(half)
    wrong = [("another", own_node), (own_cluster, own_node + 7), ("", own_node), (own_cluster, -2)]
    assert [error(*each) for each in wrong] == [REBOOTSTRAP_REQUIRED] * len(wrong)
    assert error("another", own_node, name="") == INVALID_REQUEST, "the name is looked at first"
    assert raw.call("metadata", 12, topics=[])["brokers"], "the connection stays open"


CLOSING = {
    "an unknown version": struct.pack(">ihhih", 10, 3, 99, 5, -1),
    "an unknown API": struct.pack(">ihhih", 10, 999, 0, 5, -1),
    "Produce v2, advertised but not served": struct.pack(">ihhihhiii", 24, 0, 2, 5, -1, -1, 100, 0, 0)[:28],
    "a negative size": struct.pack(">i", -5),
    "a size beyond socket.request.max.bytes": struct.pack(">i", 0x7FFFFFFF),
    "ApiVersions of version 5 with the body of version 4": (
        struct.pack(">ihhih", 16, 18, 5, 5, -1) + b"\0" + b"\2a\0021\0"
    ),
    "a body that ends early": struct.pack(">ihhih", 12, 3, 1, 5, -1) + b"\0\0",
}


@pytest.mark.case("Protocol", "the connection is closed after {fault}")
@pytest.mark.parametrize("fault", list(CLOSING))
def test_closes(target: Target, raw: RawConnection, fault: str) -> None:
    with raw_connection(target.bootstrap) as doomed:
        doomed.send_bytes(CLOSING[fault])
        assert doomed.is_closed_by_peer()
    assert raw.call("metadata", 12, topics=[])["brokers"], "another connection does not notice"


@pytest.mark.case("Protocol", "200 pipelined requests are answered in order")
def test_pipelining(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    for n in range(100):
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch([b"%d" % n])}]}]
        raw.send("produce", 9, acks=-1, timeout=5000, topic_data=data)
        raw.send("metadata", 12, topics=[{"name": topic}])
    for n in range(100):
        ((part,),) = [each["partition_responses"] for each in raw.receive()["responses"]]
        assert (part["error_code"], part["base_offset"]) == (0, n)
        assert raw.receive()["topics"][0]["name"] == topic


# -- metadata -----------------------------------------------------------------------------------------------


@pytest.mark.case("Every version", "Metadata v{version}")
@pytest.mark.parametrize("version", range(14))
def test_metadata_versions(
    raw: RawConnection, target: Target, unused_name: Callable[[], str], version: int
) -> None:
    topic = unused_name()
    topic_id = raw.create_topic(topic, 2)
    answer = raw.call("metadata", version, topics=[{"name": topic}])
    addresses = {each["node_id"]: f"{each['host']}:{each['port']}" for each in answer["brokers"]}
    assert addresses == dict(zip(target.node_ids, target.bootstrap.split(","), strict=True))
    assert answer.get("controller_id", target.node_ids[0]) in target.node_ids
    (found,) = answer["topics"]
    assert (found["error_code"], found["name"], found.get("is_internal", False)) == (0, topic, False)
    assert found.get("topic_id", topic_id) == topic_id
    parts = sorted(found["partitions"], key=lambda part: int(part["partition_index"]))
    assert [(p["error_code"], p["partition_index"], p["leader_id"]) for p in parts] == [
        (0, 0, raw.leader_of(topic, 0)),
        (0, 1, raw.leader_of(topic, 1)),
    ]
    for part in parts:
        assert sorted(part["replica_nodes"]) == sorted(part["isr_nodes"]) == list(target.node_ids)


def _metadata(raw: RawConnection, **fields: object) -> list[Answer]:
    topics: list[Answer] = raw.call("metadata", 12, **fields)["topics"]
    return topics


@pytest.mark.case("Metadata on the wire", "all topics, no topics, by id, unknown, bad name")
def test_metadata_questions(raw: RawConnection, unused_name: Callable[[], str]) -> None:
    topic, unknown = unused_name(), unused_name()
    topic_id = raw.create_topic(topic)
    assert topic in {each["name"] for each in _metadata(raw, topics=None)}
    assert topic in {each["name"] for each in raw.call("metadata", 0, topics=[])["topics"]}, (
        "v0: empty is all"
    )
    assert _metadata(raw, topics=[]) == []
    (by_id,) = _metadata(raw, topics=[{"topic_id": topic_id, "name": None}])
    assert (by_id["error_code"], by_id["name"]) == (0, topic)
    (missing,) = _metadata(raw, topics=[{"topic_id": uuid.uuid4(), "name": None}])
    assert missing["error_code"] == UNKNOWN_TOPIC_ID
    (missing,) = _metadata(raw, topics=[{"name": unknown}], allow_auto_topic_creation=False)
    assert missing["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert unknown not in {each["name"] for each in _metadata(raw, topics=None)}, "it was not created"
    (bad,) = _metadata(raw, topics=[{"name": "bad name"}], allow_auto_topic_creation=True)
    assert bad["error_code"] == INVALID_TOPIC_EXCEPTION


@pytest.mark.case("Metadata on the wire", "asking with auto creation makes the topic")
def test_metadata_creates(raw: RawConnection, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    until = time.monotonic() + 5
    (found,) = _metadata(raw, topics=[{"name": topic}], allow_auto_topic_creation=True)
    while found["error_code"] != 0 and time.monotonic() < until:
        assert found["error_code"] in (UNKNOWN_TOPIC_OR_PARTITION, 5), "5: no leader yet"
        time.sleep(0.05)
        (found,) = _metadata(raw, topics=[{"name": topic}], allow_auto_topic_creation=True)
    assert len(found["partitions"]) == 1


# -- topics ------------------------------------------------------------------------------------------------


def _create(raw: RawConnection, *topics: Answer, api_version: int = 7, **fields: object) -> list[Answer]:
    found: list[Answer] = raw.call(
        "create_topics", api_version, topics=list(topics), timeout=10_000, **fields
    )["topics"]
    return found


def _topic(name: str, partitions: int = 1, replicas: int = 1, **more: object) -> Answer:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}


@pytest.mark.case("Every version", "CreateTopics v{version}")
@pytest.mark.parametrize("version", range(2, 8))
def test_create_versions(raw: RawConnection, unused_name: Callable[[], str], version: int) -> None:
    name = unused_name()
    (made,) = _create(raw, _topic(name, 3), api_version=version)
    assert (made["error_code"], made["name"], made.get("num_partitions", 3)) == (0, name, 3)
    (again,) = _create(raw, _topic(name, 3), api_version=version)
    assert again["error_code"] == 36


@pytest.mark.case("Topics on the wire", "validate only, defaults, duplicates, long and colliding names")
def test_create_questions(raw: RawConnection, target: Target, unused_name: Callable[[], str]) -> None:
    name = unused_name()
    (checked,) = _create(raw, _topic(name, 2), validate_only=True)
    assert (checked["error_code"], checked["num_partitions"]) == (0, 2)
    (made,) = _create(raw, _topic(name, -1, -1))
    copies = len(target.node_ids) if target.name == "lockstep-3" else 1
    assert (made["error_code"], made["num_partitions"], made["replication_factor"]) == (0, 1, copies)
    (refused,) = _create(raw, _topic(unused_name(), 1, len(target.node_ids) + 1))
    assert refused["error_code"] == INVALID_REPLICATION_FACTOR
    assert all(each["error_code"] == INVALID_REQUEST for each in _create(raw, _topic(name), _topic(name)))
    assert _create(raw, _topic("x" * 250))[0]["error_code"] == INVALID_TOPIC_EXCEPTION
    dotted = unused_name() + ".b"
    assert _create(raw, _topic(dotted))[0]["error_code"] == 0
    assert _create(raw, _topic(dotted.replace(".", "_")))[0]["error_code"] == INVALID_TOPIC_EXCEPTION


@pytest.mark.case("Topics on the wire", "manual replica assignment")
def test_assignment(raw: RawConnection, target: Target, unused_name: Callable[[], str]) -> None:
    good = [{"partition_index": n, "broker_ids": list(target.node_ids)} for n in (0, 1)]
    (made,) = _create(raw, _topic(unused_name(), -1, -1, assignments=good))
    assert (made["error_code"], made["num_partitions"]) == (0, 2)
    bad = [{"partition_index": 0, "broker_ids": [9]}]
    (refused,) = _create(raw, _topic(unused_name(), -1, -1, assignments=bad))
    assert refused["error_code"] == INVALID_REPLICA_ASSIGNMENT


@pytest.mark.case("Every version", "DeleteTopics v{version}")
@pytest.mark.parametrize("version", range(1, 7))
def test_delete_versions(raw: RawConnection, unused_name: Callable[[], str], version: int) -> None:
    topic = unused_name()
    raw.create_topic(topic)
    fields: Answer = {
        "topic_names": [topic],
        "topics": [{"name": topic, "topic_id": None}],
        "timeout": 10_000,
    }
    (gone,) = raw.call("delete_topics", version, **fields)["responses"]
    assert (gone["error_code"], gone["name"]) == (0, topic)
    (again,) = raw.call("delete_topics", version, **fields)["responses"]
    assert again["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.case("Topics on the wire", "delete by id; a topic made again has a new id and is empty")
def test_ids(raw: RawConnection, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    first = raw.create_topic(topic)
    raw.produce(topic, batch([b"old"]))
    answer = raw.call("delete_topics", 6, topics=[{"name": None, "topic_id": first}], timeout=10_000)
    ((gone,),) = [answer["responses"]]
    assert (gone["error_code"], gone["name"]) == (0, topic)
    second = raw.create_topic(topic)
    assert second != first
    assert raw.list_offset(topic, -1)["offset"] == 0
    answer = raw.call("delete_topics", 6, topics=[{"name": None, "topic_id": first}], timeout=10_000)
    assert answer["responses"][0]["error_code"] == UNKNOWN_TOPIC_ID
    stale = raw.fetch(topic, 0, api_version=13, topic_id=first)
    assert stale["error_code"] == UNKNOWN_TOPIC_ID, "a fetch with the old id"


# -- configs, cluster --------------------------------------------------------------------------------------


def _configs(raw: RawConnection, kind: int, name: str, *keys: str, api_version: int = 4) -> Answer:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    (found,) = raw.call("describe_configs", api_version, resources=[asked], include_synonyms=True)["results"]
    assert isinstance(found, dict)
    return found


@pytest.mark.case("Every version", "DescribeConfigs v{version}")
@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_versions(raw: RawConnection, new_topic: NewTopic, version: int) -> None:
    topic = new_topic(configs={"retention.ms": "1234567"})
    found = _configs(raw, 2, topic, "retention.ms", "cleanup.policy", api_version=version)
    assert found["error_code"] == 0
    values = {each["name"]: (each["value"], each["config_source"]) for each in found["configs"]}
    assert values == {"retention.ms": ("1234567", 1), "cleanup.policy": ("delete", 5)}


@pytest.mark.case("Topics on the wire", "DescribeConfigs: unknown topic, broker, wrong broker, wrong kind")
def test_describe_configs_questions(raw: RawConnection, unused_name: Callable[[], str]) -> None:
    assert _configs(raw, 2, unused_name())["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    node_id = raw.node_id()
    broker = _configs(raw, 4, str(node_id), "log.retention.hours", "message.max.bytes")
    assert broker["error_code"] == 0
    assert {each["name"] for each in broker["configs"]} <= {"log.retention.hours", "message.max.bytes"}
    assert _configs(raw, 4, str(node_id + 8))["error_code"] == INVALID_REQUEST
    assert _configs(raw, 99, "x")["error_code"] == INVALID_REQUEST


@pytest.mark.case("Every version", "DescribeCluster v{version}")
@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_versions(raw: RawConnection, target: Target, version: int) -> None:
    answer = raw.call("describe_cluster", version, endpoint_type=1)
    assert (answer["error_code"], bool(answer["cluster_id"])) == (0, True)
    addresses = {each["broker_id"]: f"{each['host']}:{each['port']}" for each in answer["brokers"]}
    assert addresses == dict(zip(target.node_ids, target.bootstrap.split(","), strict=True))
    assert answer["controller_id"] in target.node_ids


@pytest.mark.case("Every version", "InitProducerId v{version}")
@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_versions(raw: RawConnection, version: int) -> None:
    raw.producer_id()
    wanted = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    answer = raw.call("init_producer_id", version, transactional_id=None, **wanted)
    assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
    assert answer["producer_id"] >= 0
