"""Produce: append each partition's batch, respond when all appended batches are committed.

Versions 3 to 13 are served and 0 to 13 advertised: old librdkafka takes a lowest version of 3 for "no
compression" (KAFKA-18659). 7 allows zstd (KIP-110); 8 carries an error's text and the invalid records
(KIP-467); 10 names the leader of a partition led elsewhere (KIP-951); 11 knows TRANSACTION_ABORTABLE, 12 adds
partitions to the transaction (KIP-890, `broker/transactions/verification_queue.py`); 13 names topics by id
(KIP-516). acks=1 is served like acks=all. acks=0 has no response, but counts as in flight until the commit,
so that its producer is slowed down like others; an error closes the connection, as in Kafka. Transactions may
use acks=0, locks may not, since no client would learn of a conflict. A request that takes more than one time
slice continues in later ones (`broker/produce/sliced_produce.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from lockstep.broker.locks.lock_check import require_no_locks
from lockstep.broker.metadata.leader_epochs import last_leader
from lockstep.broker.metadata.metadata_cache import Topic, TopicPartition
from lockstep.broker.produce.api.atomic_produce import PartitionBatch, append_atomically, is_atomic
from lockstep.broker.produce.appender import AppendResult
from lockstep.broker.produce.batch_validation import AppendLimits
from lockstep.broker.produce.rejected_batches import record_rejected
from lockstep.broker.produce.sliced_produce import SlicedProduce
from lockstep.broker.requests.errors import RecordErrors, RequestError
from lockstep.broker.requests.request_context import (
    ClientContext,
    ConnectionRejected,
    HandlerResponse,
    PendingResponse,
)
from lockstep.broker.requests.time_slices import run_slice
from lockstep.broker.settings.topic_config import LOCKS_KEPT
from lockstep.broker.staging.staged_append import StagedAppenders
from lockstep.broker.transactions.verification_queue import Outcome, PendingBatch, VerificationPending
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from lockstep.protocol.staged_messages import staged_query
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Buffer

API_KEY: Final = ApiKey.PRODUCE
VERSIONS: Final = (3, 13)
CURRENT_LEADER_MIN_VERSION: Final = 10
TOPIC_IDS_MIN_VERSION: Final = 13
VALID_ACKS: Final = (-1, 0, 1)
MAX_TEXT: Final = 5_000
"""Characters of an error text: the longest names of topic and lock, escaped, and the sentence around them."""
MAX_RECORD_ERRORS: Final = 10_000
"""LIMIT. Records that one response names, with some hundred bytes each: a small batch may expand to many. A
batch with more invalid records fails as a whole, and its text has their number."""
ERRORS_IN_TEXT: Final = 3
"""Kafka puts so many of them into the text, too."""


SPECULATIVE_ERRORS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Errors that depend on batches which may not be committed yet: they are returned after the commit."""


class UnacknowledgedError(ConnectionRejected):
    """A batch sent with acks=0 was rejected: closing the connection is the only way to report it."""

    is_same_for_all_clients = False  # each is a loss of records and leaves no other trace


def handle(context: ClientContext, header: RequestHeader, request: ProduceRequest) -> HandlerResponse:
    """Serve one Produce request; the response waits for the commit of what it appended."""
    is_unacknowledged = request.acks == 0
    services = context.services
    transactional_id = request.transactional_id
    if transactional_id is None:
        produced = _PendingProduce(context, header.api_version, services.appenders, is_unacknowledged)
    elif (query := staged_query(transactional_id)) is not None:
        staged = StagedAppenders(services.appenders, services.staged_ends, transactional_id, query)
        produced = _PendingProduce(context, header.api_version, staged, is_unacknowledged)
    else:
        appenders = services.verification_queue.appenders(transactional_id)
        produced = _TransactionalProduce(context, header.api_version, appenders, is_unacknowledged)
    try:
        if request.acks not in VALID_ACKS:
            problem = f"acks must be -1, 0 or 1, not {request.acks}"
            raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, problem)
        if request.unknown_tags and is_atomic(request):
            topics = produced.append_all(request.topic_data)
        else:
            topics = []
            steps_left = produced.run_first_slice(request.topic_data, topics)
            if steps_left is not None:
                return _continue_sliced(produced, request, topics, steps_left)
    except RequestError as error:
        topics = [produced.reject_topic(topic, error) for topic in request.topic_data]
        produced.await_commit_of_all(topics)
    response = ProduceResponse(responses=topics)
    if is_unacknowledged:
        if produced.last_error is not None:
            raise UnacknowledgedError(str(produced.last_error))
        is_pending = produced.pending_batches or produced.awaiting_commit
        return _UnacknowledgedProduce(produced) if is_pending else None
    if produced.has_moved_partition:
        produced.add_leaders(response)
    if produced.pending_batches:
        return _DelayedResponse(response, produced)
    if not produced.awaiting_commit:
        return response
    return _CommittedResponse(response, produced)


