"""CreateTopics, DeleteTopics, DescribeConfigs over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lockstep.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client

ZERO = bytes(16)


def wanted(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


async def create(
    client: Client, *topics: CreatableTopic, version: int = 7, **more: Any
) -> list[CreatableTopicResult]:
    response = await client.call(CreateTopicsRequest(topics=list(topics), **more), version)
    results: list[CreatableTopicResult] = response.topics
    return results


async def test_hundreds_in_one_request_are_made_and_ended_a_hundred_at_a_time(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, running, most = broker.assembly.topics, 0, 0
    for name in ("create", "delete"):
        real = getattr(topics, name)

        async def counted(what: Any, real: Any = real) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            result = await real(what)
            running -= 1
            return result

        monkeypatch.setattr(topics, name, counted)
    names = [f"t{number}" for number in range(250)]
    made = await create(client, *map(wanted, names))
    assert [(each.name, each.error_code) for each in made] == [(name, 0) for name in names]
    assert (most, len(broker.assembly.cluster.topics())) == (100, 250)
    most = 0
    ended = await client.call(DeleteTopicsRequest(topic_names=names, timeout_ms=1000), 4)
    assert [(each.name, each.error_code) for each in ended.responses] == [(name, 0) for name in names]
    assert (most, broker.assembly.cluster.topics()) == (100, [])


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_in_every_version(broker: Broker, client: Client, version: int) -> None:
    (result,) = await create(client, wanted("t", 3, retention_ms="5"), version=version)
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs is not None
        assert {each.name: (each.value, each.config_source) for each in result.configs}["retention.ms"] == (
            "5",
            1,
        )
    assert result.topic_id == (topic.topic_id if version >= 7 else ZERO)
    (again,) = await create(client, wanted("t"), version=version)
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_each_topic_on_its_own(client: Client) -> None:
    results = await create(
        client,
        wanted("good"),
        wanted("b/d"),
        wanted("twice"),
        wanted("twice"),
        wanted("none", 0),
        wanted("wide", 1, 3),
        wanted("compacted", cleanup_policy="compact"),
        wanted("null", retention_ms=None),
        wanted("a.b"),
    )
    assert {each.name: each.error_code for each in results} == {
        "good": 0,
        "b/d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "twice": ErrorCode.INVALID_REQUEST,
        "none": ErrorCode.INVALID_PARTITIONS,
        "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
        "compacted": 0,
        "null": ErrorCode.INVALID_CONFIG,
        "a.b": 0,
    }
    assert all(each.error_message for each in results if each.error_code)
    (collides,) = await create(client, wanted("a_b"))
    assert collides.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    pair = await create(client, wanted("c.d"), wanted("c_d"))
    assert sorted(each.error_code for each in pair) == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert await create(client) == []


async def test_defaults_and_assignments(start_broker: StartBroker) -> None:
    broker = await start_broker(num_partitions="4")
    client = await Client.connect(broker.port)
    (by_default,) = await create(client, wanted("d", -1, -1))
    assert (by_default.num_partitions, by_default.replication_factor) == (4, 1)

    async def assigned(*brokers: list[int], **more: Any) -> int:
        topic = CreatableTopic(
            name="m",
            num_partitions=more.get("partitions", -1),
            replication_factor=more.get("replicas", -1),
            assignments=[
                CreatableReplicaAssignment(partition_index=index + more.get("first", 0), broker_ids=ids)
                for index, ids in enumerate(brokers)
            ],
        )
        (result,) = await create(client, topic, validate_only=more.get("validate_only", True))
        return result.error_code

    assert await assigned([1], [1]) == 0
    assert await assigned([2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await assigned([1], first=1) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await assigned([1], partitions=1) == ErrorCode.INVALID_REQUEST
    assert await assigned([1], replicas=1) == ErrorCode.INVALID_REQUEST
    assert broker.assembly.cluster.topic("m") is None
    assert await assigned([1], [1], [1], validate_only=False) == 0
    topic = broker.assembly.cluster.topic("m")
    assert topic is not None
    assert len(topic.partitions) == 3


async def test_limits(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_max_partitions_per_request="5", lockstep_max_partitions="8")
    client = await Client.connect(broker.port)
    results = await create(client, wanted("a", 3), wanted("b", 3), wanted("c", 2))
    assert [each.error_code for each in results] == [0, ErrorCode.POLICY_VIOLATION, 0]
    results = await create(client, wanted("d", 4))
    assert results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert broker.assembly.cluster.partition_count == 5
    (huge,) = await create(client, wanted("e", 2**31 - 1))
    assert huge.error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("version", range(1, 7))
async def test_delete_in_every_version(broker: Broker, client: Client, version: int) -> None:
    await client.create("t")
    names = ["t", "no"]
    request = DeleteTopicsRequest(
        topic_names=names, topics=[DeleteTopicState(name=name) for name in names] if version >= 6 else []
    )
    response = await client.call(request, version)
    assert [(each.name, each.error_code) for each in response.responses] == [
        ("t", 0),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert broker.assembly.cluster.topics() == []


# --- configurations ---------------------------------------------------------------------------------------


async def describe(
    client: Client, kind: int, name: str, version: int = 4, **more: Any
) -> DescribeConfigsResult:
    keys = more.pop("keys", None)
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    response = await client.call(DescribeConfigsRequest(resources=[resource], **more), version)
    result: DescribeConfigsResult = response.results[0]
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", range(1, 5))
async def test_describe_a_topic(client: Client, version: int) -> None:
    await client.create("t", retention_ms="5")
    more = {"include_documentation": True} if version >= 3 else {}
    result = await describe(client, 2, "t", version, include_synonyms=True, **more)
    found = {each.name: each for each in result.configs}
    retention = found["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("5", 1, False)
    assert [(each.name, each.source) for each in retention.synonyms] == [("retention.ms", 1)]
    largest = [(each.name, each.value, each.source) for each in found["max.message.bytes"].synonyms]
    assert largest == [("message.max.bytes", "200000", 4), ("message.max.bytes", "1048588", 5)]
    assert found["cleanup.policy"].value == "delete"  # Kafka Connect looks here
    if version >= 3:
        assert (retention.config_type, found["cleanup.policy"].config_type) == (5, 7)
        assert "forever" in (retention.documentation or "")
    plain = await describe(client, 2, "t", version, keys=["retention.ms", "nothing"])
    assert [(each.name, each.synonyms) for each in plain.configs] == [("retention.ms", [])]
    assert not plain.configs[0].documentation
    assert len((await describe(client, 2, "t", version, keys=[])).configs) == len(found)


async def test_describe_a_broker(client: Client) -> None:
    result = await describe(client, 4, "1")
    found = {each.name: each for each in result.configs}
    assert found["log.flush"].value == "os"
    assert (found["log.flush"].config_source, found["log.flush"].read_only) == (4, True)
    assert found["num.partitions"].config_source == 5
    everyone = await describe(client, 4, "")
    assert (everyone.error_code, everyone.configs) == (0, [])


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (2, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "b/d", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (4, "2", ErrorCode.INVALID_REQUEST),
        (4, "x", ErrorCode.INVALID_REQUEST),
        (8, "2", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.NONE),
        (16, "", ErrorCode.INVALID_REQUEST),
        (32, "group", ErrorCode.NONE),
        (1, "t", ErrorCode.INVALID_REQUEST),
        (-1, "", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_describe_refused(client: Client, kind: int, name: str, error: ErrorCode) -> None:
    result = await describe(client, kind, name)
    assert result.error_code == error
    assert bool(result.error_message) == bool(error)


async def test_a_connections_requests_take_effect_one_after_the_other(client: Client) -> None:
    """As in Kafka: who deletes a topic and makes it again, without waiting between, gets a new one."""
    (made,) = await create(client, wanted("again", 300))
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="again")])
    creation = CreateTopicsRequest(topics=[wanted("again", 2)])
    for _ in range(3):
        client.send(delete, 6)
        client.send(creation, 7)
        _, deleted = await client.receive(delete, 6)
        assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE]  # type: ignore[attr-defined]
        _, created = await client.receive(creation, 7)
        (again,) = created.topics  # type: ignore[attr-defined]
        assert (again.error_code, again.num_partitions) == (ErrorCode.NONE, 2)
        assert again.topic_id != made.topic_id


async def test_a_topic_whose_creation_was_just_refused_is_not_auto_created_with_other_settings(
    broker: Broker, client: Client
) -> None:
    """A tool that copies topics goes on after a refusal, and its producer asks for the topic's metadata."""

    async def asked_for(name: str) -> int:
        wanted_topics = [MetadataRequestTopic(name=name)]
        answer = await client.call(MetadataRequest(topics=wanted_topics, allow_auto_topic_creation=True), 12)
        return int(answer.topics[0].error_code)

    too_large: dict[str, Any] = {"cleanup_policy": "compact", "max_message_bytes": "999999999"}
    cases: list[tuple[str, int, dict[str, Any]]] = [
        ("copy", 1, too_large),
        ("copy.of.none", 0, {"cleanup_policy": "compact"}),
        ("copy.null", 1, {"retention_ms": None}),
    ]
    for name, partitions, configs in cases:
        (refused,) = await create(client, wanted(name, partitions, **configs))
        assert refused.error_code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_PARTITIONS)
        assert await asked_for(name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.assembly.cluster.topic(name) is None
    (refused,) = await create(client, wanted("plain", 0))
    assert refused.error_code and await asked_for("plain") == 0
    (refused,) = await create(client, wanted("checked", **too_large), validate_only=True)
    assert refused.error_code and await asked_for("checked") == 0
    (made,) = await create(client, wanted("copy", cleanup_policy="compact"))
    assert made.error_code == 0
    topic = broker.assembly.cluster.topic("copy")
    assert topic is not None and topic.config.is_compacted
    await client.call(DeleteTopicsRequest(topic_names=["copy"], timeout_ms=1000), 4)
    assert await asked_for("copy") == 0
