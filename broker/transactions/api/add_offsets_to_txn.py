"""AddOffsetsToTxn: a group's partition of `__consumer_offsets` takes part in a transaction (KIP-98).

Versions: up to 1 clients know no PRODUCER_FENCED (KIP-588). Transactions of version 2 do not need this
    request.
Source: Kafka's KafkaApis.handleAddOffsetsToTxnRequest.
"""

from __future__ import annotations

from typing import Final

from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

API_KEY = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS = (0, 4)

FENCED_MIN_VERSION: Final = 2
TRANSACTION_VERSION_0: Final = 0
"""The transaction version of the clients that send this request."""


def handle(context: ClientContext, header: RequestHeader, request: AddOffsetsToTxnRequest) -> HandlerResponse:
    """Serve one AddOffsetsToTxn; the answer waits for the commit."""
    return _add(context, header.api_version, request)


async def _add(
    context: ClientContext, version: int, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    services = context.services
    topic_partition = CONSUMER_OFFSETS, services.consumer_groups.partition_of(request.group_id)
    try:
        await services.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [topic_partition],
            TRANSACTION_VERSION_0,
        )
    except RequestError as rejection:
        error = rejection.error
        if error is ErrorCode.PRODUCER_FENCED and version < FENCED_MIN_VERSION:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=error)
    return AddOffsetsToTxnResponse()
