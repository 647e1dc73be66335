"""Topics, their configuration and the cluster, through each client's own administration calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from compat_tests.clients.face import Client, Refused
from compat_tests.conftest import NewTopic
from compat_tests.targets import Target

UNKNOWN_TOPIC_OR_PARTITION = 3

DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
}
"""Kafka's values for what a topic's config must say when nothing was set."""

REFUSALS: dict[str, tuple[int, int, int, Mapping[str, str]]] = {
    "INVALID_PARTITIONS for 0 partitions": (37, 0, 1, {}),
    "INVALID_REPLICATION_FACTOR for 3 replicas on one broker": (38, 1, 3, {}),
    "INVALID_CONFIG for an unknown name": (40, 1, 1, {"no.such.config": "1"}),
    "INVALID_CONFIG for a bad value": (40, 1, 1, {"retention.ms": "often"}),
}


def _until_gone(client: Client, topic: str) -> None:
    until = time.monotonic() + 10
    while topic in client.topics() and time.monotonic() < until:
        time.sleep(0.05)
    assert topic not in client.topics()


@pytest.mark.case("Administration", "create, list, describe and delete a topic")
def test_topic_life(client: Client, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    client.create_topic(topic, 3, {"max.message.bytes": "20000"})
    until = time.monotonic() + 10
    while topic not in client.topics() and time.monotonic() < until:
        time.sleep(0.02)
    assert topic in client.topics()
    assert client.partition_count(topic) == 3
    assert client.topic_config(topic)["max.message.bytes"] == "20000"
    client.delete_topic(topic)
    _until_gone(client, topic)


@pytest.mark.case("Administration", "list and describe topics")
def test_list_and_describe(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=5)
    assert topic in client.topics()
    assert client.partition_count(topic) == 5


@pytest.mark.case("Administration", "topic configs say Kafka's defaults")
def test_config_defaults(client: Client, new_topic: NewTopic) -> None:
    found = client.topic_config(new_topic())
    assert {name: found.get(name) for name in DEFAULTS} == DEFAULTS


@pytest.mark.case("Administration", "creating a topic again is TOPIC_ALREADY_EXISTS")
def test_exists(client: Client, new_topic: NewTopic) -> None:
    with pytest.raises(Refused) as refused:
        client.create_topic(new_topic())
    assert refused.value.code == 36


@pytest.mark.case("Administration", "a bad topic name is INVALID_TOPIC_EXCEPTION")
def test_bad_name(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.create_topic("no spaces, please")
    assert refused.value.code == 17


@pytest.mark.case("Administration", "{refusal}")
@pytest.mark.parametrize("refusal", list(REFUSALS))
def test_refused_creation(client: Client, unused_name: Callable[[], str], refusal: str) -> None:
    code, partitions, replicas, configs = REFUSALS[refusal]
    topic = unused_name()
    with pytest.raises(Refused) as refused:
        client.create_topic(topic, partitions, configs, replicas)
    assert refused.value.code == code
    assert topic not in client.topics()


@pytest.mark.case("Administration", "deleting an unknown topic is UNKNOWN_TOPIC_OR_PARTITION")
def test_delete_unknown(client: Client, unused_name: Callable[[], str]) -> None:
    with pytest.raises(Refused) as refused:
        client.delete_topic(unused_name())
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.case("Administration", "describing an unknown topic is UNKNOWN_TOPIC_OR_PARTITION")
def test_describe_unknown(client: Client, unused_name: Callable[[], str]) -> None:
    client.needs("describe without creating")
    with pytest.raises(Refused) as refused:
        client.partition_count(unused_name())
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.case("Administration", "a topic made again has a new id")
def test_recreation(client: Client, unused_name: Callable[[], str]) -> None:
    client.needs("admin", "topic id")
    topic = unused_name()
    ids = []
    for _ in range(2):
        client.create_topic(topic)
        time.sleep(0.1)
        ids.append(client.topic_id(topic))
        client.delete_topic(topic)
        _until_gone(client, topic)
    assert ids[0] != ids[1]


@pytest.mark.case("Administration", "cluster description: broker, controller, cluster id")
def test_cluster(client: Client, target: Target) -> None:
    found = client.cluster()
    ((node_id, host, port),) = [(each.node_id, each.host, each.port) for each in found.brokers]
    assert f"{host}:{port}" == target.bootstrap
    assert found.controller_id == node_id
    if "cluster id" not in client.cannot:
        assert found.cluster_id