def _continue_sliced(
    produced: _PendingProduce,
    request: ProduceRequest,
    topics: list[TopicProduceResponse],
    steps: Iterator[None],
) -> PendingResponse:
    """Continue in later time slices, from a copy of the batches that are left."""
    for topic in request.topic_data:
        for each in topic.partition_data:
            if each.records is not None:
                each.records = bytes(each.records)
    produced.pending_batches += 1
    produced.is_sliced = True
    response: PendingResponse
    if produced.is_unacknowledged:
        response = _UnacknowledgedProduce(produced)
    else:
        response = _DelayedResponse(ProduceResponse(responses=topics), produced)
    return SlicedProduce(produced.context.services.time_slicer, steps, produced, response)


class _AppendPath(Protocol):
    def append(
        self, partition: PartitionLog, records: Buffer, limits: AppendLimits, produce_version: int
    ) -> AppendResult:
        """Raises RequestError, or Held where a transactional batch waits."""


class _Appenders(Protocol):
    def __getitem__(self, number: int) -> _AppendPath:
        """The append path into a data group."""


class _PendingProduce:
    """The appends of one request and the responses that wait for them; Kafka's DelayedProduce."""

    __slots__ = (
        "abort_reason",
        "appenders",
        "awaiting_commit",
        "context",
        "has_moved_partition",
        "is_sliced",
        "is_unacknowledged",
        "last_error",
        "on_batch_settled",
        "pending_batches",
        "produce_version",
        "record_errors_left",
    )

    def __init__(
        self, context: ClientContext, produce_version: int, appenders: _Appenders, is_unacknowledged: bool
    ) -> None:
        self.context = context
        self.is_unacknowledged = is_unacknowledged
        self.produce_version = produce_version
        self.appenders = appenders
        self.awaiting_commit: dict[LogGroup, list[PartitionProduceResponse]] = {}
        """The partition responses that wait for a commit, by log group."""
        self.pending_batches = 0
        """Batches that wait for a transaction's coordinator; the batches left for later time slices count as
        one."""
        self.on_batch_settled: Callable[[], None] | None = None
        """Called when a pending batch is resolved, and at the end of each later time slice."""
        self.is_sliced = False
        """The request continues in later time slices."""
        self.abort_reason: RequestError | None = None
        """The error of all batches that are still left, once the request was aborted."""
        self.last_error: RequestError | None = None
        self.record_errors_left = MAX_RECORD_ERRORS
        """How many more records the response may name."""
        self.has_moved_partition = False
        """This node does not lead a partition: the response names its leader (KIP-951)."""

    def run_first_slice(
        self, requested: list[TopicProduceData], topics: list[TopicProduceResponse]
    ) -> Iterator[None] | None:
        """Append the batches of one slice, their responses into `topics`. Returns the steps left, or None."""
        if len(requested) == 1 and len(requested[0].partition_data) == 1:  # most: no clock is read
            topic_data = requested[0]
            topics.append(_topic_response(topic_data, [self.batch(topic_data, topic_data.partition_data[0])]))
            return None
        steps = self.steps(requested, topics)
        return None if run_slice(steps) else steps

    def steps(self, requested: list[TopicProduceData], topics: list[TopicProduceResponse]) -> Iterator[None]:
        """Append one batch in each step, their responses into `topics`."""
        for topic_data in requested:
            partition_responses: list[PartitionProduceResponse] = []
            topics.append(_topic_response(topic_data, partition_responses))
            for data in topic_data.partition_data:
                yield
                partition_responses.append(self.batch(topic_data, data))
                data.records = None  # frees the bytes while later time slices run

    def batch(self, topic_data: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        """Append one batch to its topic, which may have been deleted since the last time slice."""
        try:
            topic = self.find_topic(topic_data)
        except RequestError as error:
            return self.reject(topic_data, data, error)
        if self.abort_reason is None:
            response = self._append_to_partition(topic, topic_data, data)
            if self.is_sliced and response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.abort(
                    "a batch before it could not be appended"
                )  # the client learns at once that later batches fail
            return response
        return self.reject(topic_data, data, self.abort_reason)

    def on_slice_end(self, is_done: bool) -> None:
        """A later time slice has ended; `is_done`: it was the last one."""
        if is_done:
            self.pending_batches -= 1
        if self.on_batch_settled is not None:
            self.on_batch_settled()

    def abort(self, reason: str) -> None:
        """Append no further batch: reject all that are left."""
        self.abort_reason = self.abort_reason or RequestError(ErrorCode.REQUEST_TIMED_OUT, reason)

    def find_topic(self, data: TopicProduceData) -> Topic:
        """The topic of this name or id. Raises RequestError."""
        cluster = self.context.services.cluster
        if self.produce_version >= TOPIC_IDS_MIN_VERSION:
            topic = cluster.topic_by_id(data.topic_id)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = cluster.topic(data.name)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            raise RequestError(unknown, unknown.message)
        if topic.is_internal:
            # Kafka lets a client named __admin_client write here; what it writes would be replayed at once.
            problem = f"Cannot append to internal topic {topic.name}"
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return topic

    def _append_to_partition(
        self, topic: Topic, topic_data: TopicProduceData, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        """Append one partition's batch."""
        try:
            partition, records = _find_partition(topic, data)
            group = partition.group
            if not group.is_leader:
                raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")
            if self.is_unacknowledged and topic.config.lockstep_locks == LOCKS_KEPT:
                require_no_locks(records, topic.config.max_message_bytes)
            appended = self.appenders[group.group_id].append(
                partition.log, records, topic.config, self.produce_version
            )
        except RequestError as error:
            response = self.reject(topic_data, data, error, topic.name)
            if error.error in SPECULATIVE_ERRORS:
                self.await_commit(group, response)
            return response
        except VerificationPending as waiting:
            return self.respond_later(partition, waiting.batch)
        response = _partition_response(data, partition, appended)
        self.await_commit(group, response)
        return response

    def append_all(self, requested: list[TopicProduceData]) -> list[TopicProduceResponse]:
        """Append the batches of all partitions as one. Raises RequestError for all of them."""
        batches: list[PartitionBatch] = []
        for topic_data in requested:
            topic = self.find_topic(topic_data)
            batches += [(topic, *_find_partition(topic, each)) for each in topic_data.partition_data]
        try:
            appended = append_atomically(batches, self.context.services.appenders, self.produce_version)
        except RequestError as error:
            if error.error in SPECULATIVE_ERRORS:
                self.awaiting_commit[batches[0][1].group] = []  # see `await_commit_of_all`
            raise
        partition_data = [each for data in requested for each in data.partition_data]
        appends = zip(partition_data, batches, appended, strict=True)
        responses = [
            _partition_response(each, partition, result) for each, (_, partition, _), result in appends
        ]
        self.awaiting_commit[batches[0][1].group] = responses
        remaining = iter(responses)
        return [_topic_response(data, [next(remaining) for _ in data.partition_data]) for data in requested]

    def respond_later(self, partition: TopicPartition, batch: PendingBatch) -> PartitionProduceResponse:
        """The response of a batch that waits for its coordinator: only batches of a transactional id do."""
        raise NotImplementedError

    def await_commit_of_all(self, topics: list[TopicProduceResponse]) -> None:
        """Let all responses wait for the commits that the request waits for already."""
        for responses in self.awaiting_commit.values():
            responses += [each for topic in topics for each in topic.partition_responses]

    def await_commit(self, group: LogGroup, response: PartitionProduceResponse) -> None:
        """Let the response wait for the next commit of this group."""
        awaiting = self.awaiting_commit.get(group)
        if awaiting is None:
            self.awaiting_commit[group] = [response]
        else:
            awaiting.append(response)

    def reject_topic(self, data: TopicProduceData, error: RequestError) -> TopicProduceResponse:
        """The same error response for each of the topic's partitions."""
        return _topic_response(data, [self.reject(data, each, error) for each in data.partition_data])

    def reject(
        self, topic: TopicProduceData, data: PartitionProduceData, error: RequestError, topic_name: str = ""
    ) -> PartitionProduceResponse:
        """The error response of a rejected batch, whose sequence is recorded as rejected."""
        services = self.context.services
        record_rejected(services.cluster, services.appenders, topic, data)
        response = PartitionProduceResponse(index=data.index, base_offset=-1)
        self.set_error(response, error, topic_name)
        return response

    def set_error(
        self, response: PartitionProduceResponse, error: RequestError, topic_name: str = ""
    ) -> None:
        """Put the error into the response. `topic_name`: for the error texts of single records."""
        self.last_error = error
        self.has_moved_partition = self.has_moved_partition or error.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        response.error_code = error.error
        response.error_message = error.message[:MAX_TEXT]
        if isinstance(error, RecordErrors) and len(error.indexes) <= self.record_errors_left:
            self.record_errors_left -= len(error.indexes)
            _add_record_errors(response, error, topic_name)

    def fail_uncommitted(self, responses: list[PartitionProduceResponse]) -> None:
        """Leadership was lost before the commit: no response that waits for it may report success. Committed
        batches keep theirs: a producer that got an error would send them again."""
        for each in responses:
            if each.error_code == ErrorCode.NONE or each.error_code in SPECULATIVE_ERRORS:
                each.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                each.error_message = None
                each.base_offset = -1
                self.has_moved_partition = True

    def _partition_responses(
        self, response: ProduceResponse
    ) -> Iterator[tuple[PartitionProduceResponse, TopicPartition | None]]:
        """Each partition response, with the partition if this node knows it."""
        cluster = self.context.services.cluster
        by_id = self.produce_version >= TOPIC_IDS_MIN_VERSION
        for topic_data in response.responses:
            topic = cluster.topic_by_id(topic_data.topic_id) if by_id else cluster.topic(topic_data.name)
            for each in topic_data.partition_responses:
                yield each, cluster.partition(topic.name, each.index) if topic is not None else None

    def add_leaders(self, response: ProduceResponse) -> None:
        """Name the known leaders of the partitions that this node does not lead (KIP-951)."""
        if self.produce_version < CURRENT_LEADER_MIN_VERSION:
            return
        for each, partition in self._partition_responses(response):
            if partition is None or each.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            leader_id, leader_epoch = last_leader(partition)
            each.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            node = self.context.endpoint_of(leader_id)
            if node is not None and all(known.node_id != leader_id for known in response.node_endpoints):
                response.node_endpoints.append(
                    NodeEndpoint(node_id=leader_id, host=node.host, port=node.port, rack=node.rack)
                )


def _find_partition(topic: Topic, data: PartitionProduceData) -> tuple[TopicPartition, Buffer]:
    if not 0 <= data.index < len(topic.partitions):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise RequestError(error, error.message)
    if not data.records:
        raise RequestError(ErrorCode.INVALID_RECORD, "no record batch; exactly one is allowed")
    return topic.partitions[data.index], data.records


def _add_record_errors(response: PartitionProduceResponse, error: RecordErrors, topic_name: str) -> None:
    """Name the invalid records in Kafka's words: its producers fail these records with their text, and the
    other records of the batch as sent together with an invalid one."""
    problem = f"{error.problem} in topic partition {topic_name}-{response.index}"
    response.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=problem)
        for index in error.indexes
    ]
    examples = ", ".join(
        [f"RecordError(batchIndex={index}, message='{problem}')" for index in error.indexes[:ERRORS_IN_TEXT]]
    )
    response.error_message = (
        f"One or more records have been rejected due to {len(error.indexes)} record errors in total, and "
        f"only showing the first three errors at most: [{examples}]"
    )


