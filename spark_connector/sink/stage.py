"""One task's staged writing: a producer id of its own, batches in order, a few of them in flight.

Owns: the sequences of each partition, the batches in flight. Invariants: batches of a partition are appended
in the order of `put`, each once: a lost batch is sent again with its sequence, which the broker recognises;
`finish` returns only when everything is committed by the brokers; a batch for another log group than the
stage's is not sent, since one commit, or one abort, could not end it with the rest.
Does not: make batches' contents, or end the stage (`epochs`). Source: docs/staged.md; KIP-98 for sequences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lockstep.protocol.cluster_view import LEADERSHIP_ERRORS
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.staged_messages import (
    STAGED_FEATURE,
    STAGED_PRODUCER_EPOCH,
    LockstepStagedRequest,
    LockstepStagedResponse,
    staged_transactional_id,
)
from spark_connector.connection import (
    BlockingConnection,
    BrokerError,
    ClientError,
    ClusterClient,
    ConnectionFailed,
    ResponseFuture,
    Unsupported,
)
from spark_connector.options import TopicPartition
from spark_connector.sink.batch_encoder import Body, build_batch

MAX_IN_FLIGHT: Final = 4
"""Requests in flight: the broker remembers five batches of a partition, and recognises each of them."""
NAMES_TOPICS: Final = 12
"""The newest version of Produce whose topics have names."""
REQUEST_TIMEOUT_MS: Final = 30_000
RETRIABLE_ERRORS: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Transient errors, besides those of a leadership that moves: a batch came late, or before another one."""


@dataclass(frozen=True)
class StageSummary:
    """The contents of one stage: its id and its partitions."""

    producer_id: int
    topic_partitions: tuple[TopicPartition, ...]
    records: int


class _InFlightBatch:
    """A batch whose commit is not confirmed."""

    __slots__ = ("batch", "pending", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, batch: bytes) -> None:
        self.topic_partition = topic_partition
        self.batch = batch
        self.pending: ResponseFuture[ProduceResponse] | None = None


class StageWriter:
    """The stage of one task; no request is sent before the first batch.

    Args: query: the owner of the stage.
    """

    def __init__(self, cluster: ClusterClient, query: str, codec: Codec = Codec.NONE) -> None:
        self._cluster = cluster
        self._query = query
        self._codec = codec
        self._producer_id = -1
        self._groups: dict[str, list[int]] = {}
        """The log groups of the partitions, by the topics that were written to."""
        self._sequences: dict[TopicPartition, int] = {}
        self._sent: deque[_InFlightBatch] = deque()
        self._records = 0

    def put(self, topic: str, partition: int, body: Body) -> None:
        """Sends a batch; may wait for earlier ones. Raises ClientError; the stage is unusable then."""
        if topic not in self._groups:
            self._begin(topic)
        while len(self._sent) >= MAX_IN_FLIGHT:
            self._await_first()
        topic_partition = topic, partition
        sequence = self._sequences.get(topic_partition, 0)
        batch = build_batch(body, self._producer_id, STAGED_PRODUCER_EPOCH, sequence, self._codec)
        self._sequences[topic_partition] = (sequence + body.record_count) & 0x7FFF_FFFF
        self._records += body.record_count
        sent = _InFlightBatch(topic_partition, batch)
        self._sent.append(sent)
        try:
            sent.pending = self._start(sent)
        except (BrokerError, ConnectionFailed):
            self._send_again()

    def finish(self) -> StageSummary:
        """Waits until all of it is committed by the brokers (and invisible). Raises as `put`."""
        while self._sent:
            self._await_first()
        return self.summary

    @property
    def summary(self) -> StageSummary:
        """The contents to be ended, finished or not."""
        return StageSummary(self._producer_id, tuple(self._sequences), self._records)

    # --- private ------------------------------------------------------------------------------------------

    def _begin(self, topic: str) -> None:
        """Prepares for the first batch of a topic. Raises ClientError for one outside the stage's log
        group."""
        response = new_stage(self._cluster, self._query, [topic])
        groups = self._groups | {each.name: each.group_ids for each in response.topics}
        groups_of(groups)
        self._groups = groups
        if self._producer_id < 0:
            self._producer_id = response.producer_id

    def _await_first(self) -> None:
        """Waits until the oldest batch is committed."""
        first = self._sent[0]
        assert first.pending is not None
        try:
            _check(first, first.pending.result())
        except ConnectionFailed:
            self._send_again()
        except BrokerError as error:
            if not _is_retriable(error):
                raise
            self._send_again()
        else:
            self._sent.popleft()

    def _send_again(self) -> None:
        """Sends the batches in flight again, one after the other, until each is committed."""
        while self._sent:
            first = self._sent[0]

            def attempt(sent: _InFlightBatch = first) -> None:
                _check(sent, self._start(sent).result())

            self._cluster.refresh()
            self._cluster.retry(attempt, retriable=RETRIABLE_ERRORS)
            self._sent.popleft()

    def _start(self, sent: _InFlightBatch) -> ResponseFuture[ProduceResponse]:
        topic, partition = sent.topic_partition
        request = ProduceRequest(
            transactional_id=staged_transactional_id(self._query),
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=partition, records=sent.batch)]
                )
            ],
        )
        connection = self._cluster.leader(topic, partition)
        return connection.start(request, ProduceResponse, newest=NAMES_TOPICS)


