"""kafka-configs and kafka-client-metrics, unchanged: each type of entity, described, altered, deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.java_driver import ToolResult

Tool = Callable[..., ToolResult]
_CONFIGS = "org.apache.kafka.tools.ConfigCommand"


def _out(result: ToolResult) -> str:
    assert result.status == 0, result.stdout + result.stderr
    return result.stdout


def _shown(tool: Tool, *words: str) -> str:
    return _out(tool(_CONFIGS, "--describe", *words))


def _alter(tool: Tool, *words: str) -> str:
    return _out(tool(_CONFIGS, "--alter", *words))


@pytest.mark.case("Kafka's tools", "kafka-configs: a topic's are added, shown with their synonyms, deleted")
def test_topic(tool: Tool, new_topic: NewTopic) -> None:
    topic = new_topic()
    where = ("--entity-type", "topics", "--entity-name", topic)
    added = _alter(tool, *where, "--add-config", "retention.ms=86400000,max.message.bytes=2000")
    assert f"Completed updating config for topic {topic}." in added
    shown = _shown(tool, *where)
    assert (
        "retention.ms=86400000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=86400000}" in shown
    )
    assert (
        "max.message.bytes=2000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588}" in shown
    )
    _alter(tool, *where, "--delete-config", "retention.ms")
    assert "retention.ms" not in _shown(tool, *where)
    assert "max.message.bytes=2000" in _shown(tool, *where)
    assert "retention.ms=604800000" in _shown(tool, *where, "--all")
    refused = tool(_CONFIGS, "--alter", *where, "--add-config", "no.such.config=1")
    assert refused.status == 1
    assert "Unknown topic config name: no.such.config" in refused.stdout + refused.stderr


@pytest.mark.case("Kafka's tools", "kafka-configs: a list in brackets")
def test_list_in_brackets(tool: Tool, new_topic: NewTopic) -> None:
    where = ("--entity-type", "topics", "--entity-name", new_topic())
    _alter(tool, *where, "--add-config", "cleanup.policy=[delete]")
    assert "cleanup.policy=delete" in _shown(tool, *where)


def _until_shown(shown: Callable[[], str], text: str, *, there: bool) -> None:
    """Kafka answers before a dynamic setting has reached whoever describes it."""
    until = time.monotonic() + 10
    while (text in shown()) is not there:
        assert time.monotonic() < until, "it never took effect"
        time.sleep(0.1)


@pytest.mark.case("Kafka's tools", "kafka-configs: brokers, the default for all and one of them")
def test_brokers(tool: Tool) -> None:
    name = "log.retention.bytes"
    for where, said, source in (
        (("--entity-default",), "default broker", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        (("--entity-name", "1"), "broker 1", "DYNAMIC_BROKER_CONFIG"),
    ):
        words = ("--entity-type", "brokers", *where)
        added = _alter(tool, *words, "--add-config", f"{name}=1234567890")
        assert (
            f"Completed updating {'default config for brokers' if 'default' in said else 'config'}" in added
        )
        wanted = f"{name}=1234567890 sensitive=false synonyms={{{source}:{name}=1234567890"
        shown = partial(_shown, tool, *words)
        _until_shown(shown, wanted, there=True)
        _alter(tool, *words, "--delete-config", name)
        _until_shown(shown, f"{name}=1234567890", there=False)
    refused = tool(
        _CONFIGS, "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "log.dirs=/x"
    )
    assert refused.status == 1
    assert "Cannot update these configs dynamically" in refused.stdout + refused.stderr
    everything = _shown(tool, "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert (
        "message.max.bytes=1048588 sensitive=false synonyms={DEFAULT_CONFIG:message.max.bytes=1048588}"
        in everything
    )


@pytest.mark.case("Kafka's tools", "kafka-configs: log levels of a broker")
def test_loggers(tool: Tool) -> None:
    where = ("--entity-type", "broker-loggers", "--entity-name", "1")
    assert "root=INFO" in _shown(tool, *where)
    _alter(tool, *where, "--add-config", "root=WARN")
    assert "root=WARN" in _shown(tool, *where)
    _alter(tool, *where, "--add-config", "root=INFO")


@pytest.mark.case("Kafka's tools", "kafka-configs: a group's are added, shown, deleted")
def test_groups(tool: Tool, unused_name: Callable[[], str]) -> None:
    group = unused_name()
    where = ("--entity-type", "groups", "--entity-name", group)
    shown = partial(_shown, tool, *where)
    _alter(tool, *where, "--add-config", "consumer.session.timeout.ms=50000")
    _until_shown(shown, "consumer.session.timeout.ms=50000", there=True)
    assert group in _shown(tool, "--entity-type", "groups")
    _alter(tool, *where, "--delete-config", "consumer.session.timeout.ms")
    _until_shown(shown, "consumer.session.timeout.ms=50000", there=False)


@pytest.mark.case("Kafka's tools", "kafka-configs --describe: {kind}")
@pytest.mark.parametrize(
    "kind", ["topics", "brokers", "users", "clients", "ips", "groups", "client-metrics", "broker-loggers"]
)
def test_describe_all(tool: Tool, new_topic: NewTopic, kind: str) -> None:
    topic = new_topic()
    words = ("--entity-name", "1") if kind == "broker-loggers" else ()
    shown = _shown(tool, "--entity-type", kind, *words)
    assert (topic in shown) == (kind == "topics")


@pytest.mark.case("Kafka's tools", "kafka-configs --describe: one user, one client")
@pytest.mark.parametrize("kind", ["users", "clients"])
def test_describe_one(tool: Tool, kind: str) -> None:
    assert "byte_rate" not in _shown(tool, "--entity-type", kind, "--entity-name", "nobody")


@pytest.mark.case("Kafka's tools", "kafka-client-metrics --list and --describe")
def test_client_metrics(tool: Tool) -> None:
    main = "org.apache.kafka.tools.ClientMetricsCommand"
    assert _out(tool(main, "--list")).strip() == ""
    _out(tool(main, "--describe"))
