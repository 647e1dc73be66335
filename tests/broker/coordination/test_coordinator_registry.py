"""The front door, of both kinds: whose key it is, how the topic comes to be, what is said without one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.broker.coordination.coordinator_registry import CoordinatorRegistry
from lockstep.broker.coordination.key_hash import positive_hash
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.metadata.metadata_cache import Topic
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.server import Broker
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.protocol.errors import ErrorCode
from tests.broker.conftest import StartBroker

KINDS = pytest.mark.parametrize("kind", [GroupCoordinators, TransactionCoordinators])
Kind = type[GroupCoordinators] | type[TransactionCoordinators]
KEYS = [f"key-{number}" for number in range(20)]


def front_door(broker: Broker, kind: Kind) -> CoordinatorRegistry[Any]:
    return broker.assembly.consumer_groups if kind is GroupCoordinators else broker.assembly.transactions


def refused(coordination: CoordinatorRegistry[Any]) -> tuple[ErrorCode, str]:
    """What is said to whoever asks of a key."""
    with pytest.raises(RequestError) as found:
        if isinstance(coordination, GroupCoordinators):
            coordination.coordinator("a")
        elif isinstance(coordination, TransactionCoordinators):
            coordination.describe("a")
    return found.value.error, found.value.message


@KINDS
async def test_keys_are_spread_as_kafka_spreads_them(start_broker: StartBroker, kind: Kind) -> None:
    texts = {"offsets_topic_num_partitions": "7", "transaction_state_log_num_partitions": "7"}
    broker = await start_broker(lockstep_data_groups="2", **texts)
    coordination = front_door(broker, kind)
    before = [coordination.partition_of(key) for key in KEYS]
    assert before == [positive_hash(key) % 7 for key in KEYS]
    assert coordination.coordinator_node("a") == -1 and not coordination.is_ready
    assert refused(coordination) == (ErrorCode.NOT_COORDINATOR, f"{kind.topic_name} is not there yet")
    await asyncio.gather(
        coordination.create_topic(broker.assembly.forwarder),
        coordination.create_topic(broker.assembly.forwarder),
    )
    await coordination.create_topic(broker.assembly.forwarder)
    topic = broker.assembly.cluster.topic(kind.topic_name)
    assert topic is not None and (topic.topic_id, len(topic.partitions)) == (kind.topic_id, 7)
    assert coordination.is_ready
    assert [coordination.partition_of(key) for key in KEYS] == before
    assert {coordination.coordinator_node(key) for key in KEYS} == {1}


@KINDS
async def test_an_ordinary_topic_of_its_name_is_left_alone(
    broker: Broker, kind: Kind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    coordination, cluster = front_door(broker, kind), broker.assembly.cluster
    coordination.check()
    assert not caplog.records
    config = (await broker.assembly.forwarder.ensure_topic("t")).config
    monkeypatch.setitem(cluster._by_name, kind.topic_name, Topic(kind.topic_name, bytes(16), config))
    coordination.check()
    assert [(each.name, each.message) for each in caplog.records] == [(kind.log.name, kind.conflicting_topic)]
    with pytest.raises(RequestError) as found:
        await coordination.create_topic(broker.assembly.forwarder)
    said = ErrorCode.COORDINATOR_NOT_AVAILABLE, kind.conflicting_topic
    assert (found.value.error, found.value.message) == said == refused(coordination)
    assert cluster.topic_by_id(kind.topic_id) is None


@KINDS
async def test_a_log_group_that_goes(broker: Broker, kind: Kind) -> None:
    coordination = front_door(broker, kind)
    await coordination.create_topic(broker.assembly.forwarder)
    with pytest.raises(ValueError, match="log group 1 has a shard already"):
        coordination._require_absent(1)
    following = len(broker.groups[1].on_leading)
    coordination.remove_shard(1)
    coordination.remove_shard(1)
    assert len(broker.groups[1].on_leading) == following - 1
    assert refused(coordination) == (ErrorCode.NOT_COORDINATOR, "log group 1 is not led here")
    coordination._require_absent(1)
