"""Faults of Kafka around topics, configurations and requests that make no sense."""

from __future__ import annotations

import struct

import pytest

from lockstep.broker.metadata.metadata_image import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    configs_command,
    topic_configs_command,
)
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from lockstep.protocol.messages.metadata import MetadataRequest
from tests.broker.conftest import StartBroker
from tests.broker.controller.api.configs import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    value,
)
from tests.broker.wire import Client, batch

E = ErrorCode


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, ""), (GROUP, "g")])
async def test_a_list_that_there_is_not(client: Client, operation: int, kind: int, name: str) -> None:
    """KAFKA-20129: adding to an unknown configuration was an unknown server error."""
    await client.create("t")
    error, message = await alter(client, (kind, name), ("no.such.name", operation, "x"))
    assert error in (E.INVALID_CONFIG, E.INVALID_REQUEST)
    assert message and "no.such.name" in message


async def test_a_list_with_something_twice(start_broker: StartBroker) -> None:
    """KAFKA-19875: it was taken, and the next start of a broker stopped at it."""
    broker = await start_broker()
    client = await Client.connect(broker.port)
    configs = [CreatableTopicConfig(name="cleanup.policy", value="compact,compact")]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
    answer = await client.call(CreateTopicsRequest(topics=[topic]), 7)
    assert answer.topics[0].error_code == 0
    assert (await alter(client, (TOPIC, "t"), ("cleanup.policy", SET, "delete,delete")))[0] == 0
    await client.close()
    await broker.stop()
    again = await start_broker()
    client = await Client.connect(again.port)
    assert (await value(client, (TOPIC, "t"), "cleanup.policy"))[0] == "delete"
    await client.close()


async def test_a_topic_that_is_made_and_deleted_at_once(client: Client) -> None:
    """KAFKA-19497: both in one delta left a topic that was not there."""
    topics = [CreatableTopic(name=f"t{n}", num_partitions=2, replication_factor=1) for n in range(20)]
    making = CreateTopicsRequest(topics=topics)
    deleting = DeleteTopicsRequest(topic_names=[each.name for each in topics])
    client.send(making, 5)
    client.send(deleting, 5)
    await client.receive(making, 5)
    _, deleted = await client.receive(deleting, 5)
    assert {each.error_code for each in deleted.responses} == {0}  # type: ignore[attr-defined]
    answer = await client.call(MetadataRequest(topics=None), 9)
    assert answer.topics == []


async def test_too_many_partitions_in_one_request(start_broker: StartBroker) -> None:
    """KAFKA-17870: their sum is limited, not each topic's number."""
    broker = await start_broker(lockstep_max_partitions_per_request="10")
    client = await Client.connect(broker.port)
    topics = [CreatableTopic(name=f"t{n}", num_partitions=4, replication_factor=1) for n in range(4)]
    answer = await client.call(CreateTopicsRequest(topics=topics), 7)
    assert [each.error_code for each in answer.topics] == [0, 0, E.POLICY_VIOLATION, E.POLICY_VIOLATION]
    await client.close()


async def test_requests_that_make_no_sense_hold_no_memory(broker: Broker) -> None:
    """KAFKA-20302, KAFKA-18339: what was counted for a request is given back where it cannot be read."""
    assert broker.assembly is not None
    connections = broker.assembly.connections
    for _ in range(50):
        client = await Client.connect(broker.port)
        body = struct.pack(">hhih", 0, 9, 1, -1) + b"\xff" * 100_000
        client.writer.write(struct.pack(">i", len(body)) + body)
        assert await client.is_closed()
        await client.close()
    client = await Client.connect(broker.port)
    await client.create("t")
    assert (await client.produce("t", batch(b"a" * 100_000))).error_code == 0
    assert connections.in_flight_bytes == 0
    await client.close()


async def test_an_unrelated_change_keeps_the_value_of_a_synonym(start_broker: StartBroker) -> None:
    """KAFKA-17584: a dynamic change put the default in the place of what log.retention.hours says."""
    broker = await start_broker(log_retention_hours="3", log_roll_hours="5")
    client = await Client.connect(broker.port)
    await client.create("t")
    assert (await alter(client, (BROKER, ""), ("message.max.bytes", SET, "500000")))[0] == 0
    found = {name: (await value(client, (TOPIC, "t"), name))[0] for name in ("retention.ms", "segment.ms")}
    assert found == {"retention.ms": str(3 * 3_600_000), "segment.ms": str(5 * 3_600_000)}
    assert (await value(client, (TOPIC, "t"), "max.message.bytes"))[0] == "500000"
    await client.close()


async def test_configurations_that_are_not_there_any_more(start_broker: StartBroker) -> None:
    """KAFKA-19851: what an earlier version recorded kept all later changes from being made."""
    broker = await start_broker()
    client = await Client.connect(broker.port)
    topic_id = await client.create("t")
    of_topic = {"message.format.version": "2.8", "retention.bytes": "-7", "retention.ms": "1000"}
    of_group = {"consumer.gone": "1", "share.auto.offset.reset": "never"}
    await broker.assembly.topics.record_configs(
        [
            topic_configs_command(topic_id, of_topic),
            configs_command(
                BROKER_CONFIGS, "", {"log.message.format.version": "2.8", "max.connections": "0"}
            ),
            configs_command(GROUP_CONFIGS, "g", of_group),
        ]
    )
    await client.close()
    await broker.stop()
    again = await start_broker()
    client = await Client.connect(again.port)
    assert (await value(client, (TOPIC, "t"), "retention.ms"))[0] == "1000"
    assert await alter(client, (TOPIC, "t"), ("retention.ms", SET, "2000")) == (0, None)
    assert await alter(client, (BROKER, ""), ("message.max.bytes", SET, "500000")) == (0, None)
    assert await alter(client, (GROUP, "g"), ("consumer.session.timeout.ms", SET, "50000")) == (0, None)
    image = again.assembly.cluster.image
    assert image.topics[topic_id].overrides == {**of_topic, "retention.ms": "2000"}
    assert image.configs[BROKER_CONFIGS, ""]["max.connections"] == "0"
    assert image.configs[GROUP_CONFIGS, "g"] == {**of_group, "consumer.session.timeout.ms": "50000"}
    assert (await alter(client, (TOPIC, "t"), ("retention.bytes", SET, "-7")))[0] == E.INVALID_CONFIG
    edits = [(name, DELETE, None) for name in ("message.format.version", "retention.bytes")]
    assert await alter(client, (TOPIC, "t"), *edits) == (0, None)
    assert image.topics[topic_id].overrides == {"retention.ms": "2000"}
    assert await alter(client, (BROKER, ""), ("log.message.format.version", DELETE, None)) == (0, None)
    assert set(image.configs[BROKER_CONFIGS, ""]) == {"max.connections", "message.max.bytes"}
    await client.close()
