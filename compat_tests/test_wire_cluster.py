"""The cluster by hand: topics in pages, elections, reassignments, the quorum, access rules. Expected is what
Kafka 4.4.0 does, in every version and for what no client would send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import Answer, ConnectionClosed, RawConnection
from compat_tests.targets import Target

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC_EXCEPTION = 17
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_REQUEST = 42
SECURITY_DISABLED = 54
ELECTION_NOT_NEEDED = 84
NO_REASSIGNMENT_IN_PROGRESS = 85

EVERY_OPERATION = 3576
"""What may be done with a topic where everything may (KIP-430)."""


# -- topics in pages ---------------------------------------------------------------------------------------


def _pages(
    raw: RawConnection, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[Any], tuple[str, int] | None]:
    begin = {"topic_name": cursor[0], "partition_index": cursor[1]} if cursor else None
    answer = raw.call(
        "describe_topic_partitions",
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=begin,
    )
    found = [
        (topic["name"], topic["error_code"], [each["partition_index"] for each in topic["partitions"]])
        for topic in answer["topics"]
    ]
    following = answer["next_cursor"]
    return found, following and (following["topic_name"], following["partition_index"])


@pytest.mark.case("Topics in pages", "DescribeTopicPartitions: what is told of a topic")
def test_describe_topic_partitions(
    raw: RawConnection, target: Target, unused_name: Callable[[], str]
) -> None:
    topic = unused_name()
    topic_id = raw.create_topic(topic)
    asked = {"topics": [{"name": topic}], "response_partition_limit": 2000, "cursor": None}
    (found,) = raw.call("describe_topic_partitions", 0, **asked)["topics"]
    assert (found["error_code"], found["topic_id"], found["is_internal"]) == (0, topic_id, False)
    assert found["topic_authorized_operations"] == EVERY_OPERATION
    (part,) = found["partitions"]
    assert part["leader_id"] == raw.leader_of(topic)
    assert sorted(part["replica_nodes"]) == sorted(part["isr_nodes"]) == list(target.node_ids)
    assert (part["eligible_leader_replicas"], part["last_known_elr"], part["offline_replicas"]) == (
        [],
        [],
        [],
    )


@pytest.mark.case("Topics in pages", "order, pages, cursors, unknown and duplicate names")
def test_describe_topic_partitions_questions(raw: RawConnection, unused_name: Callable[[], str]) -> None:
    prefix = unused_name()
    a, b, gone = prefix + "-a", prefix + "-b", prefix + "-c"
    raw.create_topic(b, 1)
    raw.create_topic(a, 2)
    both = [(a, 0, [0, 1]), (b, 0, [0])]
    assert _pages(raw, b, a, b) == (both, None)
    assert _pages(raw, a, b, limit=3) == (both, None)
    assert _pages(raw, a, b, limit=2) == ([(a, 0, [0, 1])], (b, 0))
    for limit in (1, 0, -1):
        assert _pages(raw, a, b, limit=limit) == ([(a, 0, [0])], (a, 1))
    assert _pages(raw, a, b, limit=1, cursor=(a, 1)) == ([(a, 0, [1])], (b, 0))
    assert _pages(raw, a, b, cursor=(a, 7)) == ([(a, 0, []), (b, 0, [0])], None)
    assert _pages(raw, a, gone, limit=2) == ([(a, 0, [0, 1])], (gone, 0))
    assert _pages(raw, gone, cursor=(gone, 0)) == ([(gone, UNKNOWN_TOPIC_OR_PARTITION, [])], None)
    assert _pages(raw, "a b") == ([("a b", INVALID_TOPIC_EXCEPTION, [])], None)
    for cursor in ((a, -1), (gone, 0), ("", 0)):
        assert _pages(raw, b, a, cursor=cursor) == (
            [(b, INVALID_REQUEST, []), (a, INVALID_REQUEST, [])],
            None,
        )
    every, _ = _pages(raw, cursor=(a, 1))
    assert [each for each in every if each[0] in (a, b)] == [(a, 0, [1]), (b, 0, [0])]
    assert _pages(raw, cursor=(a, -1)) == ([], None)


# -- elections, reassignments ------------------------------------------------------------------------------


@pytest.mark.case("Every version", "ElectLeaders v{version}")
@pytest.mark.parametrize("version", range(3))
def test_elect_leaders_versions(
    raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str], version: int
) -> None:
    topic, unknown = new_topic(partitions=2), unused_name()
    asked: list[Answer] = [
        {"topic": topic, "partitions": [0, 1, 1, 9, -1]},
        {"topic": unknown, "partitions": [0]},
        {"topic": "", "partitions": [0]},
    ]
    answer = raw.call("elect_leaders", version, topic_partitions=asked, timeout=5000)
    assert answer.get("error_code", 0) == 0
    found = [
        (each["topic"], part["partition_id"], part["error_code"], part["error_message"])
        for each in answer["replica_election_results"]
        for part in each["partition_result"]
    ]
    needless = (ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    assert found == [
        (topic, 0, *needless),
        (topic, 1, *needless),
        (topic, 1, *needless),
        (topic, 9, UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-9"),
        (topic, -1, UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}--1"),
        (unknown, 0, UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {unknown}"),
        ("", 0, UNKNOWN_TOPIC_OR_PARTITION, "No such topic as "),
    ]
    every = raw.call("elect_leaders", version, topic_partitions=None, timeout=5000)
    told = {each["topic"]: each["partition_result"] for each in every["replica_election_results"]}
    assert told[topic] == []
    nothing = raw.call("elect_leaders", version, topic_partitions=[], timeout=5000)
    assert nothing["replica_election_results"] == []


@pytest.mark.case("Elections on the wire", "an unclean election, and a kind that does not exist")
def test_elect_leaders_kinds(raw: RawConnection, new_topic: NewTopic) -> None:
    asked = [{"topic": new_topic(), "partitions": [0]}]
    for kind, whole, code in ((1, 0, ELECTION_NOT_NEEDED), (7, INVALID_REQUEST, INVALID_REQUEST)):
        answer = raw.call("elect_leaders", 2, election_type=kind, topic_partitions=asked, timeout=5000)
        ((part,),) = [each["partition_result"] for each in answer["replica_election_results"]]
        assert (answer["error_code"], part["error_code"]) == (whole, code)


@pytest.mark.case("Every version", "AlterPartitionReassignments v{version}")
@pytest.mark.parametrize("version", range(2))
def test_alter_reassignments(
    raw: RawConnection, target: Target, new_topic: NewTopic, unused_name: Callable[[], str], version: int
) -> None:
    topic, unknown, node = new_topic(), unused_name(), raw.node_id()
    refused = INVALID_REPLICA_ASSIGNMENT
    chosen: list[tuple[str, int, list[int] | None, int]] = [
        (topic, 0, list(target.node_ids), 0),
        (topic, 0, None, NO_REASSIGNMENT_IN_PROGRESS),
        (topic, 0, [node + 8], refused),
        (topic, 0, [node, node + 8], refused),
        (topic, 0, [], refused),
        (topic, 0, [node, node], refused),
        (topic, 0, [-1], refused),
        (topic, 9, [node], UNKNOWN_TOPIC_OR_PARTITION),
        (topic, -1, None, UNKNOWN_TOPIC_OR_PARTITION),
        (unknown, 0, [node], UNKNOWN_TOPIC_OR_PARTITION),
        ("", 0, None, UNKNOWN_TOPIC_OR_PARTITION),
    ]
    topics = [
        {"name": name, "partitions": [{"partition_index": n, "replicas": replicas}]}
        for name, n, replicas, _ in chosen
    ]
    answer = raw.call("alter_partition_reassignments", version, timeout=5000, topics=topics)
    assert answer["error_code"] == 0
    assert [
        (each["name"], part["partition_index"], part["error_code"])
        for each in answer["responses"]
        for part in each["partitions"]
    ] == [(name, n, code) for name, n, _, code in chosen]
    asked = [{"name": name, "partition_indexes": [0, -1]} for name in (topic, unknown, "")]
    for wanted in (None, [], asked):
        under_way = raw.call("list_partition_reassignments", 0, timeout=5000, topics=wanted)
        assert (under_way["error_code"], under_way["topics"]) == (0, [])


# -- the quorum, access rules ------------------------------------------------------------------------------


def _quorum(raw: RawConnection, version: int, *wanted: tuple[str, list[int]]) -> Answer:
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": n} for n in indexes]}
        for name, indexes in wanted
    ]
    answer = raw.call("describe_quorum", version, topics=topics)
    assert answer["error_code"] == 0
    return answer


@pytest.mark.case("Every version", "DescribeQuorum v{version}")
@pytest.mark.parametrize("version", range(3))
def test_describe_quorum_versions(
    raw: RawConnection, target: Target, new_topic: NewTopic, version: int
) -> None:
    ends = []
    for _ in range(2):
        answer = _quorum(raw, version, ("__cluster_metadata", [0]))
        ((part,),) = [each["partitions"] for each in answer["topics"]]
        assert sorted(each["replica_id"] for each in part["current_voters"]) == list(target.node_ids)
        (voter,) = [each for each in part["current_voters"] if each["replica_id"] == part["leader_id"]]
        assert part["error_code"] == 0
        assert 0 < part["high_watermark"] <= voter["log_end_offset"]
        assert (part["observers"], part["leader_epoch"] >= 1) == ([], True)
        if version >= 1:
            assert voter["last_caught_up_timestamp"] > 1_700_000_000_000
        if version >= 2:
            assert sorted(each["node_id"] for each in answer["nodes"]) == list(target.node_ids)
            for (listener,) in [each["listeners"] for each in answer["nodes"]]:
                assert listener["name"] and listener["port"]
        ends.append(voter["log_end_offset"])
        new_topic()
    assert ends[0] < ends[1]


@pytest.mark.case("The quorum on the wire", "anything but its one partition is unknown")
@pytest.mark.parametrize("version", [0, 2])
def test_describe_quorum_questions(raw: RawConnection, unused_name: Callable[[], str], version: int) -> None:
    metadata = "__cluster_metadata"
    questions: list[list[tuple[str, list[int]]]] = [
        [(unused_name(), [0])],
        [(metadata, [1])],
        [(metadata, [0, 0])],
        [(metadata, [0]), ("", [-1])],
        [(metadata, [])],
    ]
    for wanted in questions:
        answer = _quorum(raw, version, *wanted)
        found = [
            (each["topic_name"], [part["partition_index"] for part in each["partitions"]])
            for each in answer["topics"]
        ]
        assert found == wanted
        codes = {part["error_code"] for each in answer["topics"] for part in each["partitions"]}
        assert codes <= {UNKNOWN_TOPIC_OR_PARTITION}
    assert _quorum(raw, version)["topics"] == []


_FILTER: Answer = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_RULE: Answer = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


@pytest.mark.case("Every version", "DescribeAcls, CreateAcls, DeleteAcls v{version} without an authorizer")
@pytest.mark.parametrize("version", range(1, 4))
def test_acls_versions(raw: RawConnection, version: int) -> None:
    described = raw.call("describe_acls", version, **_FILTER)
    assert (described["error_code"], described["resources"]) == (SECURITY_DISABLED, [])
    assert described["error_message"] == "No Authorizer is configured on the broker"
    said = {"error_code": SECURITY_DISABLED, "error_message": "No Authorizer is configured."}
    odd = {**_RULE, "operation": 99, "resource_name": "", "principal": ""}
    assert raw.call("create_acls", version, creations=[_RULE, odd])["results"] == [said, said]
    ended = raw.call("delete_acls", version, filters=[_FILTER, _FILTER])["filter_results"]
    assert ended == [{**said, "matching_acls": []}] * 2
    assert raw.call("create_acls", version, creations=[])["results"] == []
    assert raw.call("delete_acls", version, filters=[])["filter_results"] == []


@pytest.mark.case("Access rules on the wire", "an unknown element ends the connection of {api}")
@pytest.mark.parametrize("api", ["describe_acls", "create_acls", "delete_acls"])
def test_acls_unknown_elements(raw: RawConnection, raw_2: RawConnection, api: str) -> None:
    rule = {**(_RULE if api == "create_acls" else _FILTER), "operation": 0}
    fields: Answer = {"create_acls": {"creations": [rule]}, "delete_acls": {"filters": [rule]}}.get(api, rule)
    with pytest.raises(ConnectionClosed):
        raw_2.call(api, 3, **fields)
    assert raw.call("describe_acls", 3, **_FILTER)["error_code"] == SECURITY_DISABLED
