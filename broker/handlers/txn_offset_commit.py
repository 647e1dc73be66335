"""TxnOffsetCommit: offsets that hold if a transaction commits; answered when they are in the log (KIP-98).

Versions: up to 2 they do not say which member commits (KIP-447); 4 knows TRANSACTION_ABORTABLE; 5 adds the
group's partition to the transaction, as AddOffsetsToTxn does for others (KIP-890). 6 names topics by id
(KIP-1319) and is not served: after a topic was deleted and created anew Apache Kafka 4.4.0's producer repeats
a request with the old id for ever, while by name it goes on. Nothing is written before
the transaction's coordinator knows of this partition: what no marker follows would be pending for ever.
Source: Kafka's KafkaApis.handleTxnOffsetCommitRequest, OffsetMetadataManager.commitTransactionalOffset.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.append import VerificationGuardMismatch, VerificationRequired
from broker.context import ClientContext, HandlerResponse, PendingResponse, await_response
from broker.coordination.hosted import when_certain
from broker.groups.records import CommittedOffset, Record, are_too_large, is_too_long, offset_record
from broker.groups.store import GroupStore, Transaction
from broker.metadata import CONSUMER_OFFSETS, Topic
from broker.request_errors import RequestError
from broker.transactions.verification import Question
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

API_KEY = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = (0, 5)

LOADING_SINCE: Final = 2
"""Producers before Kafka 2.0 may crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
ABORTABLE_SINCE: Final = 4
ADDS_SINCE: Final = 5


def handle(context: ClientContext, header: RequestHeader, request: TxnOffsetCommitRequest) -> HandlerResponse:
    """Store what may be stored, at once where the transaction is known in the group's partition."""
    commit = _Commit(context, header.api_version, request)
    if not commit.valid:
        return commit.response
    if not request.group_id:
        return commit.refused(ErrorCode.INVALID_GROUP_ID)
    try:
        return commit.stored(Transaction(request.producer_id, request.producer_epoch))
    except RequestError as refused:
        return commit.refused(refused.error)
    except VerificationRequired as unverified:
        return commit.stored_when_verified(unverified.guard)


class _Commit:
    """One request, on its way."""

    __slots__ = ("_api_version", "_context", "_request", "response", "valid")

    def __init__(self, context: ClientContext, api_version: int, request: TxnOffsetCommitRequest) -> None:
        self._context = context
        self._api_version = api_version
        self._request = request
        self.valid: list[tuple[Topic, TxnOffsetCommitRequestPartition, TxnOffsetCommitResponsePartition]] = []
        """The partitions that exist, with what is answered."""
        self.response = TxnOffsetCommitResponse(
            topics=[self._topic(each) for each in request.topics if each.partitions]
        )

    def _topic(self, wanted: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
        """The answer for one topic, if all goes well."""
        topic = self._context.services.cluster.topic(wanted.name)
        count = 0 if topic is None else len(topic.partitions)
        answers = []
        for partition in wanted.partitions:
            answer = TxnOffsetCommitResponsePartition(partition_index=partition.partition_index)
            answers.append(answer)
            if topic is not None and 0 <= partition.partition_index < count:
                self.valid.append((topic, partition, answer))
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return TxnOffsetCommitResponseTopic(name=wanted.name, partitions=answers)

    def stored(self, transaction: Transaction) -> TxnOffsetCommitResponse | PendingResponse:
        """Append what may be stored. Raises RequestError, Uncertain, VerificationRequired; nothing has
        changed then."""
        request = self._request
        group_id = request.group_id
        store, coordinator = self._context.services.consumer_groups.of(group_id)
        error = coordinator.check_commit(
            group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            transactional=True,
        )
        if error is not ErrorCode.NONE:
            raise RequestError(error, "the member may not commit")
        said = ((topic.name, partition.committed_metadata) for topic, partition, _ in self.valid)
        if are_too_large(group_id, len(self.valid), said):
            raise RequestError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, "the offsets are too large")
        stored, records = self._records(store.time_ms())
        if not records:
            return self.response
        return _Answer(self, stored, store, group_id, records, transaction)

    async def stored_when_verified(self, guard: int) -> object | None:
        """Ask the transaction's coordinator first."""
        request, services = self._request, self._context.services
        place = CONSUMER_OFFSETS, services.consumer_groups.partition_of(request.group_id)
        adds = self._api_version >= ADDS_SINCE
        question = Question(request.transactional_id, request.producer_id, request.producer_epoch, adds)
        while True:
            codes = await services.verification.ask(question, [place])
            error = codes[place]
            if error is not ErrorCode.NONE:
                return self.refused(error)
            transaction = Transaction(request.producer_id, request.producer_epoch, verified=True, guard=guard)
            try:
                return await await_response(await when_certain(partial(self.stored, transaction)))
            except VerificationGuardMismatch as overtaken:
                if not adds:
                    return self.refused(overtaken.error)
                guard = overtaken.guard  # the marker may be that of the transaction before
            except RequestError as refused:
                return self.refused(refused.error)

    def _records(self, time_ms: int) -> tuple[list[TxnOffsetCommitResponsePartition], list[Record]]:
        """What to write, and whose answers it is; what is too long or is gone is refused on its own."""
        longest = self._context.services.settings.offset_metadata_max_bytes
        stored, records = [], []
        for topic, partition, answer in self.valid:
            if topic.deleted:  # while the transaction's coordinator was asked
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            metadata = partition.committed_metadata or ""
            if is_too_long(metadata, longest):
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            committed = CommittedOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                metadata,
                time_ms,
                topic_id=topic.topic_id,
            )
            records.append(
                offset_record(self._request.group_id, topic.name, partition.partition_index, committed)
            )
            stored.append(answer)
        return stored, records

    def refused(self, error: ErrorCode) -> TxnOffsetCommitResponse:
        """Nothing is stored, for this reason."""
        self.refuse([answer for _, _, answer in self.valid], error)
        return self.response

    def refuse(self, answers: list[TxnOffsetCommitResponsePartition], error: ErrorCode) -> None:
        """These are not stored."""
        told = _told(error, self._api_version)
        for each in answers:
            each.error_code = told


class _Answer(PendingResponse):
    """A TxnOffsetCommit response that waits for the commit. Raises VerificationRequired: there will be
    none."""

    __slots__ = ("_commit", "_stored")

    def __init__(
        self,
        commit: _Commit,
        stored: list[TxnOffsetCommitResponsePartition],
        store: GroupStore,
        group_id: str,
        records: list[Record],
        transaction: Transaction,
    ) -> None:
        super().__init__()
        self._commit = commit
        self._stored = stored
        store.append_within(transaction, group_id, records, self._committed)

    def _committed(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self._commit.refuse(self._stored, error)
        self.complete(self._commit.response)


def _told(error: ErrorCode, api_version: int) -> ErrorCode:
    """What a producer of this version understands. Source: Kafka's AddPartitionsToTxnManager, KafkaApis."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    busy = error is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < ADDS_SINCE  # some give up at that
    if busy or error is ErrorCode.NETWORK_EXCEPTION:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # asked again without looking for the coordinator
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
