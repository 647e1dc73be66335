"""Appends rows to one partition so that row n is the record at offset n, through all crashes.

Owns: the one way in which pipelines write. The partition begins empty and has no other writer, so its end is
the number of stored rows, and nothing else has to be stored. Every batch carries the claim's producer id, and
its row number as its sequence: a broker appends it only where it follows on what it has of that producer, so
a batch is a compare-and-append. A retried batch is acknowledged without being stored again. A batch of a dead
writer that is still in flight when the next writer lists the end is either included in that end, or rejected
later, or causes the next writer's batch to be rejected, which then lists the end again. Two writers at once
do no harm: each row is stored once.

A broker remembers a silent producer for a day (`producer.id.expiration.ms`). After that the first batch is
accepted without a check of its sequence; all batches of the dead writer have arrived or are lost by then.

Invariants: rows of one partition in their order; nothing is left out; at most one batch is in flight for each
partition, so a broker's five remembered batches are enough. Source: KIP-98; docs/spark_pipelines.md.
"""

from __future__ import annotations

import contextlib
import time
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
from lockstep.protocol.records.record import BatchBuilder, Headers
from spark_connector.connection import (
    BrokerError,
    ClusterClient,
    ConnectionFailed,
    ResponseFuture,
    list_offsets,
)
from spark_connector.options import LATEST
from spark_connector.pipelines.claims import TopicClaim
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.topic_queries import NEW_TOPIC_ERRORS

Row = tuple[bytes | None, bytes | None, int, Headers]
"""Value, key, time in milliseconds, headers."""

_SEQUENCES: Final = 1 << 31
_ROW_BYTES: Final = 64
"""An upper bound of a record's bytes beside its key, value and headers."""
_PAUSE_S: Final = 0.05
_SEQUENCE_ERRORS: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_RETRIABLE_ERRORS: Final = LEADERSHIP_ERRORS.union(
    NEW_TOPIC_ERRORS,
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ),
)


@dataclass(frozen=True)
class BatchSettings:
    """The size and the codec of batches. `size_bytes`: before compression; below message.max.bytes (1 MiB by
    default)."""

    size_bytes: int = 512 * 1024
    codec: Codec = Codec.NONE


