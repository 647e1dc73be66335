"""The loop of one task: it fetches a range of one partition and yields columns of a few thousand rows.

Owns: the position in the range, the one Fetch in flight, and the handling of errors.

Invariants: every record of the range that its isolation level shows is yielded once, in order. With
failOnDataLoss=false the loss of records or of their topic is no failure: the range ends where they end, but
only after the wait that would end in an error otherwise. The next Fetch is sent before the last one is
decoded, so that the broker reads while this side computes; there is never more than one. A repeated request
starts where the last complete response ended.

Does not: make Arrow batches (`columns`), choose ranges (`range_plan`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final

from lockstep.protocol.cluster_view import LEADERSHIP_ERRORS
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lockstep.protocol.primitives import Buffer
from lockstep.protocol.records.batch import iter_headers, verify
from lockstep.protocol.records.committed import CommittedReader
from spark_connector.connection import (
    BrokerError,
    ClientError,
    ClusterClient,
    ConnectionFailed,
    ResponseFuture,
)
from spark_connector.options import EARLIEST, LATEST, SourceOptions
from spark_connector.source.batch_decoder import RecordColumns, append_records
from spark_connector.source.positions import offsets_at
from spark_connector.source.range_plan import OffsetRange

MAX_WAIT_MS: Final = 500
"""The broker's wait: only for a follower that is behind, as ranges are below the end of the log."""
_ROWS: Final = 16_384
_BYTES: Final = 2 * 1024 * 1024
"""An Arrow batch is yielded at this number of rows or of bytes; it ends with a batch of the log."""
_MIN_BYTES: Final = 128 * 1024
_FIRST_OFFSET_BYTES: Final = 4096
"""The assumed size of a record until the first response."""
_RETRY_PAUSE_S: Final = 0.1
_RETRIABLE_ERRORS: Final = LEADERSHIP_ERRORS | {
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REPLICA_NOT_AVAILABLE,
}
_ABSENT_TOPIC_ERRORS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_log = logging.getLogger(__name__)


class DataLost(ClientError):
    """Offsets of the range do not exist any more, or not yet again."""


def fetch_request(
    cluster: ClusterClient,
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int,
    committed: bool,
    version: int,
) -> FetchRequest:
    """A Fetch of one partition, for a broker that serves `version` of it."""
    uses_ids = version >= 13
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        topics=[
            FetchTopic(
                topic="" if uses_ids else topic,
                topic_id=cluster.topic(topic).topic_id if uses_ids else bytes(16),
                partitions=[wanted],
            )
        ],
    )


def records_of(data: PartitionData) -> Buffer:
    """The batches of a response, which a decoder yields as one buffer."""
    records = data.records or b""
    assert not isinstance(records, list)
    return records


