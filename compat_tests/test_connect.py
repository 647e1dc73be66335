"""Kafka Connect, unchanged: a distributed worker with exactly-once source tasks, killed and started again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.clients.confluent import Confluent
from compat_tests.clients.face import Message
from compat_tests.conftest import NewTopic
from compat_tests.connect import FILE_SINK, FILE_SOURCE, GROUP, INTERNAL_TOPICS, ConnectWorker
from compat_tests.harness import World
from compat_tests.raw import RawConnection, raw_connection
from compat_tests.targets import Target
from compat_tests.until import until

AREA = "Kafka Connect"
_LINES = 300
_LINE_CHARACTERS = 600
"""The source reads into a buffer of 1,024 and takes `batch.size` lines of it; what is left over waits there
until the file grows. One line in a batch and in the buffer leaves nothing over."""


def _lines(first: int, last: int) -> list[str]:
    return [f"line {number} ".ljust(_LINE_CHARACTERS, ".") for number in range(first, last)]


def _append(path: Path, lines: list[str]) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def _committed(world: World, target: Target, topic: str, count: int, timeout_s: float = 15.0) -> list[str]:
    """Up to `count` values of committed transactions, from the start."""
    client = world.client(Confluent.name, target.name)
    found = client.read(topic, count, isolation="read_committed", timeout_s=timeout_s)
    return [(each.value or b"").decode() for each in found]


def _produce(world: World, target: Target, topic: str, lines: list[str]) -> None:
    messages = [Message(line.encode()) for line in lines]
    world.client(Confluent.name, target.name).produce(topic, messages)


@pytest.mark.case(AREA, "a distributed worker starts; its three internal topics are compacted")
def test_internal_topics(connect: ConnectWorker, raw: RawConnection) -> None:
    resources = [
        {"resource_type": 2, "resource_name": topic, "configuration_keys": ["cleanup.policy"]}
        for topic in INTERNAL_TOPICS
    ]
    answer = raw.call("describe_configs", 4, resources=resources)
    policies = [result["configs"][0]["value"] for result in answer["results"]]
    assert policies == ["compact"] * 3


@pytest.mark.case(AREA, "the worker's group is stable; its protocol type is connect")
def test_group(connect: ConnectWorker, raw: RawConnection) -> None:
    (found,) = raw.call("describe_groups", 5, groups=[GROUP])["groups"]
    assert (found["group_state"], found["protocol_type"]) == ("Stable", "connect")
    assert (found["protocol_data"], len(found["members"])) == ("sessioned", 1)


@pytest.mark.case(AREA, "file source, exactly once: each line arrives once through kill -9 of the worker")
def test_source_exactly_once(
    connect: ConnectWorker, world: World, target: Target, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, path = new_topic(), tmp_path / "lines"
    _append(path, _lines(0, _LINES))
    connect.create(
        topic,
        {
            "connector.class": FILE_SOURCE,
            "file": str(path),
            "topic": topic,
            "batch.size": "1",
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
        },
    )
    before = _committed(world, target, topic, _LINES // 3)
    connect.kill9()
    with raw_connection(target.bootstrap) as raw:
        written = raw.list_offset(topic, -1)["offset"]
    assert written < 2 * _LINES, "each line and each marker: the worker had more to do"
    assert before == _lines(0, _LINES // 3)
    _append(path, _lines(_LINES, _LINES + 10))
    connect.start()
    connect.await_running(topic)
    everything = _lines(0, _LINES + 10)
    assert _committed(world, target, topic, len(everything), timeout_s=60.0) == everything
    assert _committed(world, target, topic, len(everything) + 1, timeout_s=1.0) == everything, "no more"
    connect.delete(topic)


@pytest.mark.case(AREA, "file sink: every record arrives; stopped, its offsets deleted, it reads all again")
def test_sink(
    connect: ConnectWorker,
    world: World,
    target: Target,
    new_topic: NewTopic,
    unused_name: Callable[[], str],
    tmp_path: Path,
) -> None:
    topic, name, path = new_topic(), unused_name(), tmp_path / "sunk"
    client = world.client(Confluent.name, target.name)
    _produce(world, target, topic, _lines(0, 100))
    connect.create(name, {"connector.class": FILE_SINK, "file": str(path), "topics": topic})
    until(_lines(0, 100), lambda: path.read_text().splitlines() if path.exists() else [])
    until(100, lambda: client.committed(f"connect-{name}", topic, 0))
    connect.stop(name)
    _produce(world, target, topic, _lines(100, 120))
    connect.call("DELETE", f"/connectors/{name}/offsets")
    assert f"connect-{name}" not in client.groups()
    connect.call("PUT", f"/connectors/{name}/resume")
    connect.await_running(name)
    until(_lines(0, 100) + _lines(0, 120), lambda: path.read_text().splitlines())
    connect.delete(name)