class PartitionAppender:
    """The appender of one partition. `position` is the row to add next: the caller skips those before it."""

    def __init__(
        self, cluster: ClusterClient, claim: TopicClaim, partition: int, settings: BatchSettings | None = None
    ) -> None:
        """Lists the partition's end. BrokerError, ConnectionFailed."""
        self._cluster = cluster
        self._claim = claim
        self._partition = partition
        self._settings = settings or BatchSettings()
        self._about = f"{claim.topic}, partition {partition}"
        self.position = self._end()
        self.resumed_at = self.position
        self._rows: list[Row] = []
        self._size_bytes = 0
        self._sent: tuple[int, list[Row], ResponseFuture[ProduceResponse] | None] | None = None

    def add(self, row: Row) -> None:
        """Adds the next row. It is sent when a batch is full, and stored after `finish`. Raises as that."""
        value, key, _, headers = row
        size = _ROW_BYTES + len(value or b"") + len(key or b"")
        for name, content in headers:
            size += 8 + len(name) + len(content or b"")
        if self._rows and self._size_bytes + size > self._settings.size_bytes:
            self._send()
        self._rows.append(row)
        self._size_bytes += size
        self.position += 1

    def finish(self) -> None:
        """Waits until every added row is stored, here or by another writer of this claim.

        Raises PipelineFailed where another program writes to the topic, BrokerError and ConnectionFailed
        where the brokers were unavailable for the cluster's `timeout_s`.
        """
        if self._rows:
            self._send()
        self._await_pending()

    def _send(self) -> None:
        """Sends the collected rows once the batch before is stored; the encoding overlaps with that."""
        first, rows = self.position - len(self._rows), self._rows
        self._rows, self._size_bytes = [], 0
        batch = self._batch(first, rows)
        self._await_pending()
        pending = None
        with contextlib.suppress(ConnectionFailed, BrokerError):  # `_await_pending` sends it again
            pending = self._start_request(batch)
        self._sent = first, rows, pending

    def _await_pending(self) -> None:
        """Waits until the batch in flight is stored, and repeats it where necessary."""
        if self._sent is None:
            return
        first, rows, pending = self._sent
        self._sent = None
        deadline = time.monotonic() + self._cluster.timeout_s
        while rows:
            try:
                if pending is None:
                    pending = self._start_request(self._batch(first, rows))
                self._check(first, pending)
                return
            except BrokerError as error:
                if error.code == ErrorCode.MESSAGE_TOO_LARGE and len(rows) > 1:
                    half = len(rows) // 2
                    self._sent = first, rows[:half], None
                    self._await_pending()
                    first, rows = first + half, rows[half:]
                elif error.code in _SEQUENCE_ERRORS:
                    first, rows = self._rows_not_stored(first, rows, error, deadline)
                elif error.code not in _RETRIABLE_ERRORS or time.monotonic() > deadline:
                    raise
                else:
                    self._wait()
            except ConnectionFailed:
                if time.monotonic() > deadline:
                    raise
                self._wait()
            pending = None

    def _rows_not_stored(
        self, first: int, rows: list[Row], error: BrokerError, deadline: float
    ) -> tuple[int, list[Row]]:
        """The part of `rows` that another writer of this claim has not stored."""
        end = self._end()
        if end < first:
            raise PipelineFailed(
                f"{self._about} ends at {end}, after {first} rows were stored: records are lost"
            )
        if end == first:  # what was stored may not be committed yet
            if time.monotonic() > deadline:
                raise error
            self._wait()
            return first, rows
        return end, rows[end - first :]

    def _check(self, first: int, pending: ResponseFuture[ProduceResponse]) -> None:
        result = _single_response(pending.result(), self._about)
        if result.error_code:
            raise BrokerError(result.error_code, self._about, result.error_message)
        if result.base_offset != first:
            raise PipelineFailed(
                f"{self._about}: row {first} was stored at offset {result.base_offset}: another producer "
                "writes to this topic, so it cannot be resumed; begin again with an empty one"
            )

    def _start_request(self, batch: bytes) -> ResponseFuture[ProduceResponse]:
        topic = self._claim.topic
        connection = self._cluster.leader(topic, self._partition)
        uses_ids = connection.version_of(ProduceRequest) >= 13
        data = TopicProduceData(
            name="" if uses_ids else topic,
            topic_id=bytes.fromhex(self._claim.topic_id) if uses_ids else bytes(16),
            partition_data=[PartitionProduceData(index=self._partition, records=batch)],
        )
        timeout_ms = int(self._cluster.timeout_s * 1000)
        return connection.start(
            ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data]), ProduceResponse
        )

    def _batch(self, first: int, rows: list[Row]) -> bytes:
        builder = BatchBuilder(
            self._settings.codec,
            producer_id=self._claim.producer_id,
            producer_epoch=0,
            base_sequence=first % _SEQUENCES,
        )
        for value, key, timestamp_ms, headers in rows:
            builder.append(value, key, timestamp_ms=timestamp_ms, headers=headers)
        return builder.build()

    def _end(self) -> int:
        topic_partition = self._claim.topic, self._partition
        return list_offsets(self._cluster, {topic_partition: LATEST}, retriable=NEW_TOPIC_ERRORS)[
            topic_partition
        ]

    def _wait(self) -> None:
        time.sleep(_PAUSE_S)
        self._cluster.refresh()


def _single_response(response: ProduceResponse, about: str) -> PartitionProduceResponse:
    for topic in response.responses:
        for partition in topic.partition_responses:
            return partition
    raise PipelineFailed(f"{about}: the response to a Produce has no result")