def _topic_response(
    data: TopicProduceData, responses: list[PartitionProduceResponse]
) -> TopicProduceResponse:
    return TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=responses)


def _partition_response(
    data: PartitionProduceData, partition: TopicPartition, appended: AppendResult
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.log_start_offset,
    )


class _TransactionalProduce(_PendingProduce):
    """A request of a transactional id: its batches may wait for a coordinator."""

    __slots__ = ()

    def respond_later(self, partition: TopicPartition, batch: PendingBatch) -> PartitionProduceResponse:
        """A response that is filled in when the coordinator has answered."""
        response = PartitionProduceResponse(index=partition.index, base_offset=-1)
        group, log = partition.group, partition.log  # the partition may have others by then
        topic_name = partition.topic.name

        def on_verified(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError):
                self.set_error(response, outcome, topic_name)
                if outcome.error in SPECULATIVE_ERRORS:
                    self.await_commit(group, response)
            else:
                self.await_commit(group, response)
                response.base_offset = outcome.base_offset
                response.log_append_time_ms = outcome.log_append_time_ms
                response.log_start_offset = log.log_start_offset
            self.pending_batches -= 1
            if self.on_batch_settled is not None:
                self.on_batch_settled()

        self.pending_batches += 1
        batch.on_outcome = on_verified
        return response


