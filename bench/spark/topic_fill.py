"""A topic full of records, for any broker, as fast as it takes them.

Owns: one batch, encoded once and appended again and again, a few requests on their way. Invariant: each
partition has as many records, all of one size. Does not: measure.
"""

from __future__ import annotations

import time
from collections import deque

from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from spark_connector.connection import BrokerError, ClusterClient, ResponseFuture
from spark_connector.sink.batch_encoder import bodies, build_batch

BATCH_BYTES = 512 * 1024
ON_THEIR_WAY = 4
NAMES_TOPICS = 12
TIMEOUT_MS = 30_000


def create(cluster: ClusterClient, topic: str, partitions: int) -> None:
    """Raises BrokerError."""
    new_topic = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=-1)
    request = CreateTopicsRequest(topics=[new_topic], timeout_ms=TIMEOUT_MS)
    (answer,) = cluster.any().call(request, CreateTopicsResponse).topics
    if answer.error_code:
        raise BrokerError(answer.error_code, topic, answer.error_message)


def fill(bootstrap: str, topic: str, partitions: int, records: int, record_bytes: int) -> int:
    """Make the topic and append at least `records`; how many there are. Raises ClientError."""
    now_ms = time.time_ns() // 1_000_000  # retention would take older ones
    per_batch = max(BATCH_BYTES // record_bytes, 1)
    (body,) = bodies(None, [b"x" * record_bytes] * per_batch, None, now_ms, 2 * BATCH_BYTES)
    batch = build_batch(body, -1, -1, -1)
    rounds = -(-records // (per_batch * partitions))
    with ClusterClient(bootstrap, client_id="bench-spark") as cluster:
        create(cluster, topic, partitions)
        for partition in range(partitions):  # a topic's leaders are there a moment after it
            cluster.retry(lambda at=partition: _check_appended(_sent(cluster, topic, at, batch)))  # type: ignore[misc]
        sent: deque[ResponseFuture[ProduceResponse]] = deque()
        for _ in range(rounds - 1):
            for partition in range(partitions):
                sent.append(_sent(cluster, topic, partition, batch))
                if len(sent) > ON_THEIR_WAY:
                    _check_appended(sent.popleft())
        while sent:
            _check_appended(sent.popleft())
    return rounds * partitions * per_batch


def _sent(
    cluster: ClusterClient, topic: str, partition: int, batch: bytes
) -> ResponseFuture[ProduceResponse]:
    part = PartitionProduceData(index=partition, records=batch)
    data = TopicProduceData(name=topic, partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
    return cluster.leader(topic, partition).start(request, ProduceResponse, newest=NAMES_TOPICS)


def _check_appended(pending: ResponseFuture[ProduceResponse]) -> None:
    for topic in pending.result().responses:
        for each in topic.partition_responses:
            if each.error_code:
                raise BrokerError(each.error_code, topic.name, each.error_message)
