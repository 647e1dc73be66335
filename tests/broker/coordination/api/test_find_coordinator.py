"""FindCoordinator: this node for groups and transactions, at once and after the first; nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS, TRANSACTION_STATE
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client, batch

GROUP, TRANSACTION, SHARE = 0, 1, 2


async def find(client: Client, version: int, kind: int = GROUP) -> list[tuple[int, int, str, int]]:
    """(error, node, host, port) for each key."""
    request = FindCoordinatorRequest(key_type=kind)
    if version >= 4:
        request.coordinator_keys = ["g", "", "g"]
    else:
        request.key = "g"
    response = await client.call(request, version)
    found: list[Any] = response.coordinators if version >= 4 else [response]
    if version >= 4:
        assert [each.key for each in found] == ["g", "", "g"]
    return [(each.error_code, each.node_id, each.host, each.port) for each in found]


@pytest.mark.parametrize("version", range(7))
async def test_this_node_for_every_group(broker: Broker, client: Client, version: int) -> None:
    here = (0, 1, "127.0.0.1", broker.port)
    for _ in range(2):
        assert await find(client, version) == [here] * (3 if version >= 4 else 1)
    assert broker.assembly.cluster.topic(CONSUMER_OFFSETS) is not None
    assert broker.assembly.cluster.topic(TRANSACTION_STATE) is None


@pytest.mark.parametrize("version", range(1, 7))
async def test_this_node_for_every_transactional_id(broker: Broker, client: Client, version: int) -> None:
    here = (0, 1, "127.0.0.1", broker.port)
    for _ in range(2):
        assert await find(client, version, TRANSACTION) == [here] * (3 if version >= 4 else 1)
    topic = broker.assembly.cluster.topic(TRANSACTION_STATE)
    assert topic is not None
    assert (topic.is_internal, len(topic.partitions), topic.topic_id) == (True, 50, bytes(15) + b"\3")
    assert broker.assembly.cluster.topic(CONSUMER_OFFSETS) is None


async def test_no_room_for_the_topic(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_max_partitions="10")
    client = await Client.connect(broker.port)
    for kind in (GROUP, TRANSACTION):
        assert await find(client, 3, kind) == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)]
    await client.close()


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS, TRANSACTION_STATE])
async def test_what_clients_may_do_with_the_topic(broker: Broker, client: Client, name: str) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    topic = (await client.call(request, 12)).topics[0]
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 50)
    refused = await client.produce(name, batch(b"x"))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    response = await client.call(DeleteTopicsRequest(topic_names=[name]), 5)
    assert response.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert response.responses[0].error_message
    assert (await client.fetch(name, 0)).error_code == 0


@pytest.mark.parametrize(
    ("name", "partitions", "configs", "error"),
    [
        (CONSUMER_OFFSETS, 3, {}, ErrorCode.INVALID_PARTITIONS),
        (CONSUMER_OFFSETS, -1, {"cleanup_policy": "delete"}, ErrorCode.INVALID_CONFIG),
        (TRANSACTION_STATE, 3, {}, ErrorCode.INVALID_PARTITIONS),
        (TRANSACTION_STATE, -1, {"cleanup_policy": "delete"}, ErrorCode.INVALID_CONFIG),
        ("__share_group_state", -1, {}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_clients_may_not_create(
    client: Client, name: str, partitions: int, configs: dict[str, str], error: ErrorCode
) -> None:
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )
    (made,) = (await client.call(CreateTopicsRequest(topics=[wanted]), 7)).topics
    assert (made.error_code, bool(made.error_message)) == (error, True)


async def test_a_client_may_create_it_as_it_is(broker: Broker, client: Client) -> None:
    await client.create(CONSUMER_OFFSETS, 50, cleanup_policy="compact")
    assert broker.assembly.consumer_groups.is_ready