def new_stage(cluster: ClusterClient, query: str, topics: list[str] | None = None) -> LockstepStagedResponse:
    """Requests a staged producer id and the log groups of the topics. Raises ClientError."""

    def attempt() -> LockstepStagedResponse:
        connection = require_staging(cluster.any())
        request = LockstepStagedRequest(query=query, topics=topics or [])
        response = connection.call(request, LockstepStagedResponse)
        if response.error_code:
            raise BrokerError(response.error_code, f"a stage of query {query}", response.error_message)
        return response

    return cluster.retry(attempt, retriable=(ErrorCode.KAFKA_STORAGE_ERROR,))


def groups_of(group_ids: Mapping[str, Sequence[int]]) -> list[int]:
    """The log group of all of these topics, none where none of them is known.

    Args: group_ids: the response of `new_stage`, by topic. Raises ClientError where there are several.
    """
    groups = sorted({group for each in group_ids.values() for group in each})
    if len(groups) > 1:
        where = "; ".join(
            f"{name} in {', '.join(map(str, each))}" for name, each in group_ids.items() if each
        )
        raise ClientError(
            f"the exactly-once sink writes to one log group, and this is in {len(groups)} ({where}); make "
            "the topics with the same lockstep.group"
        )
    return groups


def require_staging(connection: BlockingConnection) -> BlockingConnection:
    """Returns the connection if its broker has stages. Raises Unsupported for Apache Kafka's."""
    if connection.features.get(STAGED_FEATURE, (0, 0))[1] < 1:
        raise Unsupported(
            f"{connection} does not have the feature {STAGED_FEATURE}: the exactly-once sink needs "
            'Lockstep\'s brokers; for others there is format("kafka")'
        )
    return connection


def _is_retriable(error: BrokerError) -> bool:
    return error.code in LEADERSHIP_ERRORS or error.code in RETRIABLE_ERRORS


def _check(sent: _InFlightBatch, response: ProduceResponse) -> None:
    """Raises BrokerError where the batch was rejected, ClientError for the response to another request."""
    topic, partition = sent.topic_partition
    found: list[PartitionProduceResponse] = [
        each for one in response.responses for each in one.partition_responses
    ]
    if len(found) != 1 or found[0].index != partition:
        raise ClientError(f"{topic}, partition {partition}: the response is about another partition")
    if found[0].error_code:
        raise BrokerError(found[0].error_code, f"{topic}, partition {partition}", found[0].error_message)
