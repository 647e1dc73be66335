"""Configurations changed in a cluster: what the node that is asked does itself, and what the controller."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from lockstep.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.controller.api.configs import BROKER, LOGGER, SET, TOPIC, Edits, Resource, alter_all

LEVEL: Edits = [("lockstep.peers", SET, "DEBUG")]
KEPT: Edits = [("retention.ms", SET, "86400001")]
BYTES: Edits = [("log.retention.bytes", SET, "2000000000")]


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    logger = logging.getLogger("lockstep.peers")
    before = logger.level
    yield
    logger.setLevel(before)


def follower(cluster: BrokerCluster) -> int:
    return next(each for each in cluster.brokers if cluster.brokers[each] is not cluster.controller)


async def test_each_resource_is_changed_where_it_belongs(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    asked, led = follower(cluster), cluster.leader_of(0)
    client = await cluster.client(asked)
    await client.create("t")
    mine, other = str(asked), str(led)
    changes: list[tuple[Resource, Edits]] = [
        ((LOGGER, mine), LEVEL),
        ((TOPIC, "t"), KEPT),
        ((LOGGER, other), LEVEL),
        ((BROKER, other), BYTES),
        ((BROKER, mine), BYTES),
        ((TOPIC, "no"), KEPT),
    ]
    outcomes = await alter_all(client, *changes)
    wrong, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [error for error, _ in outcomes] == [0, 0, wrong, wrong, 0, unknown]
    assert outcomes[3][1] == f"Unexpected broker id, expected {mine}, but received {other}"
    assert logging.getLogger("lockstep.peers").level == logging.DEBUG
    cluster_of = cluster.brokers[asked].assembly.cluster
    topic = cluster_of.topic("t")
    assert topic is not None and topic.config.overrides == {"retention.ms": "86400001"}
    assert cluster_of.settings.log_retention_bytes == 2_000_000_000
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name="retention.bytes", value="3000000000")]
                if kind == TOPIC
                else [],
            )
            for kind, name in ((BROKER, other), (TOPIC, "t"), (LOGGER, mine), (BROKER, mine))
        ]
    )
    replaced = (await client.call(request, 2)).responses
    assert [each.error_code for each in replaced] == [wrong, 0, wrong, 0]
    assert topic.config.overrides == {"retention.bytes": "3000000000"}


async def test_a_topic_that_was_refused_by_way_of_one_node_is_auto_created_by_none(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()

    async def asked_for(node_id: int) -> int:
        client = await cluster.client(node_id)
        wanted = [MetadataRequestTopic(name="copy")]
        answer = await client.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 12)
        return int(answer.topics[0].error_code)

    async def create(**configs: str) -> int:
        client = await cluster.client(follower(cluster))
        named = [CreatableTopicConfig(name=name, value=text) for name, text in configs.items()]
        topic = CreatableTopic(name="copy", num_partitions=1, replication_factor=1, configs=named)
        answer = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
        return int(answer.topics[0].error_code)

    assert await create(**{"max.message.bytes": "999999999"}) == ErrorCode.INVALID_CONFIG
    for node_id in cluster.brokers:
        assert await asked_for(node_id) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await create() == 0, "a client that names no settings means it"
    assert await asked_for(follower(cluster)) == 0


async def test_without_a_controller_only_what_is_the_nodes_own(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    client = await cluster.client(1)
    await client.create("t")
    await cluster.stop(2, 3)
    changes: list[tuple[Resource, Edits]] = [
        ((LOGGER, "1"), LEVEL),
        ((TOPIC, "no"), KEPT),
        ((BROKER, "1"), BYTES),
    ]

    async def is_refused() -> bool:  # a lease lasts for a moment
        outcomes = await alter_all(client, *changes)
        return [error for error, _ in outcomes] == [0, *[ErrorCode.NOT_CONTROLLER] * 2]

    await cluster.until(is_refused, "refusal")
