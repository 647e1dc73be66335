"""`lockstep consume --group`: from where the group stands, beside other members, with committed offsets."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest

from compat_tests import fork_server
from lockstep.kafka_client.client import Client
from lockstep.testing import RunningBroker
from tests.lockstep.commands.test_serve import COMMAND, ENVIRONMENT
from tests.lockstep.conftest import Run

LONG_S = 60.0


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def committed(command: Run, group: str) -> dict[int, int]:
    described = json.loads(command("groups", "describe", group, "--json").out)
    return {each["partition"]: each["committed"] for each in described["partitions"]}


def state(command: Run, group: str) -> str:
    outcome = command("groups", "describe", group, "--json")
    return str(json.loads(outcome.out)["state"]) if outcome.out else ""


@contextmanager
def consuming(running: RunningBroker, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = fork_server.popen(
        [*COMMAND, "consume", *words, "-b", running.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_group_continues_behind_what_was_printed(command: Run, topic: str) -> None:
    command("produce", topic, stdin=b"0\n1\n2\n3\n4\n")
    group = ("--group", f"of-{topic}")
    assert command("consume", topic, *group, "--from-beginning", "-n", "2") == (0, "0\n1\n", "")
    assert committed(command, f"of-{topic}") == {0: 2}
    assert state(command, f"of-{topic}") == "Empty", "it has left"
    assert command("consume", topic, "-g", f"of-{topic}", "--from-beginning", "-n", "3").out == "2\n3\n4\n"
    assert committed(command, f"of-{topic}") == {0: 5}


def test_a_group_without_an_offset_begins_at_the_end(
    command: Run, topic: str, running: RunningBroker
) -> None:
    command("produce", topic, stdin=b"old\n")
    with consuming(running, topic, "--group", f"of-{topic}", "-n", "1") as process:
        until(lambda: state(command, f"of-{topic}") == "Stable")
        time.sleep(1)  # it looks up the end after it has joined
        command("produce", topic, stdin=b"new\n")
        assert process.communicate(timeout=LONG_S) == ("new\n", "")
    assert committed(command, f"of-{topic}") == {0: 2}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_commits_what_was_printed_and_leaves(
    command: Run, topic: str, running: RunningBroker, number: signal.Signals
) -> None:
    command("produce", topic, stdin=b"a\nb\n")
    with consuming(running, topic, "--group", f"of-{topic}", "--from-beginning") as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["a\n", "b\n"]
        process.send_signal(number)
        assert process.communicate(timeout=LONG_S) == ("", "")
        assert process.returncode == 130
    assert committed(command, f"of-{topic}") == {0: 2}
    assert state(command, f"of-{topic}") == "Empty"


def test_members_of_other_clients_share_the_partitions(
    command: Run, topic: str, running: RunningBroker
) -> None:
    command("topics", "create", topic, "-p", "2")
    settings = {
        "bootstrap.servers": running.bootstrap_servers,
        "group.id": f"of-{topic}",
        "partition.assignment.strategy": "range",
        "auto.offset.reset": "earliest",
    }
    with consuming(running, topic, "--group", f"of-{topic}", "--from-beginning") as process:
        until(lambda: state(command, f"of-{topic}") == "Stable")
        other = confluent_kafka.Consumer(settings)
        other.subscribe([topic])
        until(lambda: other.poll(0.1) is None and len(other.assignment()) == 1)
        (own,) = [each.partition for each in other.assignment()]
        for partition in (0, 1):
            command("produce", topic, "-p", str(partition), stdin=b"to %d\n" % partition)
        assert process.stdout is not None
        assert process.stdout.readline() == f"to {1 - own}\n"
        message = other.poll(LONG_S)
        assert message is not None and message.value() == b"to %d" % own
        other.close()  # it commits and leaves: its partition goes to the one that is left
        command("produce", topic, "-p", str(own), stdin=b"for who is left\n")
        assert process.stdout.readline() == "for who is left\n"


def test_added_partitions_are_read_after_the_next_look_at_the_metadata(
    command: Run, topic: str, running: RunningBroker
) -> None:
    """By the one that leads the group; nobody joins or leaves."""
    command("topics", "create", topic, "-p", "1")
    words = (topic, "--group", f"of-{topic}", "--from-beginning", "--metadata-max-age-ms", "100")
    with consuming(running, *words) as process:
        until(lambda: state(command, f"of-{topic}") == "Stable")
        asyncio.run(add_partitions(running, topic, 3))
        for partition in (2, 0):
            command("produce", topic, "-p", str(partition), stdin=b"to %d\n" % partition)
            assert process.stdout is not None
            assert process.stdout.readline() == f"to {partition}\n"


async def add_partitions(running: RunningBroker, topic: str, count: int) -> None:
    async with Client(running.bootstrap_servers) as client:
        await client.grow_topic(topic, count)


def test_a_group_has_no_place_of_ones_own(command: Run, topic: str) -> None:
    for words in (("-o", "3"), ("-p", "0")):
        outcome = command("consume", topic, "--group", "g", *words)
        assert outcome.status == 2
        assert (
            "--group reads from the group's committed offsets: without --offset and --partition"
            in outcome.err
        )
