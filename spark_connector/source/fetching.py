"""The loop of one task: fetches a range of one partition and gives it as columns, a few thousand rows each.

Owns: the position in the range, the one Fetch that is under way, and what becomes of refusals.

Invariants: every record of the range that its isolation level shows is given once, in order. With
failOnDataLoss=false it is no failure that records or their topic are gone: the range ends where they end, but
only after the wait that would end in an error otherwise. The next Fetch
is sent before the last one is decoded, so that the broker reads while this side computes; there is never
more than one. What is asked again starts where the last whole answer ended.

Does not: make Arrow batches (`columns`), choose ranges (`planning`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.primitives import Buffer
from protocol.records.batch import iter_headers, verify
from protocol.records.committed import CommittedReader
from spark_connector.connection import BrokerError, ClientError, Cluster, ConnectionFailed, Pending
from spark_connector.connection.cluster import MOVED
from spark_connector.options import EARLIEST, LATEST, SourceOptions
from spark_connector.source.decoding import Columns, take
from spark_connector.source.planning import Range
from spark_connector.source.positions import ends

MAX_WAIT_MS: Final = 500
"""How long the broker may wait: for a follower that is behind, for ranges are below the end of the log."""
_ROWS: Final = 16_384
_BYTES: Final = 2 * 1024 * 1024
"""An Arrow batch is given when it has so many rows, or so many bytes; it ends with a batch of the log."""
_LEAST_BYTES: Final = 128 * 1024
_FIRST_OFFSET_BYTES: Final = 4096
"""What a record is thought to take until an answer says better."""
_RETRY_PAUSE_S: Final = 0.1
_AGAIN: Final = MOVED | {
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REPLICA_NOT_AVAILABLE,
}
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_log = logging.getLogger(__name__)


class DataLost(ClientError):
    """Offsets that were to be read are not there any more, or not yet there again."""


def fetch_request(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int,
    committed: bool,
    version: int,
) -> FetchRequest:
    """A Fetch of one partition, for a broker that speaks `version` of it."""
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
    """The batches of an answer; a decoder gives them in one piece."""
    records = data.records or b""
    assert not isinstance(records, list)
    return records


class RangeReader:
    """Reads one range; iterate over it once."""

    def __init__(self, cluster: Cluster, wanted: Range, options: SourceOptions) -> None:
        self._cluster = cluster
        self._range = wanted
        self._options = options
        self._position = wanted.start
        self._pending: Pending[FetchResponse] | None = None
        self._progress_at = time.monotonic()
        self._start = wanted.start
        """Where the answer begins that is decoded now."""
        self._offset_bytes: float = _FIRST_OFFSET_BYTES

    def __iter__(self) -> Iterator[Columns]:
        """Raises DataLost, BrokerError, ConnectionFailed, and MalformedBatch for what is no records."""
        columns = Columns()
        while self._position < self._range.end:
            data = self._next()
            if data is None:
                continue
            yield from self._decoded(data, columns)
            self._progress_at = time.monotonic()  # what the reader's user takes for its rows is no waiting
        if len(columns):
            yield columns

    def _next(self) -> PartitionData | None:
        """The next answer with records in it, the request for the one after it sent; None to ask again."""
        try:
            if self._pending is None:
                self._pending = self._asked()
            pending, self._pending = self._pending, None
            answer = pending.result(self._cluster.timeout_s + MAX_WAIT_MS / 1000)
            data = self._checked(answer)
        except ConnectionFailed as error:
            self._wait(error)
            return None
        except BrokerError as error:
            self._refused(error)
            return None
        after, size = self._position, 0
        for _, header in iter_headers(records_of(data)):
            after = header.next_offset
            size += header.total_bytes
        if after <= self._position:
            self._late()
            return None
        self._progress_at = time.monotonic()
        self._offset_bytes = size / (after - self._position)
        self._start, self._position = self._position, after
        if after < self._range.end:
            self._pending = self._asked_early()
        return data

    def _asked(self) -> Pending[FetchResponse]:
        leader = self._cluster.leader(self._range.topic, self._range.partition)
        request = fetch_request(
            self._cluster,
            self._range.topic,
            self._range.partition,
            self._position,
            max_bytes=self._wanted_bytes(),
            committed=self._options.committed,
            version=leader.version_of(FetchRequest),
        )
        return leader.start(request, FetchResponse)

    def _wanted_bytes(self) -> int:
        """What is left of the range will hardly be more than this; a small range brings no large answer."""
        guess = int((self._range.end - self._position) * self._offset_bytes * 1.1)
        return min(max(guess, _LEAST_BYTES), self._options.fetch_bytes)

    def _asked_early(self) -> Pending[FetchResponse] | None:
        """What fails now fails again when it is needed, and is dealt with there."""
        try:
            return self._asked()
        except ClientError:
            return None

    def _checked(self, answer: FetchResponse) -> PartitionData:
        about = f"{self._range.topic}, partition {self._range.partition}"
        if answer.error_code:
            raise BrokerError(answer.error_code, about)
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code:
                    raise BrokerError(data.error_code, about)
                return data
        raise ClientError(f"{about}: the broker answered with nothing")

    def _decoded(self, data: PartitionData, columns: Columns) -> Iterator[Columns]:
        """Fill `columns`, and give what is in them as often as there is enough; they are empty again then."""
        options, records = self._options, records_of(data)
        committed = CommittedReader(data.aborted_transactions or ()) if options.committed else None
        for at, header in iter_headers(records):
            if committed is not None:
                seen = committed.is_visible(records, at, header)  # each is asked about, in order
            else:
                if options.check_crcs:
                    verify(records, at, header)
                seen = not header.is_control
            if not seen or header.base_offset >= self._range.end or header.last_offset < self._start:
                continue
            take(
                columns,
                records,
                at,
                header,
                self._start,
                self._range.end,
                with_headers=options.include_headers,
            )
            if len(columns) >= _ROWS or columns.value_bytes >= _BYTES:
                yield columns.emptied()

    def _refused(self, error: BrokerError) -> None:
        """Go on after a refusal, or raise it."""
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                self._skip_what_is_lost(error)
                return
            except BrokerError as other:  # while it was asked what there is
                error = other
        if error.code not in _AGAIN:
            raise error
        self._wait(error)

    def _skip_what_is_lost(self, error: BrokerError) -> None:
        part = (self._range.topic, self._range.partition)
        earliest = ends(self._cluster, [part], EARLIEST, committed=False)[part]
        latest = ends(self._cluster, [part], LATEST, committed=self._options.committed)[part]
        if self._options.fail_on_data_loss:
            raise DataLost(
                f"{part[0]}, partition {part[1]}: offsets {self._position} to {self._range.end - 1} were to "
                f"be read, the partition has {earliest} to {latest - 1}; set failOnDataLoss=false to go on "
                "with what is there"
            )
        if latest <= self._position or earliest >= self._range.end:
            self._position = self._range.end
        elif earliest > self._position:
            self._position = earliest
        else:
            self._wait(error)  # it was a follower that is behind, or the records came back

    def _late(self) -> None:
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
        """A while, for fresh metadata; raises `error` when there was no progress for too long."""
        self._pending = None
        if time.monotonic() - self._progress_at > self._cluster.timeout_s:
            if not isinstance(error, BrokerError) or error.code not in _GONE:
                raise error  # a broker that cannot be reached has lost nothing
            self._end_here(error)
            return
        time.sleep(_RETRY_PAUSE_S)
        self._cluster.refresh()

    def _end_here(self, lost: ClientError) -> None:
        """Raises `lost`, or lets the range end where failOnDataLoss=false says to go on."""
        if self._options.fail_on_data_loss:
            raise lost
        _log.warning("offsets %d to %d are passed over: %s", self._position, self._range.end - 1, lost)
        self._position = self._range.end
