"""AddPartitionsToTxn: partitions take part in a producer's transaction (KIP-98, KIP-890).

Up to version 3 a client asks for one transaction; from 4 on brokers ask for several, or only whether the
partitions take part. One unknown partition rejects the others, as in Kafka; so does one of an internal topic.
Source: Kafka's KafkaApis.handleAddPartitionsToTxnRequest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lockstep.broker.metadata.metadata_cache import INTERNAL_TOPICS
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Services
from lockstep.broker.transactions.transaction_records import Place
from lockstep.broker.transactions.verification_client import Question
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

API_KEY: Final = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS: Final = (0, 5)

BATCHED_MIN_VERSION: Final = 4
FENCED_MIN_VERSION: Final = 2
"""Older versions do not know PRODUCER_FENCED (KIP-588)."""
BATCHED_TRANSACTION_VERSION: Final = 2
"""The transaction version of the clients that send the batched request."""


def handle(
    context: ClientContext, header: RequestHeader, request: AddPartitionsToTxnRequest
) -> HandlerResponse:
    """Answer each transaction in turn."""
    if header.api_version >= BATCHED_MIN_VERSION:
        return _add_many(context.services, request)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return _add_one(context.services, transaction, header.api_version)


async def _add_one(
    services: Services, transaction: AddPartitionsToTxnTransaction, api_version: int
) -> AddPartitionsToTxnResponse:
    topic_partitions = _topic_partitions(transaction)
    rejection = dict.fromkeys(
        [topic_partition for topic_partition in topic_partitions if topic_partition[0] in INTERNAL_TOPICS],
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
    codes = await _error_codes(services, transaction, topic_partitions, 0, rejection)
    results = _by_topic(transaction.topics, codes)
    if api_version < FENCED_MIN_VERSION:
        for topic in results:
            for each in topic.results_by_partition:
                if each.partition_error_code == ErrorCode.PRODUCER_FENCED:
                    each.partition_error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _add_many(services: Services, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=_by_topic(
                    each.topics,
                    await _error_codes(
                        services, each, _topic_partitions(each), BATCHED_TRANSACTION_VERSION, {}
                    ),
                ),
            )
            for each in request.transactions
        ]
    )


def _topic_partitions(transaction: AddPartitionsToTxnTransaction) -> list[Place]:
    return [(topic.name, index) for topic in transaction.topics for index in topic.partitions]


async def _error_codes(
    services: Services,
    transaction: AddPartitionsToTxnTransaction,
    topic_partitions: Sequence[Place],
    version: int,
    rejected: Mapping[Place, ErrorCode],
) -> Mapping[Place, ErrorCode]:
    cluster, unknown = services.cluster, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    errors = {
        topic_partition: unknown
        for topic_partition in topic_partitions
        if cluster.partition(*topic_partition) is None
    }
    errors.update(rejected)
    if errors:
        return {
            topic_partition: errors.get(topic_partition, ErrorCode.OPERATION_NOT_ATTEMPTED)
            for topic_partition in topic_partitions
        }
    name, identity = transaction.transactional_id, (transaction.producer_id, transaction.producer_epoch)
    try:
        if transaction.verify_only:
            return await services.transactions.verify(Question(name, *identity, add=False), topic_partitions)
        await services.transactions.add_partitions(name, *identity, topic_partitions, version)
    except RequestError as rejection:
        return dict.fromkeys(topic_partitions, rejection.error)
    return dict.fromkeys(topic_partitions, ErrorCode.NONE)


def _by_topic(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Mapping[Place, ErrorCode]
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
