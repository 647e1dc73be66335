"""Kafka's own command-line tools, unchanged, by main class; those around groups: test_tools_groups.py."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.java_driver import ToolResult, run_tool
from compat_tests.raw import RawConnection, batch, values_in
from compat_tests.targets import Target

Tool = Callable[..., ToolResult]
_TOOLS = "org.apache.kafka.tools"


def _out(result: ToolResult) -> str:
    assert result.status == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.case("Kafka's tools", "kafka-topics: create, list, describe, delete")
def test_topics(tool: Tool, target: Target, unused_name: Callable[[], str]) -> None:
    main, name = f"{_TOOLS}.TopicCommand", unused_name()
    made = tool(main, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=86400000")
    assert f"Created topic {name}." in _out(made)
    assert name in _out(tool(main, "--list")).split()
    described = _out(tool(main, "--describe", "--topic", name))
    copies = rf"PartitionCount: 2\s+ReplicationFactor: {len(target.node_ids)}"
    assert re.search(rf"Topic: {name}\s+TopicId: \S{{22}}\s+{copies}", described)
    assert "retention.ms=86400000" in described
    _out(tool(main, "--delete", "--topic", name))
    assert name not in _out(tool(main, "--list")).split()
    missing = tool(main, "--describe", "--topic", name)
    assert missing.status == 1 and "does not exist" in missing.stdout + missing.stderr


@pytest.mark.case("Kafka's tools", "kafka-get-offsets: latest, earliest, by time")
def test_get_offsets(tool: Tool, new_topic: NewTopic, raw: RawConnection) -> None:
    main, topic = f"{_TOOLS}.GetOffsetShell", new_topic(partitions=2)
    raw.produce(topic, batch([b"a", b"b", b"c"], timestamp_ms=1_790_000_000_000))
    assert _out(tool(main, "--topic", topic)).split() == [f"{topic}:0:3", f"{topic}:1:0"]
    assert _out(tool(main, "--topic", topic, "--time", "-2")).split() == [f"{topic}:0:0", f"{topic}:1:0"]
    by_time = _out(tool(main, "--topic", topic, "--time", "1790000000001"))
    assert f"{topic}:0:1" in by_time.split()
    assert f"{topic}:0:2" in _out(tool(main, "--topic", topic, "--time", "max-timestamp")).split()


@pytest.mark.case("Kafka's tools", "kafka-console-producer and -consumer (--partition): keys, headers, nulls")
def test_console(tool: Tool, new_topic: NewTopic) -> None:
    topic = new_topic()
    lines = b"h1:v1,h2:v2\tkey1\tvalue1\nh1:v1\tkey2\tNULL\n"
    options = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    reader = [word for each in options for word in ("--reader-property", each)]
    produced = tool(
        f"{_TOOLS}.ConsoleProducer", "--topic", topic, "--compression-codec", "lz4", *reader, stdin=lines
    )
    _out(produced)
    shown = ("print.key=true", "print.headers=true", "print.offset=true", "print.partition=true")
    formatter = [word for each in shown for word in ("--formatter-property", each)]
    where = ("--topic", topic, "--partition", "0", "--offset", "0", "--max-messages", "2")
    found = _out(tool(f"{_TOOLS}.consumer.ConsoleConsumer", *where, "--timeout-ms", "15000", *formatter))
    assert found.splitlines() == [
        "Partition:0\tOffset:0\th1:v1,h2:v2\tkey1\tvalue1",
        "Partition:0\tOffset:1\th1:v1\tkey2\tnull",
    ]


@pytest.mark.case("Kafka's tools", "kafka-producer-perf-test, read back by assign")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_producer_performance(
    tool: Tool, new_topic: NewTopic, raw: RawConnection, world: World, target: Target, codec: str
) -> None:
    topic = new_topic()
    how = ("--num-records", "5000", "--record-size", "1000", "--throughput", "-1")
    properties = ("--command-property", "acks=all", f"compression.type={codec}")
    said = _out(tool(f"{_TOOLS}.ProducerPerformance", "--topic", topic, *how, *properties))
    assert said.splitlines()[-1].startswith("5000 records sent, ")
    assert raw.list_offset(topic, -1)["offset"] == 5000
    read = _out(world.driver().tool("AssignPerformance", target.bootstrap, topic, "5000"))
    assert read.startswith("5000 records, 5000000 bytes, ")


@pytest.mark.case("Kafka's tools", "kafka-verifiable-producer: every acknowledged value is there, in order")
def test_verifiable_producer(tool: Tool, new_topic: NewTopic, raw: RawConnection, target: Target) -> None:
    topic = new_topic()
    where = ("--bootstrap-server", target.bootstrap, "--topic", topic, "--max-messages", "200")
    said = _out(run_tool(f"{_TOOLS}.VerifiableProducer", where))  # it answers only when its JVM ends
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    sent = {each["offset"]: each["value"] for each in events if each["name"] == "producer_send_success"}
    assert len(sent) == 200
    found = {offset: (value or b"").decode() for offset, value in values_in(raw.fetch(topic, 0)["records"])}
    assert found == sent


@pytest.mark.case("Kafka's tools", "kafka-console-producer, read by kafka-console-consumer --from-beginning")
def test_console_subscribed(tool: Tool, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    lines = [f"line {n}" for n in range(30)]
    _out(tool(f"{_TOOLS}.ConsoleProducer", "--topic", topic, stdin="\n".join(lines).encode()))
    how = ("--topic", topic, "--from-beginning", "--max-messages", "30", "--timeout-ms", "15000")
    found = _out(tool(f"{_TOOLS}.consumer.ConsoleConsumer", *how)).splitlines()
    assert sorted(found) == sorted(lines)


@pytest.mark.case("Kafka's tools", "kafka-configs --describe: topic and broker")
def test_configs(tool: Tool, new_topic: NewTopic, raw: RawConnection) -> None:
    topic = new_topic(configs={"retention.ms": "86400000"})
    main = f"{_TOOLS}.ConfigCommand"
    shown = _out(tool(main, "--describe", "--entity-type", "topics", "--entity-name", topic))
    assert "retention.ms=86400000" in shown
    everything = _out(tool(main, "--describe", "--all", "--entity-type", "topics", "--entity-name", topic))
    assert "max.message.bytes=1048588" in everything
    node_id = str(raw.call("metadata", 12, topics=[])["brokers"][0]["node_id"])
    _out(tool(main, "--describe", "--all", "--entity-type", "brokers", "--entity-name", node_id))


@pytest.mark.case("Kafka's tools", "kafka-cluster cluster-id")
def test_cluster_id(world: World, target: Target, raw: RawConnection, tool: Tool) -> None:
    main = f"{_TOOLS}.ClusterTool"
    said = _out(world.driver().tool(main, "cluster-id", "--bootstrap-server", target.bootstrap))
    assert raw.call("metadata", 12, topics=[])["cluster_id"] in said


@pytest.mark.case("Kafka's tools", "kafka-broker-api-versions")
def test_api_versions(tool: Tool, target: Target) -> None:
    said = _out(tool(f"{_TOOLS}.BrokerApiVersionsCommand"))
    assert set(re.findall(r"^(\S+) \(id: ", said, re.MULTILINE)) == set(target.bootstrap.split(","))
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", said)
    assert re.search(r"Fetch\(1\): 4 to 18 \[usable: 18\]", said)
