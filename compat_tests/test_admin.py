"""Topics, their configuration and the cluster, through each client's own administration calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from compat_tests.clients.face import Client, Message, Refused
from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, batch
from compat_tests.targets import Target

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40

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
    "INVALID_REPLICATION_FACTOR for 4 replicas on fewer brokers": (38, 1, 4, {}),
    "INVALID_CONFIG for an unknown name": (40, 1, 1, {"no.such.config": "1"}),
    "INVALID_CONFIG for a bad value": (40, 1, 1, {"retention.ms": "often"}),
}


def _until(condition: Callable[[], bool]) -> None:
    """A broker may answer a change before all that are asked have heard of it."""
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    assert condition()


def _until_gone(client: Client, topic: str) -> None:
    _until(lambda: topic not in client.topics())


@pytest.mark.case("Administration", "create, list, describe and delete a topic")
def test_topic_life(client: Client, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    client.create_topic(topic, 3, {"max.message.bytes": "20000"})
    _until(lambda: topic in client.topics())
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


@pytest.mark.case("Administration", "partitions are added and used at once")
def test_add_partitions(client: Client, new_topic: NewTopic) -> None:
    client.needs("add partitions")
    topic = new_topic()
    client.add_partitions(topic, 3)
    _until(lambda: client.partition_count(topic) == 3)
    client.produce(topic, [Message(b"in the new one", partition=2)])
    assert [each.value for each in client.read(topic, 1, partitions=(2,))] == [b"in the new one"]


@pytest.mark.case("Administration", "partitions cannot become fewer: INVALID_PARTITIONS")
def test_fewer_partitions(client: Client, new_topic: NewTopic) -> None:
    client.needs("add partitions")
    with pytest.raises(Refused) as refused:
        client.add_partitions(new_topic(partitions=3), 2)
    assert refused.value.code == INVALID_PARTITIONS


@pytest.mark.case("Administration", "records are deleted up to an offset")
def test_delete_records(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    client.needs("delete records")
    topic = new_topic()
    for n in range(5):
        raw.produce(topic, batch([b"%d" % n]))
    assert client.delete_records(topic, 0, 3) == 3
    assert client.offsets(topic, 0) == (3, 5)
    assert [each.offset for each in client.read(topic, 2)] == [3, 4]


@pytest.mark.case("Administration", "deleting records beyond the end is OFFSET_OUT_OF_RANGE")
def test_delete_records_beyond(client: Client, new_topic: NewTopic) -> None:
    client.needs("delete records")
    with pytest.raises(Refused) as refused:
        client.delete_records(new_topic(), 0, 7)
    assert refused.value.code == OFFSET_OUT_OF_RANGE


@pytest.mark.case("Administration", "a topic's config is set and reset, the others stay")
def test_set_config(client: Client, new_topic: NewTopic) -> None:
    client.needs("set config")
    topic = new_topic(configs={"max.message.bytes": "20000"})
    client.set_config(topic, {"retention.ms": "3600000"})
    _until_config(client, topic, {"retention.ms": "3600000", "max.message.bytes": "20000"})
    client.set_config(topic, {"retention.ms": None})
    _until_config(client, topic, {"retention.ms": DEFAULTS["retention.ms"], "max.message.bytes": "20000"})


@pytest.mark.case("Administration", "a changed max.message.bytes holds for the next record")
def test_config_in_force(client: Client, new_topic: NewTopic) -> None:
    client.needs("set config")
    topic = new_topic()
    client.produce(topic, [Message(b"x" * 5000)])
    client.set_config(topic, {"max.message.bytes": "1000"})
    _until_config(client, topic, {"max.message.bytes": "1000"})

    def refusal() -> int:
        try:
            client.produce(topic, [Message(b"x" * 5000)])
        except Refused as refused:
            return refused.code
        return 0

    until = (
        time.monotonic() + 5
    )  # of several nodes the one that was asked may know a moment before the leader
    while (code := refusal()) == 0 and time.monotonic() < until:
        pass
    assert code == MESSAGE_TOO_LARGE


@pytest.mark.case("Administration", "a bad config value is INVALID_CONFIG and changes nothing")
def test_set_bad_config(client: Client, new_topic: NewTopic) -> None:
    client.needs("set config")
    topic = new_topic()
    with pytest.raises(Refused) as refused:
        client.set_config(topic, {"retention.ms": "often"})
    assert refused.value.code == INVALID_CONFIG
    assert client.topic_config(topic)["retention.ms"] == DEFAULTS["retention.ms"]


def _until_config(client: Client, topic: str, wanted: Mapping[str, str]) -> None:
    found: dict[str, str | None] = {}
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = client.topic_config(topic)
        if {name: found.get(name) for name in wanted} == wanted:
            return
        time.sleep(0.05)
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.case("Administration", "cluster description: broker, controller, cluster id")
def test_cluster(client: Client, target: Target) -> None:
    found = client.cluster()
    addresses = {each.node_id: f"{each.host}:{each.port}" for each in found.brokers}
    assert addresses == dict(zip(target.node_ids, target.bootstrap.split(","), strict=True))
    assert found.controller_id in target.node_ids
    if "cluster id" not in client.cannot:
        assert found.cluster_id
