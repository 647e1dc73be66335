"""AddPartitionsToTxn: partitions take part in a producer's transaction (KIP-98, KIP-890).

Up to version 3 a client's request has one transaction; from 4 on brokers' requests have several, or only
verify that the partitions take part. One unknown partition rejects the others, as in Kafka; so does one of an
internal topic. Source: Kafka's KafkaApis.handleAddPartitionsToTxnRequest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import INTERNAL_TOPICS, MetadataCache
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.broker.transactions.transaction_records import TopicPartition
from lockstep.broker.transactions.verification_client import VerificationRequest
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_MIN_VERSION: Final = 4
FENCED_MIN_VERSION: Final = 2
"""Older versions do not know PRODUCER_FENCED (KIP-588)."""
BATCHED_TRANSACTION_VERSION: Final = 2
"""The transaction version of the clients that send the batched request."""


class AddPartitionsToTxn(RequestHandler):
    """See the module."""

    api_key = ApiKey.ADD_PARTITIONS_TO_TXN
    versions = (0, 5)
    needs = Needs.COORDINATOR

    def __init__(
        self,
        transactions: TransactionCoordinators,
        cluster: MetadataCache,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._transactions = transactions
        self._cluster = cluster

    def lapsed_leaderships(self, request: AddPartitionsToTxnRequest) -> Collection[Leadership]:
        names = [each.transactional_id for each in request.transactions]
        return self._transactions.lapsed_shards(names or [request.v3_and_below_transactional_id])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: AddPartitionsToTxnRequest
    ) -> HandlerResponse:
        """Handles one transaction after the other."""
        if header.api_version >= BATCHED_MIN_VERSION:
            if not self._access.allows_on_cluster(client, AclOperation.CLUSTER_ACTION):
                return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return self._add_many(request)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        name = transaction.transactional_id
        if not self._access.allows(client, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, name):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            codes = dict.fromkeys(_partitions(transaction), error)
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=_by_topic(transaction.topics, codes)
            )
        denied = {
            topic.name
            for topic in transaction.topics
            if topic.name in INTERNAL_TOPICS
            or not self._access.allows(client, AclOperation.WRITE, AclResourceType.TOPIC, topic.name)
        }
        return self._add_one(transaction, header.api_version, denied)

    async def _add_one(
        self, transaction: AddPartitionsToTxnTransaction, api_version: int, denied: Collection[str]
    ) -> AddPartitionsToTxnResponse:
        partitions = _partitions(transaction)
        rejected = dict.fromkeys(
            [each for each in partitions if each[0] in denied], ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        codes = await self._error_codes(transaction, partitions, 0, rejected)
        results = _by_topic(transaction.topics, codes)
        if api_version < FENCED_MIN_VERSION:
            for topic in results:
                for each in topic.results_by_partition:
                    if each.partition_error_code == ErrorCode.PRODUCER_FENCED:
                        each.partition_error_code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    async def _add_many(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        results = []
        for each in request.transactions:
            codes = await self._error_codes(each, _partitions(each), BATCHED_TRANSACTION_VERSION, {})
            results.append(
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id, topic_results=_by_topic(each.topics, codes)
                )
            )
        return AddPartitionsToTxnResponse(results_by_transaction=results)

    async def _error_codes(
        self,
        transaction: AddPartitionsToTxnTransaction,
        partitions: Sequence[TopicPartition],
        version: int,
        rejected: Mapping[TopicPartition, ErrorCode],
    ) -> Mapping[TopicPartition, ErrorCode]:
        errors = {
            each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for each in partitions
            if self._cluster.partition(*each) is None
        }
        errors.update(rejected)
        if errors:
            return {each: errors.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}
        name, identity = transaction.transactional_id, (transaction.producer_id, transaction.producer_epoch)
        try:
            if transaction.verify_only:
                return await self._transactions.verify(
                    VerificationRequest(name, *identity, add=False), partitions
                )
            await self._transactions.add_partitions(name, *identity, partitions, version)
        except RequestError as rejection:
            return dict.fromkeys(partitions, rejection.error)
        return dict.fromkeys(partitions, ErrorCode.NONE)


def _partitions(transaction: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    return [(topic.name, index) for topic in transaction.topics for index in topic.partitions]


def _by_topic(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[topic.name, index]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
