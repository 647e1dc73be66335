"""TxnOffsetCommit: stores offsets within a transaction; responds when they are committed (KIP-98).

Versions: up to 2 they do not name the member (KIP-447); 4 knows TRANSACTION_ABORTABLE; 5 adds the group's
    partition to the transaction, as AddOffsetsToTxn does for others (KIP-890). 6 names topics by id
    (KIP-1319) and is not served: after a topic was deleted and re-created Apache Kafka 4.4.0's producer
    repeats a request with the old id for ever, while by name it continues. Nothing is written before the
    transaction's coordinator knows of this partition: without a marker the offsets would stay pending for
    ever.
Source: Kafka's KafkaApis.handleTxnOffsetCommitRequest, OffsetMetadataManager.commitTransactionalOffset.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Access, Authorizer
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.groups.group_records import (
    CommittedOffset,
    Record,
    are_too_large,
    is_too_long,
    offset_record,
)
from lockstep.broker.groups.group_store import OffsetTransaction
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS, MetadataCache, Topic
from lockstep.broker.produce.append_result import Unverified, VerificationGuardMismatch
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import (
    ClientContext,
    HandlerResponse,
    Needs,
    PendingResponse,
    RequestHandler,
    await_response,
)
from lockstep.broker.transactions.verification_client import Verification, VerificationRequest
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_MIN_VERSION: Final = 2
"""Producers before Kafka 2.0 may crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
ABORTABLE_MIN_VERSION: Final = 4
ADDS_MIN_VERSION: Final = 5


