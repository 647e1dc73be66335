"""AddPartitionsToTxn: partitions take part in a producer's transaction (KIP-98, KIP-890).

Up to version 3 a client asks for one transaction; from 4 on brokers ask for several, or only whether the
partitions take part. One partition that is not there keeps the others out, as in Kafka, or one of a topic
that clients may not write to.
Source: Kafka's KafkaApis.handleAddPartitionsToTxnRequest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker.context import ClientContext, HandlerResponse, Services
from broker.metadata import INTERNAL_TOPICS
from broker.request_errors import RequestError
from broker.transactions.records import Place
from broker.transactions.verification import Question
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
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

BATCHED_SINCE: Final = 4
FENCED_SINCE: Final = 2
"""Older versions do not know PRODUCER_FENCED (KIP-588)."""
BROKERS_VERSION: Final = 2
"""The transaction version that whoever uses the batched requests speaks."""


def handle(
    context: ClientContext, header: RequestHeader, request: AddPartitionsToTxnRequest
) -> HandlerResponse:
    """Answer each transaction in turn."""
    if header.api_version >= BATCHED_SINCE:
        return _many(context.services, request)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return _one(context.services, transaction, header.api_version)


async def _one(
    services: Services, transaction: AddPartitionsToTxnTransaction, api_version: int
) -> AddPartitionsToTxnResponse:
    places = _places(transaction)
    refused = dict.fromkeys(
        [place for place in places if place[0] in INTERNAL_TOPICS], ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    codes = await _codes(services, transaction, places, 0, refused)
    results = _by_topic(transaction.topics, codes)
    if api_version < FENCED_SINCE:
        for topic in results:
            for each in topic.results_by_partition:
                if each.partition_error_code == ErrorCode.PRODUCER_FENCED:
                    each.partition_error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _many(services: Services, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=_by_topic(
                    each.topics, await _codes(services, each, _places(each), BROKERS_VERSION, {})
                ),
            )
            for each in request.transactions
        ]
    )


def _places(transaction: AddPartitionsToTxnTransaction) -> list[Place]:
    return [(topic.name, index) for topic in transaction.topics for index in topic.partitions]


async def _codes(
    services: Services,
    transaction: AddPartitionsToTxnTransaction,
    places: Sequence[Place],
    version: int,
    refused_places: Mapping[Place, ErrorCode],
) -> Mapping[Place, ErrorCode]:
    cluster, not_there = services.cluster, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wrong = {place: not_there for place in places if cluster.partition(*place) is None}
    wrong.update(refused_places)
    if wrong:
        return {place: wrong.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places}
    name, identity = transaction.transactional_id, (transaction.producer_id, transaction.producer_epoch)
    try:
        if transaction.verify_only:
            return await services.transactions.verify(Question(name, *identity, add=False), places)
        await services.transactions.add_partitions(name, *identity, places, version)
    except RequestError as refused:
        return dict.fromkeys(places, refused.error)
    return dict.fromkeys(places, ErrorCode.NONE)


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
