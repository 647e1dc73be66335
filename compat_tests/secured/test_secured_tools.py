"""Kafka's tools with --command-config, logged in and by certificate, and what ACLs let a user do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.clients.face import Client, Message, Refused
from compat_tests.clients.java import Java
from compat_tests.clients.kafka_python import KafkaPython
from compat_tests.conftest import NewTopic
from compat_tests.java_driver import ToolResult
from compat_tests.raw import RawConnection
from compat_tests.secured.conftest import MTLS
from compat_tests.until import until

Tool = Callable[..., ToolResult]
TOOLS = "Kafka's tools, secured"
TOPIC_AUTHORIZATION_FAILED = 29
_TOOLS = "org.apache.kafka.tools"
_TOPICS = f"{_TOOLS}.TopicCommand"
_CONFIGS = f"{_TOOLS}.ConfigCommand"
_TOPIC, _LITERAL, _ANY, _ALLOW = 2, 3, 1, 3
READ, WRITE = 3, 4


def _out(result: ToolResult) -> str:
    assert result.status == 0, result.stdout + result.stderr
    return result.stdout


def _said(result: ToolResult) -> str:
    return result.stdout + result.stderr


@pytest.mark.case(TOOLS, "{login}: kafka-topics, kafka-console-producer and -consumer, kafka-configs")
@pytest.mark.parametrize("login", ["SCRAM-SHA-512", MTLS])
def test_tools(tool: Tool, unused_name: Callable[[], str], login: str) -> None:
    topic = unused_name()
    _out(tool(_TOPICS, "--create", "--topic", topic, "--partitions", "1"))
    assert topic in _out(tool(_TOPICS, "--list")).split()
    _out(tool(f"{_TOOLS}.ConsoleProducer", "--topic", topic, stdin=b"first\nsecond\n"))
    where = ("--topic", topic, "--from-beginning", "--max-messages", "2", "--timeout-ms", "15000")
    assert _out(tool(f"{_TOOLS}.consumer.ConsoleConsumer", *where)).splitlines() == ["first", "second"]
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    _out(tool(_CONFIGS, "--alter", *of_topic, "--add-config", "retention.ms=3600000"))
    assert "retention.ms=3600000" in _out(tool(_CONFIGS, "--describe", *of_topic))


@pytest.mark.case(TOOLS, "kafka-configs: a user is made, logs in, is deleted, and does not log in any more")
def test_users(tool: Tool, unused_name: Callable[[], str]) -> None:
    user = unused_name()
    of_user = ("--entity-type", "users", "--entity-name", user)
    scram = "SCRAM-SHA-512=[iterations=4096,password=new-secret]"
    _out(tool(_CONFIGS, "--alter", *of_user, "--add-config", scram))

    def lists(password: str) -> bool:
        return tool(_TOPICS, "--list", user=user, password=password).status == 0

    until(True, lambda: lists("new-secret"))
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in _said(
        tool(_TOPICS, "--list", user=user, password="another")
    )
    _out(tool(_CONFIGS, "--alter", *of_user, "--delete-config", "SCRAM-SHA-512"))
    until(False, lambda: lists("new-secret"))


@pytest.mark.case(TOOLS, "kafka-acls: a user may not see a topic, then may, then may not")
def test_acls(tool: Tool, new_topic: NewTopic) -> None:
    topic = new_topic()
    rule = ("--allow-principal", "User:bob", "--operation", "Describe", "--topic", topic)

    def sees() -> bool:
        return topic in _out(tool(_TOPICS, "--list", user="bob")).split()

    assert not sees()
    _out(tool(f"{_TOOLS}.AclCommand", "--add", *rule))
    listed = _out(tool(f"{_TOOLS}.AclCommand", "--list", "--topic", topic))
    assert f"name={topic}" in listed and "principal=User:bob" in listed
    until(True, sees)
    _out(tool(f"{_TOOLS}.AclCommand", "--remove", "--force", *rule))
    until(False, sees)
    denied = tool(f"{_TOOLS}.AclCommand", "--list", user="bob")
    assert "ClusterAuthorizationException" in _said(denied)


def _allow(raw: RawConnection, topic: str, operation: int) -> None:
    rule = {
        "resource_type": _TOPIC,
        "resource_name": topic,
        "resource_pattern_type": _LITERAL,
        "principal": "User:bob",
        "host": "*",
        "operation": operation,
        "permission_type": _ALLOW,
    }
    (answer,) = raw.call("create_acls", 3, creations=[rule])["results"]
    assert answer["error_code"] == 0, answer


def _take_back(raw: RawConnection, topic: str) -> None:
    everything = {
        "resource_type_filter": _TOPIC,
        "resource_name_filter": topic,
        "pattern_type_filter": _LITERAL,
        "principal_filter": "User:bob",
        "host_filter": None,
        "operation": _ANY,
        "permission_type": _ANY,
    }
    (answer,) = raw.call("delete_acls", 3, filters=[everything])["filter_results"]
    assert answer["error_code"] == 0, answer


@pytest.mark.case("Security", "access rules: a user may not write, then may, reads what he may, then may not")
@pytest.mark.parametrize("login", ["SCRAM-SHA-512 as bob"], ids=["bob"])
@pytest.mark.parametrize("client", [Java.name, KafkaPython.name], indirect=True)
def test_rules(client: Client, new_topic: NewTopic, raw: RawConnection, login: str) -> None:
    topic = new_topic()

    def refused() -> int:
        try:
            client.produce(topic, [Message(b"x")])
        except Refused as error:
            return error.code
        return 0

    assert refused() == TOPIC_AUTHORIZATION_FAILED
    _allow(raw, topic, WRITE)
    until(0, refused)
    with pytest.raises(Refused) as unread:
        client.read(topic, 1)
    assert unread.value.code == TOPIC_AUTHORIZATION_FAILED
    _allow(raw, topic, READ)

    def values() -> list[bytes | None]:
        try:
            return [each.value for each in client.read(topic, 1)]
        except Refused:
            return []

    until([b"x"], values)
    _take_back(raw, topic)
    until(TOPIC_AUTHORIZATION_FAILED, refused)
