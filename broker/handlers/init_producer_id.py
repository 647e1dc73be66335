"""InitProducerId: an identity for an idempotent producer.

0 to 5 are served. From 3 a client may name the id it has (KIP-360), which matters to transactions only:
without one a fresh id is always right. Transactional ids are refused until transactions are served.
"""

from __future__ import annotations

from typing import Final

from broker.context import Answer, ClientContext
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.types import StorageError, StorageFull

API_KEY: Final = ApiKey.INIT_PRODUCER_ID
VERSIONS: Final = (0, 5)


def handle(context: ClientContext, header: RequestHeader, request: InitProducerIdRequest) -> Answer:
    """Serve one request; an id may have to wait for a block of them to be recorded."""
    if request.transactional_id is not None:
        # What a broker says whose transaction coordinator is not there: clients wait or report it.
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if request.transactional_id == "":
            error = ErrorCode.INVALID_REQUEST
        else:
            context.services.unserved.asked(header.client_id, request.transactional_id)
        return _refused(error)
    return _grant(context)


async def _grant(context: ClientContext) -> InitProducerIdResponse:
    try:
        producer_id = await context.services.producer_ids.take()
    except StorageFull:
        return _refused(ErrorCode.KAFKA_STORAGE_ERROR)
    except StorageError:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
