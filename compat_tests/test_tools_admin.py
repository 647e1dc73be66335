"""Kafka's administration tools, unchanged, by main class: partitions, records, disks, leaders, the quorum.

The same is expected of both brokers. `kafka-features describe` prints three features on Lockstep, two of them
its own, which promises no others (docs/decisions/0010-no-features-advertised.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests import kafka_apis
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.java_driver import ToolResult
from compat_tests.raw import RawConnection, batch
from compat_tests.targets import Target

Tool = Callable[..., ToolResult]
_TOOLS = "org.apache.kafka.tools"


def _out(result: ToolResult) -> str:
    assert result.status == 0, result.stdout + result.stderr
    return result.stdout


def _all(result: ToolResult) -> str:
    return result.stdout + result.stderr


@pytest.mark.case("Kafka's tools", "kafka-topics --alter --partitions: more, as many, fewer, unknown topic")
def test_alter_partitions(
    tool: Tool, new_topic: NewTopic, raw: RawConnection, unused_name: Callable[[], str]
) -> None:
    main, topic = f"{_TOOLS}.TopicCommand", new_topic()
    _out(tool(main, "--alter", "--topic", topic, "--partitions", "3"))
    assert f"Topic: {topic}\tPartition: 2\tLeader: " in _out(tool(main, "--describe", "--topic", topic))
    same = tool(main, "--alter", "--topic", topic, "--partitions", "3")
    assert same.status == 1 and "Topic already has 3 partition(s)." in _all(same)
    fewer = tool(main, "--alter", "--topic", topic, "--partitions", "2")
    assert fewer.status == 1
    assert f"The topic {topic} currently has 3 partition(s); 2 would not be an increase." in _all(fewer)
    missing = tool(main, "--alter", "--topic", unused_name(), "--partitions", "3")
    assert missing.status == 1 and "does not exist" in _all(missing)


@pytest.mark.case("Kafka's tools", "kafka-topics --alter --replica-assignment")
def test_alter_with_assignment(tool: Tool, target: Target, new_topic: NewTopic) -> None:
    main, topic = f"{_TOOLS}.TopicCommand", new_topic()
    node = ":".join(str(each) for each in target.node_ids)
    chosen = ("--partitions", "3", "--replica-assignment", f"{node},{node},{node}")
    _out(tool(main, "--alter", "--topic", topic, *chosen))
    wrong = ("--partitions", "4", "--replica-assignment", f"{node},{node},{node},{node.replace('1', '77')}")
    refused = tool(main, "--alter", "--topic", topic, *wrong)
    assert refused.status == 1
    assert "includes broker 77, but no such broker is registered" in _all(refused)


@pytest.mark.case("Kafka's tools", "kafka-topics --describe with its filters")
def test_describe_filters(tool: Tool, target: Target, new_topic: NewTopic) -> None:
    main, topic = f"{_TOOLS}.TopicCommand", new_topic(partitions=2, configs={"retention.ms": "86400000"})
    for filter_ in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
        "--at-min-isr-partitions",
    ):
        shown = _out(tool(main, "--describe", filter_, "--topic", topic))
        # one replica of one is just what min.insync.replicas asks for; three are more
        is_least = filter_ == "--at-min-isr-partitions" and len(target.node_ids) == 1
        assert (topic in shown) == is_least, shown
    assert topic in _out(tool(main, "--describe", "--topics-with-overrides", "--topic", topic))
    several = _out(tool(main, "--describe", "--exclude-internal"))
    assert f"Topic: {topic}" in several and "__consumer_offsets" not in several
    by_id = re.search(rf"Topic: {topic}\tTopicId: (\S{{22}})", several)
    assert by_id is not None
    assert f"Topic: {topic}" in _out(tool(main, "--describe", "--topic-id", by_id[1]))


@pytest.mark.case("Kafka's tools", "kafka-topics --describe of a topic in pages of partitions")
def test_describe_pages(tool: Tool, new_topic: NewTopic) -> None:
    main, topic = f"{_TOOLS}.TopicCommand", new_topic(partitions=7)
    shown = _out(tool(main, "--describe", "--topic", topic, "--partition-size-limit-per-response", "2"))
    assert re.findall(r"Partition: (\d+)", shown) == [str(number) for number in range(7)]


@pytest.mark.case("Kafka's tools", "kafka-delete-records")
def test_delete_records(tool: Tool, new_topic: NewTopic, raw: RawConnection, tmp_path: Path) -> None:
    topic = new_topic(partitions=2)
    raw.produce(topic, batch([b"a", b"b", b"c"]))
    chosen = [
        {"topic": topic, "partition": 0, "offset": 2},
        {"topic": topic, "partition": 1, "offset": -1},
    ]
    plan = tmp_path / "offsets.json"
    plan.write_text(json.dumps({"partitions": chosen, "version": 1}))
    said = _out(tool(f"{_TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(plan)))
    assert f"partition: {topic}-0\tlow_watermark: 2" in said
    assert f"partition: {topic}-1\tlow_watermark: 0" in said
    assert raw.list_offset(topic, -2)["offset"] == 2
    plan.write_text(json.dumps({"partitions": [{**chosen[0], "offset": 4}], "version": 1}))
    assert "OffsetOutOfRange" in _all(tool(f"{_TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(plan)))


@pytest.mark.case("Kafka's tools", "kafka-log-dirs --describe")
def test_log_dirs(tool: Tool, target: Target, new_topic: NewTopic, raw: RawConnection) -> None:
    topic = new_topic(partitions=2, configs=target.together)
    data = batch([b"x" * 1000])
    for _ in range(3):
        raw.produce(topic, data)
    said = _out(tool(f"{_TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic))
    brokers = json.loads(said.splitlines()[-1])["brokers"]
    assert sorted(each["broker"] for each in brokers) == list(target.node_ids)
    for broker in brokers:
        (directory,) = broker["logDirs"]
        assert directory["error"] is None and directory["logDir"].startswith("/")
        sizes = {each["partition"]: (each["size"], each["offsetLag"]) for each in directory["partitions"]}
        assert sizes.keys() == {f"{topic}-0", f"{topic}-1"}
        if broker["broker"] == raw.leader_of(topic):
            assert sizes == {f"{topic}-0": (3 * len(data), 0), f"{topic}-1": (0, 0)}


@pytest.mark.case("Kafka's tools", "kafka-leader-election: all, one, unknown")
def test_leader_election(tool: Tool, new_topic: NewTopic, unused_name: Callable[[], str]) -> None:
    main, topic = f"{_TOOLS}.LeaderElectionCommand", new_topic()
    _out(tool(main, "--election-type", "preferred", "--all-topic-partitions"))
    one = ("--partition", "0", "--topic")
    said = _out(tool(main, "--election-type", "preferred", *one, topic))
    assert f"Valid replica already elected for partitions {topic}-0" in said
    unknown = unused_name()
    missing = tool(main, "--election-type", "unclean", *one, unknown)
    assert missing.status == 1 and f"No such topic as {unknown}" in _all(missing)


@pytest.mark.case("Kafka's tools", "kafka-transactions list and describe-producers")
def test_transactions(tool: Tool, new_topic: NewTopic, raw: RawConnection) -> None:
    main, topic = f"{_TOOLS}.TransactionsCommand", new_topic()
    # Other cases' transactional ids may follow.
    assert _out(tool(main, "list")).splitlines()[0].split() == [
        "TransactionalId",
        "Coordinator",
        "ProducerId",
        "TransactionState",
    ]
    producer_id, epoch = raw.producer_id()
    raw.produce(topic, batch([b"a", b"b"], producer=(producer_id, epoch), base_sequence=0))
    said = _out(tool(main, "describe-producers", "--topic", topic, "--partition", "0"))
    row = said.splitlines()[1].split()
    assert row[:4] == [str(producer_id), str(epoch), "-1", "1"]
    assert int(row[4]) > 1_700_000_000_000 and row[5] == "None"


@pytest.mark.case("Kafka's tools", "kafka-metadata-quorum describe --status and --replication")
def test_metadata_quorum(tool: Tool, target: Target, raw: RawConnection) -> None:
    main = f"{_TOOLS}.MetadataQuorumCommand"
    cluster = raw.call("metadata", 12, topics=[])
    status = dict(
        line.split(":", 1) for line in _out(tool(main, "describe", "--status")).splitlines() if ":" in line
    )
    assert status["ClusterId"].strip() == cluster["cluster_id"]
    node = status["LeaderId"].strip()
    assert int(node) in target.node_ids
    assert target.name == "lockstep-3" or status["MaxFollowerLag"].strip() == "0"
    assert int(status["LeaderEpoch"]) >= 1 and int(status["HighWatermark"]) >= 1
    assert f'"id": {node}, "endpoints": [' in status["CurrentVoters"]
    assert status["CurrentObservers"].strip() == "[]"
    header, *rows = _out(tool(main, "describe", "--replication")).splitlines()
    told = [dict(zip(header.split(), row.split(), strict=True)) for row in rows]
    assert sorted(int(each["NodeId"]) for each in told) == list(target.node_ids)
    (found,) = [each for each in told if each["Status"] == "Leader"]
    assert (found["NodeId"], found["Lag"]) == (node, "0")
    assert int(found["LogEndOffset"]) >= int(status["HighWatermark"])


@pytest.mark.case("Kafka's tools", "kafka-features describe")
def test_features(tool: Tool, target: Target) -> None:
    said = _out(tool(f"{_TOOLS}.FeatureCommand", "describe"))
    assert re.search(r"Feature: transaction.version.*SupportedMaxVersion: 2.*FinalizedVersionLevel: 2", said)
    own = re.findall(r"Feature: lockstep\.(\w+).*SupportedMinVersion: 1\b.*FinalizedVersionLevel: 1\b", said)
    assert own == ([] if target.name == "kafka" else ["atomic", "locks", "staged"])
    assert re.search(r"Feature: group.version.*SupportedMaxVersion: 1\b.*FinalizedVersionLevel: 1\b", said)
    assert (len(said.splitlines()) == 5) == (target.name != "kafka")


@pytest.mark.case(
    "Kafka's tools", "kafka-features upgrade: a level that is there already, an unknown feature"
)
def test_upgrade_features(tool: Tool) -> None:
    main = f"{_TOOLS}.FeatureCommand"
    assert "transaction.version was upgraded to 2." in _out(
        tool(main, "upgrade", "--feature", "transaction.version=2")
    )
    refused = tool(main, "upgrade", "--feature", "no.such=1")
    assert refused.status == 1
    assert "does not support this feature" in _all(refused)


@pytest.mark.case("Kafka's tools", "kafka-cluster unregister and unregister-controller: an unknown id")
def test_unregister(world: World, target: Target, tool: Tool) -> None:
    for words, text in (
        (("unregister", "--id", "97"), "Broker ID 97 is not currently registered"),
        (("unregister-controller", "--id", "97"), "Controller ID 97 is not currently registered"),
    ):
        done = world.driver().tool(f"{_TOOLS}.ClusterTool", *words, "--bootstrap-server", target.bootstrap)
        assert done.status == 1, _all(done)
        assert text in _all(done)


@pytest.mark.case("Kafka's tools", "kafka-delegation-tokens: --create and --describe are not allowed")
def test_delegation_tokens(tool: Tool, tmp_path: Path) -> None:
    main, config = f"{_TOOLS}.DelegationTokenCommand", tmp_path / "client.properties"
    config.write_text("")
    created = ("--create", "--max-life-time-period", "-1", "--command-config", str(config))
    for words in (created, ("--describe", "--command-config", str(config))):
        done = tool(main, *words)
        assert done.status == 1 and "UnsupportedByAuthenticationException" in _all(done), _all(done)


@pytest.mark.case(
    "Kafka's tools", "kafka-reassign-partitions: into a log directory that the broker does not have"
)
def test_reassign_log_dirs(tool: Tool, target: Target, new_topic: NewTopic, tmp_path: Path) -> None:
    main, topic = f"{_TOOLS}.reassign.ReassignPartitionsCommand", new_topic()
    plan, nodes = tmp_path / "plan.json", list(target.node_ids)
    move = {"topic": topic, "partition": 0, "replicas": nodes, "log_dirs": ["/nowhere"] * len(nodes)}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    done = tool(main, "--execute", "--timeout", "5000", "--reassignment-json-file", str(plan))
    assert done.status == 1 and "LogDirNotFoundException" in _all(done), _all(done)


@pytest.mark.case("Kafka's tools", "kafka-acls --list without an authorizer")
def test_acls(tool: Tool) -> None:
    assert "SecurityDisabledException: No Authorizer is configured on the broker" in _all(
        tool(f"{_TOOLS}.AclCommand", "--list")
    )
    added = ("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
    assert "SecurityDisabledException" in _all(tool(f"{_TOOLS}.AclCommand", *added))


@pytest.mark.case(
    "Kafka's tools", "kafka-reassign-partitions: --list, --execute to where it is, and elsewhere"
)
def test_reassign(tool: Tool, target: Target, new_topic: NewTopic, tmp_path: Path) -> None:
    main, topic = f"{_TOOLS}.reassign.ReassignPartitionsCommand", new_topic()
    assert "No partition reassignments found." in _out(tool(main, "--list"))
    plan = tmp_path / "plan.json"
    for replicas, status in ((list(target.node_ids), 0), ([77], 1)):
        moves = [{"topic": topic, "partition": 0, "replicas": replicas}]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        done = tool(main, "--execute", "--reassignment-json-file", str(plan))
        assert done.status == status, _all(done)
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{**moves[0], "replicas": list(target.node_ids)}]})
    )
    verified = _out(tool(main, "--verify", "--preserve-throttles", "--reassignment-json-file", str(plan)))
    assert f"Reassignment of partition {topic}-0 is completed." in verified


@pytest.mark.case("Kafka's tools", "kafka-cluster list-endpoints")
def test_list_endpoints(world: World, target: Target, tool: Tool) -> None:
    words = ("list-endpoints", "--bootstrap-server", target.bootstrap)
    _, *rows = _out(world.driver().tool(f"{_TOOLS}.ClusterTool", *words)).splitlines()
    found = []
    for row in rows:
        _, host, port, rack, *state = row.split()
        found.append(f"{host}:{port}")
        assert (rack, state) == ("null", ["unfenced", "broker"])
    assert sorted(found) == sorted(target.bootstrap.split(","))


@pytest.mark.case("Kafka's tools", "kafka-broker-api-versions: every administration API is usable")
def test_api_versions(tool: Tool) -> None:
    said = _out(tool(f"{_TOOLS}.BrokerApiVersionsCommand"))
    for api in (
        "DeleteRecords(21): 0 to 2",
        "DescribeAcls(29): 1 to 3",
        "CreateAcls(30): 1 to 3",
        "DeleteAcls(31): 1 to 3",
        "DescribeLogDirs(35): 1 to 5",
        "CreatePartitions(37): 0 to 3",
        "ElectLeaders(43): 0 to 2",
        "AlterPartitionReassignments(45): 0 to 1",
        "ListPartitionReassignments(46): 0",
        "DescribeQuorum(55): 0 to 2",
        "DescribeProducers(61): 0",
        "DescribeTransactions(65): 0",
        "ListTransactions(66): 0 to 2",
        "DescribeTopicPartitions(75): 0",
    ):
        assert f"{api} [usable: {api.split()[-1]}]" in said


@pytest.mark.case("Kafka's tools", "kafka-cluster api-versions: every API that the node lists is usable")
def test_cluster_api_versions(world: World, target: Target, tool: Tool) -> None:
    words = ("api-versions", "--bootstrap-server", target.bootstrap)
    said = _out(world.driver().tool(f"{_TOOLS}.ClusterTool", *words))
    listed = {int(key) for key in re.findall(r"\((\d+)\): \d+(?: to \d+)? \[usable: \d+\]", said)}
    wanted = kafka_apis.KAFKAS if target.name == "kafka" else kafka_apis.listed_by_lockstep()
    assert listed == set(wanted)


@pytest.mark.case("Kafka's tools", "kafka-features version-mapping and feature-dependencies of 4.4")
def test_feature_mapping(tool: Tool) -> None:
    main = f"{_TOOLS}.FeatureCommand"
    assert "transaction.version=2" in _out(tool(main, "version-mapping", "--release-version", "4.4-IV0"))
    assert "transaction.version=2" in _out(
        tool(main, "feature-dependencies", "--feature", "transaction.version=2")
    )
