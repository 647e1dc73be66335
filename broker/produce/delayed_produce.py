"""The appends of one Produce request, and the response that waits for them; Kafka's DelayedProduce.

Owns: the response of each batch, what it still waits for (a commit, or its transaction's coordinator), and
what becomes of it where a leadership is lost. Invariants: a response waits for the commit of each batch that
was appended, from the append on, as a batch may be lost with a leadership that comes back before the last
coordinator has responded; an error that depends on batches which may not be committed waits, too.
Does not: choose the append path (`broker/produce/api/produce.py`), or slice the work
(`broker/produce/sliced_produce.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from lockstep.broker.authorization.authorizer import EVERYTHING, Access
from lockstep.broker.locks.lock_check import require_no_locks
from lockstep.broker.metadata.current_leader import (
    PRODUCE_ERRORS,
    PRODUCE_MIN_VERSION,
    current_leader,
    leader_endpoints,
)
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition, Topic
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.produce.append_result import (
    SPECULATIVE_ERRORS,
    AppendOutcome,
    AppendPaths,
    AppendResult,
    DelayedAppend,
)
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.rejected_batches import record_rejected
from lockstep.broker.requests.errors import RecordErrors, RequestError
from lockstep.broker.requests.request_context import ClientContext, ConnectionRejected, PendingResponse
from lockstep.broker.settings.topic_config import LOCKS_KEPT
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import Buffer

PartitionBatch = tuple[Topic, Partition, Buffer]
TOPIC_IDS_MIN_VERSION: Final = 13
MAX_TEXT: Final = 5_000
"""Characters of an error text: the longest names of topic and lock, escaped, and the sentence around them."""
MAX_RECORD_ERRORS: Final = 10_000
"""LIMIT. Records that one response names, with some hundred bytes each: a small batch may expand to many. A
batch with more invalid records fails as a whole, and its text has their number."""
NOT_AUTHORIZED: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
ERRORS_IN_TEXT: Final = 3
"""The number of records that the text names, as in Kafka."""


class UnacknowledgedError(ConnectionRejected):
    """A batch sent with acks=0 was rejected: closing the connection is the only way to report it."""

    is_same_for_all_clients = False  # each is a loss of records and leaves no other trace


class DelayedProduce(PendingResponse):
    """See the module.

    Args: appenders: the plain append path into each data group. paths: those of this request.
    """

    __slots__ = (
        "_abort_reason", "_access", "_appenders", "_awaiting_commit", "_client", "_cluster", "_endpoints",
        "_has_moved_partition", "_is_sliced", "_is_unacknowledged", "_last_error", "_paths",
        "_pending_batches", "_pending_commits", "_produce_version", "_record_errors_left", "topics",
    )  # fmt: skip

    def __init__(
        self,
        cluster: MetadataCache,
        appenders: Mapping[int, Appender],
        endpoints: NodeEndpoints,
        client: ClientContext,
        produce_version: int,
        paths: AppendPaths,
        is_unacknowledged: bool,
        access: Access = EVERYTHING,
    ) -> None:
        super().__init__()
        self._access = access
        self._cluster = cluster
        self._appenders = appenders
        self._endpoints = endpoints
        self._client = client
        self._produce_version = produce_version
        self._paths = paths
        self._is_unacknowledged = is_unacknowledged
        self.topics: list[TopicProduceResponse] = []
        """The content of the response."""
        self._awaiting_commit: dict[LogGroup, list[PartitionProduceResponse]] = {}
        """The partition responses that wait for a commit which is not awaited yet, by log group."""
        self._pending_commits = 0
        self._pending_batches = 0
        """Batches that wait for a transaction's coordinator; the batches left for later time slices count as
        one."""
        self._is_sliced = False
        """The request continues in later time slices."""
        self._abort_reason: RequestError | None = None
        """The error of all batches that are still left, once the request was aborted."""
        self._last_error: RequestError | None = None
        self._record_errors_left = MAX_RECORD_ERRORS
        """The number of further records that the response may name."""
        self._has_moved_partition = False
        """This node does not lead a partition: the response names its leader (KIP-951)."""

    # --- appending ------------------------------------------------------------------------------------------

    def append_first(self, requested: TopicProduceData) -> None:
        """Append the only batch of a request."""
        self.topics.append(_topic_response(requested, [self.batch(requested, requested.partition_data[0])]))

    def steps(self, requested: list[TopicProduceData]) -> Iterator[None]:
        """Append one batch in each step."""
        for topic_data in requested:
            partition_responses: list[PartitionProduceResponse] = []
            self.topics.append(_topic_response(topic_data, partition_responses))
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
        if self._abort_reason is None:
            response = self._append_to_partition(topic, topic_data, data)
            if self._is_sliced and response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # The client learns at once that later batches fail.
                self.abort("a batch before it could not be appended")
            return response
        return self.reject(topic_data, data, self._abort_reason)

    def _append_to_partition(
        self, topic: Topic, topic_data: TopicProduceData, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        """Append one partition's batch."""
        try:
            partition, records = _find_partition(topic, data)
            group = partition.group
            if not group.is_leader:
                raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")
            if self._is_unacknowledged and topic.config.lockstep_locks == LOCKS_KEPT:
                require_no_locks(records, topic.config.max_message_bytes)
            appended = self._paths[group.group_id].append(
                partition.log, records, topic.config, self._produce_version
            )
        except RequestError as error:
            response = self.reject(topic_data, data, error, topic.name)
            if error.error in SPECULATIVE_ERRORS:
                self._await_commit(group, response)
            return response
        if isinstance(appended, DelayedAppend):
            return self._respond_later(partition, appended)
        response = _partition_response(data, partition, appended)
        self._await_commit(group, response)
        return response

    def _respond_later(self, partition: Partition, batch: DelayedAppend) -> PartitionProduceResponse:
        """A response that is filled in when the coordinator has responded."""
        response = PartitionProduceResponse(index=partition.index, base_offset=-1)
        group, log = partition.group, partition.log  # the partition may have others later
        topic_name = partition.topic.name

        def on_verified(outcome: AppendOutcome) -> None:
            if isinstance(outcome, RequestError):
                self.set_error(response, outcome, topic_name)
                if outcome.error in SPECULATIVE_ERRORS:
                    self._await_commit(group, response)
            else:
                self._await_commit(group, response)
                response.base_offset = outcome.base_offset
                response.log_append_time_ms = outcome.log_append_time_ms
                response.log_start_offset = log.log_start_offset
            self._pending_batches -= 1
            self._await_commits()

        self._pending_batches += 1
        batch.on_outcome = on_verified
        return response

    def find_topic(self, data: TopicProduceData) -> Topic:
        """The topic of this name or id. Raises RequestError."""
        cluster = self._cluster
        if self._produce_version >= TOPIC_IDS_MIN_VERSION:
            topic = cluster.topic_by_id(data.topic_id)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = cluster.topic(data.name)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is None:
                self._check_access(data.name)
        if topic is None:
            raise RequestError(unknown, unknown.message)
        self._check_access(topic.name)
        if topic.is_internal:
            # Kafka lets a client named __admin_client write here; what it writes would be replayed at once.
            problem = f"Cannot append to internal topic {topic.name}"
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return topic

    def _check_access(self, name: str) -> None:
        """Raises RequestError for a topic that the client may not write."""
        access = self._access
        if access.is_checked and not access.allows(
            self._client, AclOperation.WRITE, AclResourceType.TOPIC, name
        ):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise RequestError(error, error.message)

    def append_all(
        self,
        requested: list[TopicProduceData],
        append: Callable[[list[PartitionBatch]], list[AppendResult]],
    ) -> None:
        """Append the batches of all partitions as one. Raises RequestError for all of them.

        Args: append: appends all or none of them. Raises RequestError.
        """
        batches: list[PartitionBatch] = []
        for topic_data in requested:
            topic = self.find_topic(topic_data)
            batches += [(topic, *_find_partition(topic, each)) for each in topic_data.partition_data]
        try:
            appended = append(batches)
        except RequestError as error:
            if error.error in SPECULATIVE_ERRORS:
                self._awaiting_commit[batches[0][1].group] = []  # `reject_all` adds the responses
            raise
        partition_data = [each for data in requested for each in data.partition_data]
        appends = zip(partition_data, batches, appended, strict=True)
        responses = [
            _partition_response(each, partition, result) for each, (_, partition, _), result in appends
        ]
        self._awaiting_commit[batches[0][1].group] = responses
        remaining = iter(responses)
        self.topics = [
            _topic_response(data, [next(remaining) for _ in data.partition_data]) for data in requested
        ]

    # --- rejecting ------------------------------------------------------------------------------------------

    def reject_all(self, requested: list[TopicProduceData], error: RequestError) -> None:
        """The same error response for each partition; it waits for the commits that are awaited already."""
        self.topics = [
            _topic_response(data, [self.reject(data, each, error) for each in data.partition_data])
            for data in requested
        ]
        for responses in self._awaiting_commit.values():
            responses += [each for topic in self.topics for each in topic.partition_responses]

    def abort(self, reason: str) -> None:
        """Append no further batch: reject all that are left."""
        self._abort_reason = self._abort_reason or RequestError(ErrorCode.REQUEST_TIMED_OUT, reason)

    def reject(
        self, topic: TopicProduceData, data: PartitionProduceData, error: RequestError, topic_name: str = ""
    ) -> PartitionProduceResponse:
        """The error response of a rejected batch. Its sequence is recorded as rejected, unless the client may
        not write there: then it is not to change anything."""
        if error.error not in NOT_AUTHORIZED:
            record_rejected(self._cluster, self._appenders, topic, data)
        response = PartitionProduceResponse(index=data.index, base_offset=-1)
        self.set_error(response, error, topic_name)
        return response

    def set_error(
        self, response: PartitionProduceResponse, error: RequestError, topic_name: str = ""
    ) -> None:
        """Put the error into the response. `topic_name`: for the error texts of single records."""
        self._last_error = error
        if error.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._has_moved_partition = True
        response.error_code = error.error
        response.error_message = error.message[:MAX_TEXT]
        if isinstance(error, RecordErrors) and len(error.indexes) <= self._record_errors_left:
            self._record_errors_left -= len(error.indexes)
            _add_record_errors(response, error, topic_name)

    # --- waiting for commits --------------------------------------------------------------------------------

    def respond(self) -> PendingResponse | ProduceResponse | None:
        """The response of the handler, once all batches are appended, rejected or waiting.

        Raises UnacknowledgedError.
        """
        if self._is_unacknowledged and self._last_error is not None:
            raise UnacknowledgedError(str(self._last_error))
        if self._awaiting_commit or self._pending_batches:
            self._register_commits()
            return self
        return None if self._is_unacknowledged else self._content()

    def start_later_slices(self) -> None:
        """Batches are left, which later time slices append; see `on_slice_end`."""
        self._is_sliced = True
        self._pending_batches += 1
        self._register_commits()

    def on_slice_end(self, is_done: bool) -> None:
        """A later time slice has ended; `is_done`: it was the last one."""
        if is_done:
            self._pending_batches -= 1
        self._await_commits()

    def _await_commit(self, group: LogGroup, response: PartitionProduceResponse) -> None:
        """Makes the response wait for the next commit of this group."""
        awaiting = self._awaiting_commit.get(group)
        if awaiting is None:
            self._awaiting_commit[group] = [response]
        else:
            awaiting.append(response)

    def _await_commits(self) -> None:
        """Wait for the commits of the batches appended since the last call, if anything is pending."""
        self._register_commits()
        self._try_complete()

    def _register_commits(self) -> None:
        """Register with each group that has appended since the last call; it may call back at once."""
        awaiting, self._awaiting_commit = self._awaiting_commit, {}
        self._pending_commits += len(awaiting)
        for group, responses in awaiting.items():
            group.when_committed(partial(self._on_committed, responses))

    def _on_committed(self, responses: list[PartitionProduceResponse], error: BaseException | None) -> None:
        if error is not None:
            self._fail_uncommitted(responses)
        self._pending_commits -= 1
        if not self._pending_commits:
            self._try_complete()

    def _try_complete(self) -> None:
        """Complete the response if nothing is pending any more. That of acks=0 is nothing, unless a batch was
        rejected; its request counts as in flight until all of it is committed or lost, which slows down a
        producer that waits for nothing."""
        if self.done or self._pending_batches:
            return
        if self._is_unacknowledged and self._last_error is not None:
            self.fail(UnacknowledgedError(str(self._last_error)))
        elif not self._pending_commits:
            self.complete(None if self._is_unacknowledged else self._content())

    def _content(self) -> ProduceResponse:
        response = ProduceResponse(responses=self.topics)
        if self._has_moved_partition:
            self._add_leaders(response)
        return response

    def _fail_uncommitted(self, responses: list[PartitionProduceResponse]) -> None:
        """Leadership was lost before the commit: no response that waits for it may report success. Committed
        batches keep theirs: a producer that got an error would send them again."""
        for each in responses:
            if each.error_code == ErrorCode.NONE or each.error_code in SPECULATIVE_ERRORS:
                each.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                each.error_message = None
                each.base_offset = -1
                self._has_moved_partition = True

    def fail_all_uncommitted(self, topics: list[TopicProduceResponse]) -> ProduceResponse:
        """The response to a request whose batches were all appended, and lost with the leadership."""
        self.topics = topics
        self._fail_uncommitted([each for topic in topics for each in topic.partition_responses])
        return self._content()

    def _partition_responses(
        self, response: ProduceResponse
    ) -> Iterator[tuple[PartitionProduceResponse, Partition | None]]:
        """Each partition response, with the partition if this node knows it."""
        cluster = self._cluster
        by_id = self._produce_version >= TOPIC_IDS_MIN_VERSION
        for topic_data in response.responses:
            topic = cluster.topic_by_id(topic_data.topic_id) if by_id else cluster.topic(topic_data.name)
            for each in topic_data.partition_responses:
                yield each, cluster.partition(topic.name, each.index) if topic is not None else None

    def _add_leaders(self, response: ProduceResponse) -> None:
        """Name the known leaders of the partitions that this node does not lead (KIP-951)."""
        if self._produce_version < PRODUCE_MIN_VERSION:
            return
        leader_ids = []
        for each, partition in self._partition_responses(response):
            if partition is None or each.error_code not in PRODUCE_ERRORS:
                continue
            leader_id, leader_epoch = current_leader(partition)
            each.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            leader_ids.append(leader_id)
        response.node_endpoints += [
            NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in leader_endpoints(leader_ids, self._endpoints, self._client)
        ]


def _find_partition(topic: Topic, data: PartitionProduceData) -> tuple[Partition, Buffer]:
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
    data: PartitionProduceData, partition: Partition, appended: AppendResult
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.log_start_offset,
    )