class RangeReader:
    """Reads one range; iterate over it once."""

    def __init__(self, cluster: ClusterClient, requested_range: OffsetRange, options: SourceOptions) -> None:
        self._cluster = cluster
        self._range = requested_range
        self._options = options
        self._position = requested_range.start
        self._pending: ResponseFuture[FetchResponse] | None = None
        self._progress_at = time.monotonic()
        self._start = requested_range.start
        """The offset at which the response begins that is decoded now."""
        self._offset_bytes: float = _FIRST_OFFSET_BYTES

    def __iter__(self) -> Iterator[RecordColumns]:
        """Raises DataLost, BrokerError, ConnectionFailed, and MalformedBatch for malformed records."""
        columns = RecordColumns()
        while self._position < self._range.end:
            data = self._next()
            if data is None:
                continue
            yield from self._decode(data, columns)
            self._progress_at = time.monotonic()  # the time that the caller spends on its rows does not count
        if len(columns):
            yield columns

    def _next(self) -> PartitionData | None:
        """The next response with records, after the request for the one behind it was sent; None: repeat."""
        try:
            if self._pending is None:
                self._pending = self._request()
            pending, self._pending = self._pending, None
            response = pending.result(self._cluster.timeout_s + MAX_WAIT_MS / 1000)
            data = self._check(response)
        except ConnectionFailed as error:
            self._wait(error)
            return None
        except BrokerError as error:
            self._retry_or_raise(error)
            return None
        after, size = self._position, 0
        for _, header in iter_headers(records_of(data)):
            after = header.next_offset
            size += header.total_bytes
        if after <= self._position:
            self._wait_for_records()
            return None
        self._progress_at = time.monotonic()
        self._offset_bytes = size / (after - self._position)
        self._start, self._position = self._position, after
        if after < self._range.end:
            self._pending = self._prefetch()
        return data

    def _request(self) -> ResponseFuture[FetchResponse]:
        leader = self._cluster.leader(self._range.topic, self._range.partition)
        request = fetch_request(
            self._cluster,
            self._range.topic,
            self._range.partition,
            self._position,
            max_bytes=self._request_bytes(),
            committed=self._options.committed,
            version=leader.version_of(FetchRequest),
        )
        return leader.start(request, FetchResponse)

    def _request_bytes(self) -> int:
        """An upper estimate of the rest of the range: a small range causes no large response."""
        guess = int((self._range.end - self._position) * self._offset_bytes * 1.1)
        return min(max(guess, _MIN_BYTES), self._options.fetch_bytes)

    def _prefetch(self) -> ResponseFuture[FetchResponse] | None:
        """Sends the next request; its failure is handled when its response is needed."""
        try:
            return self._request()
        except ClientError:
            return None

    def _check(self, response: FetchResponse) -> PartitionData:
        about = f"{self._range.topic}, partition {self._range.partition}"
        if response.error_code:
            raise BrokerError(response.error_code, about)
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code:
                    raise BrokerError(data.error_code, about)
                return data
        raise ClientError(f"{about}: the broker's response has no partition")

    def _decode(self, data: PartitionData, columns: RecordColumns) -> Iterator[RecordColumns]:
        """Fills `columns`, and yields their content as often as there is enough of it."""
        options, records = self._options, records_of(data)
        committed = CommittedReader(data.aborted_transactions or ()) if options.committed else None
        for at, header in iter_headers(records):
            if committed is not None:
                seen = committed.is_visible(records, at, header)  # called for each batch, in order
            else:
                if options.check_crcs:
                    verify(records, at, header)
                seen = not header.is_control
            if not seen or header.base_offset >= self._range.end or header.last_offset < self._start:
                continue
            append_records(
                columns,
                records,
                at,
                header,
                self._start,
                self._range.end,
                with_headers=options.include_headers,
            )
            if len(columns) >= _ROWS or columns.value_bytes >= _BYTES:
                yield columns.drain()

    def _retry_or_raise(self, error: BrokerError) -> None:
        """Waits after a retriable error; raises any other."""
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                self._skip_lost_offsets(error)
                return
            except BrokerError as other:  # from the request for the present offsets
                error = other
        if error.code not in _RETRIABLE_ERRORS:
            raise error
        self._wait(error)

    def _skip_lost_offsets(self, error: BrokerError) -> None:
        part = (self._range.topic, self._range.partition)
        earliest = offsets_at(self._cluster, [part], EARLIEST, committed=False)[part]
        latest = offsets_at(self._cluster, [part], LATEST, committed=self._options.committed)[part]
        if self._options.fail_on_data_loss:
            raise DataLost(
                f"{part[0]}, partition {part[1]}: offsets {self._position} to {self._range.end - 1} were to "
                f"be read, the partition has {earliest} to {latest - 1}; set failOnDataLoss=false to "
                "continue with the remaining records"
            )
        if latest <= self._position or earliest >= self._range.end:
            self._position = self._range.end
        elif earliest > self._position:
            self._position = earliest
        else:
            self._wait(error)  # it was a follower that is behind, or the records came back

    def _wait_for_records(self) -> None:
        waited_s = time.monotonic() - self._progress_at
        if waited_s > self._options.poll_timeout_s:
            lost = DataLost(
                f"{self._range.topic}, partition {self._range.partition}: nothing at offset {self._position} "
                f"or after it for {self._options.poll_timeout_s:g} s (kafkaConsumer.pollTimeoutMs)"
            )
            self._end_here(lost)
            return
        time.sleep(_RETRY_PAUSE_S / 10)

    def _wait(self, error: ClientError) -> None:
        """Waits for fresh metadata; raises `error` when there was no progress for too long."""
        self._pending = None
        if time.monotonic() - self._progress_at > self._cluster.timeout_s:
            if not isinstance(error, BrokerError) or error.code not in _ABSENT_TOPIC_ERRORS:
                raise error  # a broker that cannot be reached has lost nothing
            self._end_here(error)
            return
        time.sleep(_RETRY_PAUSE_S)
        self._cluster.refresh()

    def _end_here(self, lost: ClientError) -> None:
        """Raises `lost`; with failOnDataLoss=false it ends the range instead."""
        if self._options.fail_on_data_loss:
            raise lost
        _log.warning("offsets %d to %d are skipped: %s", self._position, self._range.end - 1, lost)
        self._position = self._range.end
