"""`lockstep topics`."""

from __future__ import annotations

import asyncio
import base64
import json

from lockstep.kafka_client.client import Client
from lockstep.testing import RunningBroker
from tests.lockstep.conftest import Run


def test_create_describe_list_delete(command: Run, topic: str) -> None:
    created = command("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=123456")
    assert created == (0, f"created {topic} with 3 partitions\n", "")

    described = command("topics", "describe", topic)
    assert described.status == 0
    lines = described.out.splitlines()
    assert lines[0].startswith(f"topic {topic}   id ")
    assert "  retention.ms=123456" in lines
    assert "max.message.bytes" not in described.out
    assert lines[-3].split() == ["0", "1", "1", "1", "1", "0", "0"]
    assert len(command("topics", "describe", topic, "--all-configs").out.splitlines()) > len(lines)

    assert f"{topic}  " in command("topics", "list").out
    assert command("topics", "delete", topic) == (0, f"deleted {topic}\n", "")
    assert topic not in command("topics", "list").out


def test_documents_for_programs(command: Run, topic: str) -> None:
    made = json.loads(command("topics", "create", topic, "-p", "2", "--json").out)
    assert (made["topic"], made["partitions"], made["created"]) == (topic, 2, True)
    listed = [json.loads(line) for line in command("topics", "list", "--json").out.splitlines()]
    assert [entry for entry in listed if entry["topic"] == topic] == [
        {"topic": topic, "topic_id": made["topic_id"], "internal": False, "partitions": 2, "replicas": 1}
    ]
    command("produce", topic, "-p", "1", stdin=b"a\nb\n")
    described = json.loads(command("topics", "describe", "--json", topic).out)
    assert [part["end_offset"] for part in described["partition_details"]] == [0, 2]
    assert described["configs"]["cleanup.policy"] == {"value": "delete", "set": False}
    assert json.loads(command("topics", "delete", topic, "--json").out) == {"topic": topic, "deleted": True}


async def test_an_id_is_shown_as_kafkas_tools_and_lock_headers_have_it(
    command: Run, running: RunningBroker, topic: str
) -> None:
    """So that it can be copied into `lockstep-topic-id`, which takes no other form."""
    made = json.loads((await asyncio.to_thread(command, "topics", "create", topic, "--json")).out)
    async with Client(running.bootstrap_servers) as client:
        topic_id = (await client.topic(topic)).topic_id
    assert base64.urlsafe_b64decode(made["topic_id"] + "==") == topic_id and len(made["topic_id"]) == 22
    described = await asyncio.to_thread(command, "topics", "describe", topic)
    assert described.out.splitlines()[0] == f"topic {topic}   id {made['topic_id']}"


def test_alter(command: Run, topic: str) -> None:
    command("topics", "create", topic)
    assert command("topics", "alter", topic, "--partitions", "3") == (
        0,
        f"{topic} has 3 partitions now\n",
        "",
    )
    assert command("produce", topic, "-p", "2", stdin=b"a\n").status == 0
    grown = json.loads(command("topics", "alter", topic, "-p", "4", "--json").out)
    assert (grown["topic"], grown["partitions"]) == (topic, 4)


def test_refusals_are_one_line_and_status_1(command: Run, topic: str) -> None:
    command("topics", "create", topic)
    again = command("topics", "create", topic)
    assert again.status == 1 and again.out == ""
    assert again.err.startswith(f"lockstep: topic {topic}: ") and "(TOPIC_ALREADY_EXISTS)" in again.err
    assert again.err.count("\n") == 1

    for arguments, said in [
        (("create", topic + "x", "-c", "no.such.config=1"), "no.such.config"),
        (("create", "bad name!"), "INVALID_TOPIC"),
        (("describe", topic + "x"), "there is no such topic"),
        (("delete", topic + "x"), "there is no such topic"),
        (("alter", topic + "x", "-p", "2"), "there is no such topic"),
        (("alter", topic, "-p", "1"), "Topic already has 1 partition(s). (INVALID_PARTITIONS)"),
    ]:
        outcome = command("topics", *arguments)
        assert outcome.status == 1 and said in outcome.err and outcome.err.count("\n") == 1


def test_what_is_there_already_or_not_can_be_fine(command: Run, topic: str) -> None:
    assert command("topics", "delete", topic, "--if-exists") == (0, f"{topic} was not there\n", "")
    command("topics", "create", topic, "-p", "2")
    again = command("topics", "create", topic, "--if-not-exists")
    assert again == (0, f"{topic} was there already, with 2 partitions\n", "")


def test_the_bootstrap_may_stand_before_or_behind(command: Run) -> None:
    for arguments in (("--bootstrap", "localhost:1", "list"), ("list", "--bootstrap", "localhost:1")):
        outcome = command("topics", *arguments)
        assert outcome.status == 1
        assert "cannot connect to localhost:1: connection refused" in outcome.err


def test_a_misplaced_bootstrap_option_is_reported_with_its_position(command: Run) -> None:
    for words in (("-b", "localhost:1"), ("--bootstrap-server", "localhost:1"), ("--timeout", "5")):
        outcome = command(*words, "topics", "list")
        assert outcome.status == 2
        said = f"error: {words[0]} goes behind the command: lockstep COMMAND ... {' '.join(words)}\n"
        assert outcome.err.endswith(said), outcome


def test_replicas_under_kafkas_name(command: Run, topic: str) -> None:
    refused = command("topics", "create", topic, "--replication-factor", "3")
    assert refused.status == 1 and "(INVALID_REPLICATION_FACTOR)" in refused.err
    assert command("topics", "create", topic, "--replication-factor", "1").status == 0


def test_wrong_usage_is_status_2(command: Run) -> None:
    for arguments in (
        ("topics",),
        ("topics", "create"),
        ("topics", "create", "t", "-p", "-3"),
        ("topics", "alter", "t"),
        (),
    ):
        assert command(*arguments).status == 2
