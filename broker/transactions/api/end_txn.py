"""EndTxn: a producer commits or aborts its transaction (KIP-98).

From version 5 on every end raises the producer's epoch, and the response names it (KIP-890).
Source: Kafka's KafkaApis.handleEndTxnRequest.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_MIN_VERSION: Final = 2
"""Older versions do not know PRODUCER_FENCED (KIP-588)."""
RAISING_MIN_VERSION: Final = 5


class EndTxn(RequestHandler):
    """See the module."""

    api_key = ApiKey.END_TXN
    versions = (0, 5)
    needs = Needs.COORDINATOR

    def __init__(self, transactions: TransactionCoordinators, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._transactions = transactions

    def lapsed_leaderships(self, request: EndTxnRequest) -> Collection[Leadership]:
        return self._transactions.lapsed_shards([request.transactional_id])

    def handle(self, client: ClientContext, header: RequestHeader, request: EndTxnRequest) -> HandlerResponse:
        """Serve one EndTxn; the response waits until the decision is committed."""
        if not self._access.allows(
            client, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id
        ):
            return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return self._end(header.api_version, request)

    async def _end(self, api_version: int, request: EndTxnRequest) -> EndTxnResponse:
        try:
            producer_id, epoch = await self._transactions.end(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.committed,
                2 if api_version >= RAISING_MIN_VERSION else 0,
            )
        except RequestError as rejection:
            error = rejection.error
            if error is ErrorCode.PRODUCER_FENCED and api_version < FENCED_MIN_VERSION:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            return EndTxnResponse(error_code=error)
        return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
