"""`lockstep groups`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import lockstep.testing
from lockstep.kafka_client.connection import BrokerError
from lockstep.kafka_client.groups import describe_group
from lockstep.protocol.client_errors import Unsupported
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse, DescribedGroup
from lockstep.protocol.messages.describe_groups import DescribedGroup as ClassicGroup
from lockstep.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tests.lockstep.conftest import Run


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


@pytest.fixture
def filled(command: Run, topic: str) -> str:
    """A topic of two partitions with three records in the first."""
    command("topics", "create", topic, "--partitions", "2")
    command("produce", topic, "-p", "0", stdin=b"a\nb\nc\n")
    return topic


@pytest.fixture
def member(
    request: pytest.FixtureRequest, running: lockstep.testing.RunningBroker, filled: str, group: str
) -> Iterator[Consumer]:
    """A consumer that has its partitions and has committed what it read."""
    settings = {
        "bootstrap.servers": running.bootstrap_servers,
        "group.id": group,
        "client.id": "reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.protocol": getattr(request, "param", "classic"),
    }
    consumer = Consumer(settings)
    consumer.subscribe([filled])
    try:
        assert [message.value() for message in consumer.consume(3, timeout=15)] == [b"a", b"b", b"c"]
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def test_a_live_group_is_listed_and_described(
    command: Run, filled: str, group: str, member: Consumer
) -> None:
    command("produce", filled, "-p", "0", stdin=b"d\n")
    listed = [json.loads(line) for line in command("groups", "list", "--json").out.splitlines()]
    assert {"group": group, "state": "Stable", "protocol_type": "consumer"} in listed
    described = json.loads(command("groups", "describe", group, "--json").out)
    assert (described["state"], described["protocol"]) == ("Stable", "range")
    (reader,) = described["members"]
    assert reader["client_id"] == "reader"
    assert reader["partitions"] == [[filled, 0], [filled, 1]]
    first, second = described["partitions"]
    assert (first["committed"], first["end_offset"], first["lag"]) == (3, 4, 1)
    assert first["member_id"] == reader["member_id"]
    assert (second["committed"], second["lag"]) == (None, None)
    shown = command("groups", "describe", group).out
    assert shown.startswith(f"group {group}   Stable, 1 member, range\n")
    assert command("groups", "delete", group).err.endswith(
        "it has members; stop them first (NON_EMPTY_GROUP)\n"
    )
    refused = command("groups", "reset", group, filled, "--to-earliest", "--execute")
    assert refused.status == 1 and "has members (Stable)" in refused.err


@pytest.mark.parametrize("member", ["consumer"], indirect=True)
def test_a_group_of_the_consumer_protocol_is_described(
    command: Run, filled: str, group: str, member: Consumer
) -> None:
    listed = [json.loads(line) for line in command("groups", "list", "--json").out.splitlines()]
    assert {"group": group, "state": "Stable", "protocol_type": "consumer"} in listed
    described = json.loads(command("groups", "describe", group, "--json").out)
    assert (described["state"], described["protocol"], described["protocol_type"]) == (
        "Stable",
        "uniform",
        "consumer",
    )
    (reader,) = described["members"]
    assert (reader["client_id"], reader["partitions"]) == ("reader", [[filled, 0], [filled, 1]])
    assert [row["member_id"] for row in described["partitions"]] == [reader["member_id"]] * 2
    shown = command("groups", "describe", group).out
    assert shown.startswith(f"group {group}   Stable, 1 member, uniform\n")
    for arguments in (("reset", group, filled, "--to-earliest"), ("delete", group)):
        refused = command("groups", *arguments)
        assert refused.status == 1 and "has members" in refused.err, arguments
    member.close()
    assert json.loads(command("groups", "describe", group, "--json").out)["state"] == "Empty"
    assert command("groups", "reset", group, filled, "--to-earliest", "--execute").status == 0
    assert command("groups", "delete", group).status == 0


@pytest.mark.parametrize(
    "answer",
    [
        Unsupported("the broker speaks nothing of CONSUMER_GROUP_DESCRIBE"),
        DescribedGroup(error_code=ErrorCode.UNSUPPORTED_VERSION),
        DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
async def test_a_broker_without_the_consumer_protocol_has_no_such_group(
    answer: Unsupported | DescribedGroup,
) -> None:
    assert (await describe_group(_client(answer), "g")).state == "Dead"


async def test_another_error_of_a_consumer_group_is_reported() -> None:
    denied = DescribedGroup(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match=r"group g: .*TOPIC_AUTHORIZATION_FAILED"):
        await describe_group(_client(denied), "g")


def _client(answer: Unsupported | DescribedGroup) -> Any:
    """A client whose broker has no classic group, and this answer to ConsumerGroupDescribe."""

    async def call(request: object, _: object) -> object:
        if isinstance(request, DescribeGroupsRequest):
            return DescribeGroupsResponse(groups=[ClassicGroup(group_state="Dead")])
        if isinstance(answer, Unsupported):
            raise answer
        return ConsumerGroupDescribeResponse(groups=[answer])

    async def coordinator(_: str) -> object:
        return SimpleNamespace(call=call)

    return SimpleNamespace(coordinator=coordinator)


def test_offsets_are_reset_only_with_the_option(command: Run, filled: str, group: str) -> None:
    dry = command("groups", "reset", group, filled, "--to-latest")
    assert dry.status == 0 and dry.out.endswith("nothing was changed; --execute does it\n")
    assert command("groups", "describe", group).status == 1
    done = command("groups", "reset", group, filled, "--to-latest", "--execute", "--json").out.splitlines()
    assert [json.loads(line)["after"] for line in done] == [3, 0]
    again = command("groups", "reset", group, f"{filled}:0", "--shift-by", "-2", "--execute", "--json").out
    assert json.loads(again) == {"topic": filled, "partition": 0, "before": 3, "after": 1, "done": True}
    for arguments, after in [
        (("--to-offset", "99"), 3),
        (("--to-time", "0"), 0),
        (("--to-time", "99999999999999"), 3),
        (("--to-time", "2001-01-01"), 0),
        (("--to-time", "2901-01-01T12:30+01:00"), 3),
        (("--to-earliest",), 0),
    ]:
        row = json.loads(command("groups", "reset", group, f"{filled}:0", *arguments, "--json").out)
        assert row["after"] == after, arguments
    assert command("groups", "delete", group) == (0, f"deleted {group}\n", "")
    assert group not in command("groups", "list").out


def test_refusals_are_one_line_and_status_1(command: Run, filled: str, group: str) -> None:
    for arguments, said in [
        (("describe", group), "there is no such group"),
        (("delete", group), "there is no such group"),
        (("reset", group, "nowhere", "--to-latest"), "there is no such topic"),
        (("reset", group, f"{filled}:7", "--to-latest"), "has no partition 7"),
        (("reset", group, f"{filled}:x", "--to-latest"), "not of the form"),
        (("reset", group, filled, "--shift-by", "1"), "nothing committed to shift from"),
    ]:
        outcome = command("groups", *arguments)
        assert outcome.status == 1 and said in outcome.err and outcome.err.count("\n") == 1, arguments


def test_a_topic_that_is_gone_does_not_hide_the_rest(
    command: Run, running: lockstep.testing.RunningBroker, filled: str, group: str
) -> None:
    settings = {"bootstrap.servers": running.bootstrap_servers, "group.id": group}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(filled, 0, 2)], asynchronous=False)
    consumer.close()
    described = json.loads(command("groups", "describe", group, "--json").out)
    assert [(row["committed"], row["lag"]) for row in described["partitions"]] == [(2, 1)]
    assert described["state"] == "Empty"
