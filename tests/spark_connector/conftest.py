"""Brokers for the connector's blocking client, and records in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

import lockstep.testing
from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.protocol.primitives import Buffer
from spark_connector.connection import ClusterClient

NewTopic = Callable[..., str]
NEVER = (1 << 63) - 1
"""Of a compaction lag: tests expect every record, however long they take."""


@pytest.fixture(scope="session")
def running() -> Iterator[lockstep.testing.RunningBroker]:
    with lockstep.testing.broker_in_thread(
        log_flush="os", log_cleaner_min_compaction_lag_ms=NEVER, log_cleaner_max_compaction_lag_ms=NEVER
    ) as broker:
        yield broker


@pytest.fixture
def cluster(running: lockstep.testing.RunningBroker) -> Iterator[ClusterClient]:
    with ClusterClient(running.bootstrap_servers, timeout_s=10) as cluster:
        yield cluster


@pytest.fixture
def new_topic(cluster: ClusterClient) -> NewTopic:
    """Creates a topic that nobody has used; its name."""

    def create(partitions: int = 1) -> str:
        name = f"t-{uuid4().hex[:12]}"
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
        (result,) = cluster.any().call(request, CreateTopicsResponse).topics
        assert result.error_code == 0
        return name

    return create


def produce(
    cluster: ClusterClient,
    topic: str,
    batch: Buffer,
    partition: int = 0,
    *,
    transactional_id: str | None = None,
) -> int:
    """Append a batch; its base offset."""
    connection = cluster.leader(topic, partition)
    data = TopicProduceData(
        name=topic,
        topic_id=cluster.topic(topic).topic_id,
        partition_data=[PartitionProduceData(index=partition, records=batch)],
    )
    if connection.version_of(ProduceRequest) >= 13:
        data.name = ""
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data])
    (answer,) = connection.call(request, ProduceResponse).responses
    (result,) = answer.partition_responses
    assert result.error_code == 0, result
    return result.base_offset
