"""One task's staged writing: a producer id of its own, batches in order, a few of them on their way.

Owns: the sequences of each partition, what is sent and not yet answered. Invariants: batches of a partition
are appended in the order they were put, each once: what was lost on its way is sent again with the sequence
it had, which the broker knows again; `finish` returns only when everything is committed by the brokers; what
would leave the stage's log group is not sent, since one commit, or one abort, could not end it with the rest.
Does not: make batches' contents, or end the stage (`epochs`). Source: docs/staged.md; KIP-98 for sequences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.compression import Codec
from protocol.staged_messages import (
    STAGED_FEATURE,
    STAGED_PRODUCER_EPOCH,
    LockstepStagedRequest,
    LockstepStagedResponse,
    staged_transactional_id,
)
from spark_connector.connection import (
    BrokerError,
    ClientError,
    Cluster,
    Connection,
    ConnectionFailed,
    Pending,
    Unsupported,
)
from spark_connector.connection.cluster import MOVED
from spark_connector.sink.encoding import Body, sealed

Place = tuple[str, int]
"""Topic and partition."""

MOST_SENT: Final = 4
"""Requests on their way: the broker remembers five batches of a partition, and would know each again."""
NAMES_TOPICS: Final = 12
"""The newest version of Produce whose topics have names."""
REQUEST_TIMEOUT_MS: Final = 30_000
AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Refusals that pass, besides those of a leadership that moves: a batch is late, or before its time."""


@dataclass(frozen=True)
class Written:
    """What one stage holds: its id, and where it wrote."""

    producer_id: int
    places: tuple[Place, ...]
    records: int


class _Sent:
    """A batch that is not known to be committed."""

    __slots__ = ("batch", "pending", "place")

    def __init__(self, place: Place, batch: bytes) -> None:
        self.place = place
        self.batch = batch
        self.pending: Pending[ProduceResponse] | None = None


class StageWriter:
    """See the module. One task's; nothing is asked of a broker before the first batch.

    Args: query: whose stage it is.
    """

    def __init__(self, cluster: Cluster, query: str, codec: Codec = Codec.NONE) -> None:
        self._cluster = cluster
        self._query = query
        self._codec = codec
        self._producer_id = -1
        self._groups: dict[str, list[int]] = {}
        """By topic that was written to: the log groups that its partitions are in."""
        self._sequences: dict[Place, int] = {}
        self._sent: deque[_Sent] = deque()
        self._records = 0

    def put(self, topic: str, partition: int, body: Body) -> None:
        """Send a batch; may wait for earlier ones. Raises ClientError; the stage is of no use then."""
        if topic not in self._groups:
            self._begin(topic)
        while len(self._sent) >= MOST_SENT:
            self._take_first()
        place = topic, partition
        sequence = self._sequences.get(place, 0)
        batch = sealed(body, self._producer_id, STAGED_PRODUCER_EPOCH, sequence, self._codec)
        self._sequences[place] = (sequence + body.record_count) & 0x7FFF_FFFF
        self._records += body.record_count
        sent = _Sent(place, batch)
        self._sent.append(sent)
        try:
            sent.pending = self._start(sent)
        except (BrokerError, ConnectionFailed):
            self._send_again()

    def finish(self) -> Written:
        """Wait until all of it is committed by the brokers (and invisible). Raises as `put`."""
        while self._sent:
            self._take_first()
        return self.written

    @property
    def written(self) -> Written:
        """What there is to be ended, finished or not."""
        return Written(self._producer_id, tuple(self._sequences), self._records)

    # --- within -------------------------------------------------------------------------------------------

    def _begin(self, topic: str) -> None:
        """Before the first batch for it. Raises ClientError where it would leave the stage's log group."""
        answer = new_stage(self._cluster, self._query, [topic])
        groups = self._groups | {each.name: each.group_ids for each in answer.topics}
        groups_of(groups)
        self._groups = groups
        if self._producer_id < 0:
            self._producer_id = answer.producer_id

    def _take_first(self) -> None:
        """The oldest batch is committed when this returns."""
        first = self._sent[0]
        assert first.pending is not None
        try:
            _check(first, first.pending.result())
        except ConnectionFailed:
            self._send_again()
        except BrokerError as error:
            if not _passes(error):
                raise
            self._send_again()
        else:
            self._sent.popleft()

    def _send_again(self) -> None:
        """Whatever became of them: what is on its way, one after the other, until each is committed."""
        while self._sent:
            first = self._sent[0]

            def attempt(sent: _Sent = first) -> None:
                _check(sent, self._start(sent).result())

            self._cluster.refresh()
            self._cluster.retried(attempt, also=AGAIN)
            self._sent.popleft()

    def _start(self, sent: _Sent) -> Pending[ProduceResponse]:
        topic, partition = sent.place
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


def new_stage(cluster: Cluster, query: str, topics: list[str] | None = None) -> LockstepStagedResponse:
    """A staged producer id, and which log groups the topics are in. Raises ClientError."""

    def ask() -> LockstepStagedResponse:
        connection = require_staging(cluster.any())
        request = LockstepStagedRequest(query=query, topics=topics or [])
        answer = connection.call(request, LockstepStagedResponse)
        if answer.error_code:
            raise BrokerError(answer.error_code, f"a stage of query {query}", answer.error_message)
        return answer

    return cluster.retried(ask, also=(ErrorCode.KAFKA_STORAGE_ERROR,))


def groups_of(told: Mapping[str, Sequence[int]]) -> list[int]:
    """The log group that all of these topics are in, none where none of them is known.

    Args: told: what `new_stage` answers, by topic. Raises ClientError where there are several.
    """
    groups = sorted({group for each in told.values() for group in each})
    if len(groups) > 1:
        where = "; ".join(f"{name} in {', '.join(map(str, each))}" for name, each in told.items() if each)
        raise ClientError(
            f"the exactly-once sink writes to one log group, and this is in {len(groups)} ({where}); make "
            "the topics with the same lockstep.group"
        )
    return groups


def require_staging(connection: Connection) -> Connection:
    """A broker that knows of stages. Raises Unsupported for Apache Kafka's."""
    if connection.features.get(STAGED_FEATURE, (0, 0))[1] < 1:
        raise Unsupported(
            f"{connection} does not have the feature {STAGED_FEATURE}: the exactly-once sink needs "
            'Lockstep\'s brokers; for others there is format("kafka")'
        )
    return connection


def _passes(error: BrokerError) -> bool:
    return error.code in MOVED or error.code in AGAIN


def _check(sent: _Sent, answer: ProduceResponse) -> None:
    """Raises BrokerError where the batch was refused, ClientError where the answer is of something else."""
    topic, partition = sent.place
    found: list[PartitionProduceResponse] = [
        each for one in answer.responses for each in one.partition_responses
    ]
    if len(found) != 1 or found[0].index != partition:
        raise ClientError(f"{topic}, partition {partition}: the broker answered about something else")
    if found[0].error_code:
        raise BrokerError(found[0].error_code, f"{topic}, partition {partition}", found[0].error_message)