class TxnOffsetCommit(RequestHandler):
    """See the module."""

    api_key = ApiKey.TXN_OFFSET_COMMIT
    versions = (0, 5)
    needs = Needs.COORDINATOR

    def __init__(
        self,
        groups: GroupCoordinators,
        cluster: MetadataCache,
        verification: Verification,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups
        self._cluster = cluster
        self._verification = verification

    def lapsed_leaderships(self, request: TxnOffsetCommitRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards([request.group_id])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: TxnOffsetCommitRequest
    ) -> HandlerResponse:
        """Store the valid offsets, at once if the transaction is open in the group's partition."""
        commit = _Commit(self._groups, self._cluster, header.api_version, request, self._access, client)
        denied = self._denial(client, request)
        if denied is not ErrorCode.NONE:
            for each in commit.response.topics:
                for partition in each.partitions:
                    partition.error_code = denied
            return commit.response
        if not commit.valid:
            return commit.response
        if not request.group_id:
            return commit.error_response(ErrorCode.INVALID_GROUP_ID)
        try:
            stored = commit.store(OffsetTransaction(request.producer_id, request.producer_epoch))
        except RequestError as rejection:
            return commit.error_response(rejection.error)
        if isinstance(stored, Unverified):
            return commit.store_when_verified(self._verification, stored.guard)
        return stored

    def _denial(self, client: ClientContext, request: TxnOffsetCommitRequest) -> ErrorCode:
        """The error of a client that may not commit for this transaction or this group."""
        write, read = AclOperation.WRITE, AclOperation.READ
        if not self._access.allows(client, write, AclResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not self._access.allows(client, read, AclResourceType.GROUP, request.group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return ErrorCode.NONE


class _Commit:
    """One request."""

    __slots__ = (
        "_access", "_api_version", "_client", "_cluster", "_groups", "_request", "response", "valid",
    )  # fmt: skip

    def __init__(
        self,
        groups: GroupCoordinators,
        cluster: MetadataCache,
        api_version: int,
        request: TxnOffsetCommitRequest,
        access: Access,
        client: ClientContext,
    ) -> None:
        self._access = access
        self._client = client
        self._groups = groups
        self._cluster = cluster
        self._api_version = api_version
        self._request = request
        self.valid: list[tuple[Topic, TxnOffsetCommitRequestPartition, TxnOffsetCommitResponsePartition]] = []
        """The known partitions with their responses."""
        self.response = TxnOffsetCommitResponse(
            topics=[self._topic(each) for each in request.topics if each.partitions]
        )

    def _topic(self, requested: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
        """The response for one topic, as if all succeeds."""
        topic, error = self._cluster.topic(requested.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not self._access.allows(self._client, AclOperation.READ, AclResourceType.TOPIC, requested.name):
            topic, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        count = 0 if topic is None else len(topic.partitions)
        partition_responses = []
        for partition in requested.partitions:
            response = TxnOffsetCommitResponsePartition(partition_index=partition.partition_index)
            partition_responses.append(response)
            if topic is not None and 0 <= partition.partition_index < count:
                self.valid.append((topic, partition, response))
            else:
                response.error_code = error
        return TxnOffsetCommitResponseTopic(name=requested.name, partitions=partition_responses)

    def store(self, transaction: OffsetTransaction) -> TxnOffsetCommitResponse | PendingResponse | Unverified:
        """Append the valid offsets. Raises RequestError; then nothing has changed."""
        request = self._request
        group_id = request.group_id
        store, coordinator = self._groups.of(group_id)
        error = coordinator.check_commit(
            group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            transactional=True,
            partitions=((topic.topic_id, each.partition_index) for topic, each, _ in self.valid),
        )
        if error is not ErrorCode.NONE:
            raise RequestError(error, "the member may not commit")
        metadata_texts = ((topic.name, partition.committed_metadata) for topic, partition, _ in self.valid)
        if are_too_large(group_id, len(self.valid), metadata_texts):
            raise RequestError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, "the offsets are too large")
        stored, records = self._records(store.time_ms())
        if not records:
            return self.response
        pending = _PendingTxnOffsetCommitResponse(self, stored)
        unverified = store.append_within(transaction, group_id, records, pending.on_committed)
        return pending if unverified is None else unverified

    async def store_when_verified(self, verification: Verification, guard: int) -> object | None:
        """Stores the offsets after the transaction's coordinator has verified the partition."""
        request = self._request
        partition_key = CONSUMER_OFFSETS, self._groups.partition_of(request.group_id)
        adds_partition = self._api_version >= ADDS_MIN_VERSION
        verification_request = VerificationRequest(
            request.transactional_id, request.producer_id, request.producer_epoch, adds_partition
        )
        while True:
            codes = await verification.verify(verification_request, [partition_key])
            error = codes[partition_key]
            if error is not ErrorCode.NONE:
                return self.error_response(error)
            transaction = OffsetTransaction(
                request.producer_id, request.producer_epoch, verified=True, guard=guard
            )
            try:
                stored = self.store(transaction)
            except RequestError as rejection:
                return self.error_response(rejection.error)
            if not isinstance(stored, VerificationGuardMismatch):
                assert not isinstance(stored, Unverified), "the coordinator has verified the partition"
                return await await_response(stored)
            if not adds_partition:
                return self.error_response(stored.error().error)
            guard = stored.guard  # the marker may be that of the transaction before

    def _records(self, time_ms: int) -> tuple[list[TxnOffsetCommitResponsePartition], list[Record]]:
        """The records to append, and their partitions' responses; an unknown partition or too long metadata
        gets an error."""
        max_bytes = self._cluster.settings.offset_metadata_max_bytes
        stored, records = [], []
        for topic, partition, response in self.valid:
            if topic.deleted:  # during the verification by the transaction's coordinator
                response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            metadata = partition.committed_metadata or ""
            if is_too_long(metadata, max_bytes):
                response.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
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
            stored.append(response)
        return stored, records

    def error_response(self, error: ErrorCode) -> TxnOffsetCommitResponse:
        """Set an error for all known partitions: nothing is stored."""
        self.fail([response for _, _, response in self.valid], error)
        return self.response

    def fail(self, partition_responses: list[TxnOffsetCommitResponsePartition], error: ErrorCode) -> None:
        """Set an error for these partitions."""
        translated = _translated_error(error, self._api_version)
        for each in partition_responses:
            each.error_code = translated


class _PendingTxnOffsetCommitResponse(PendingResponse):
    """A TxnOffsetCommit response that waits for the commit."""

    __slots__ = ("_commit", "_stored")

    def __init__(
        self,
        commit: _Commit,
        stored: list[TxnOffsetCommitResponsePartition],
    ) -> None:
        super().__init__()
        self._commit = commit
        self._stored = stored

    def on_committed(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self._commit.fail(self._stored, error)
        self.complete(self._commit.response)


def _translated_error(error: ErrorCode, api_version: int) -> ErrorCode:
    """The error in terms of the request's version. Source: Kafka's AddPartitionsToTxnManager, KafkaApis."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_MIN_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    is_busy = (
        error is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < ADDS_MIN_VERSION
    )  # some clients fail at that
    if is_busy or error is ErrorCode.NETWORK_EXCEPTION:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # clients retry without looking for the coordinator
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < LOADING_MIN_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
