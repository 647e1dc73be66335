"""Produce to a partition that is not led here names its leader, from version 10 on (KIP-951)."""

from __future__ import annotations

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.storage.types import NotLeader
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client, batch


@pytest.mark.parametrize("version", [9, 10, 13])
async def test_the_leader_is_named(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    topic_id = await client.create("t", 2)
    partitions = [PartitionProduceData(index=index, records=batch(b"x")) for index in (0, 1, 7)]
    named = TopicProduceData(partition_data=partitions)
    if version >= 13:
        named.topic_id = topic_id
    else:
        named.name = "t"
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named])
    healthy: ProduceResponse = await client.call(request, version)
    assert healthy.node_endpoints == []

    def refuse(*_: object, **__: object) -> int:
        raise NotLeader("group 1 is not led here")

    monkeypatch.setattr(broker.groups[1], "append", refuse)
    response: ProduceResponse = await client.call(request, version)
    told = response.responses[0].partition_responses
    moved, unknown = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in told] == [moved, moved, unknown]
    known = (1, broker.groups[1].term) if version >= 10 else (-1, -1)
    leaders = [(each.current_leader.leader_id, each.current_leader.leader_epoch) for each in told]
    assert leaders == [known, known, (-1, -1)]
    endpoints = [(each.node_id, each.port) for each in response.node_endpoints]
    assert endpoints == ([(1, broker.port)] if version >= 10 else [])


async def test_what_another_group_has_committed_is_not_taken_back(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever numbers no batches would send it once more, and have it twice."""
    broker = await start_broker(lockstep_data_groups="2")
    client = await Client.connect(broker.port)
    await client.create("t", 2)
    groups = []
    for index in (0, 1):
        partition = broker.assembly.cluster.partition("t", index)
        assert partition is not None
        groups.append(partition.group)
    assert groups[0] is not groups[1]

    def lost(waiter: object) -> None:
        assert callable(waiter)
        broker.assembly.loop.call_later(0.05, waiter, NotLeader("lost"))  # after the other one's commit

    monkeypatch.setattr(groups[1], "when_committed", lost)
    partitions = [PartitionProduceData(index=index, records=batch(b"x")) for index in (0, 1)]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=partitions)]
    )
    response: ProduceResponse = await client.call(request, 11)
    kept, gone = response.responses[0].partition_responses
    assert (kept.error_code, kept.base_offset) == (ErrorCode.NONE, 0)
    assert (gone.error_code, gone.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert (kept.current_leader.leader_id, gone.current_leader.leader_id) == (-1, 1)
    await client.close()


@pytest.mark.parametrize("epoch", [0, -1])
async def test_a_refusal_that_rests_on_a_lost_tail_is_taken_back(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    """Out of order, or fenced, by batches that another leader may replace: not said before the commit."""
    await client.create("t")
    first = batch(b"a", producer_id=7, producer_epoch=1, base_sequence=0)
    assert (await client.produce("t", first)).error_code == ErrorCode.NONE
    wrong = batch(b"b", producer_id=7, producer_epoch=1 + epoch, base_sequence=5)
    refused = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if epoch == 0 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await client.produce("t", wrong)).error_code == refused

    def lost(waiter: object) -> None:
        assert callable(waiter)
        broker.assembly.loop.call_soon(waiter, NotLeader("lost"))

    monkeypatch.setattr(broker.groups[1], "when_committed", lost)
    assert (await client.produce("t", wrong)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