class _CommittedResponse(PendingResponse):
    """A Produce response that waits for one commit of each group, as nearly all do. `_PendingCommits` would
    take 3 % more processor time a request."""

    __slots__ = ("_pending", "_produced", "_waiting_response")

    def __init__(self, response: ProduceResponse, produced: _PendingProduce) -> None:
        super().__init__()
        self._waiting_response = response
        self._produced = produced
        self._pending = len(produced.awaiting_commit)
        for group, responses in produced.awaiting_commit.items():
            group.when_committed(partial(self._on_committed, responses))

    def _on_committed(self, responses: list[PartitionProduceResponse], error: BaseException | None) -> None:
        if error is not None:
            self._produced.fail_uncommitted(responses)
        self._pending -= 1
        if self._pending == 0:
            if self._produced.has_moved_partition:
                self._produced.add_leaders(self._waiting_response)
            self.complete(self._waiting_response)


class _PendingCommits(PendingResponse):
    """Waits for pending batches, and for each commit from the append on: an appended batch may be lost with a
    leadership that comes back before the last coordinator has answered."""

    __slots__ = ("_pending", "_produced")

    def __init__(self, produced: _PendingProduce) -> None:
        super().__init__()
        self._produced = produced
        self._pending = 0
        if produced.pending_batches:
            produced.on_batch_settled = self._collect_commits
        self._collect_commits()

    def _collect_commits(self) -> None:
        awaiting, self._produced.awaiting_commit = self._produced.awaiting_commit, {}
        self._pending += len(awaiting)
        for group, responses in awaiting.items():
            group.when_committed(partial(self._on_committed, responses))
        self._try_complete()

    def _on_committed(self, responses: list[PartitionProduceResponse], error: BaseException | None) -> None:
        if error is not None:
            self._produced.fail_uncommitted(responses)
        self._pending -= 1
        self._try_complete()

    def _try_complete(self) -> None:
        """Complete the response if nothing is pending any more."""
        raise NotImplementedError


class _DelayedResponse(_PendingCommits):
    """A response with the result of each batch."""

    __slots__ = ("_waiting_response",)

    def __init__(self, response: ProduceResponse, produced: _PendingProduce) -> None:
        self._waiting_response = response
        super().__init__(produced)

    def _try_complete(self) -> None:
        if self._pending == 0 and self._produced.pending_batches == 0:
            if self._produced.has_moved_partition:
                self._produced.add_leaders(self._waiting_response)
            self.complete(self._waiting_response)


class _UnacknowledgedProduce(_PendingCommits):
    """acks=0: a response of nothing, unless a batch was rejected. The request counts as in flight until all
    of
    it is committed or lost: that slows down a producer which waits for nothing."""

    __slots__ = ()

    def _try_complete(self) -> None:
        if self.done or self._produced.pending_batches:
            return
        error = self._produced.last_error
        if error is not None:
            self.fail(UnacknowledgedError(str(error)))
        elif self._pending == 0:
            self.complete(None)
