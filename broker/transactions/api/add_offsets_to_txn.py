"""AddOffsetsToTxn: a group's partition of `__consumer_offsets` takes part in a transaction (KIP-98).

Versions: up to 1 clients know no PRODUCER_FENCED (KIP-588). Transactions of version 2 do not need this
    request.
Source: Kafka's KafkaApis.handleAddOffsetsToTxnRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_MIN_VERSION: Final = 2
TRANSACTION_VERSION_0: Final = 0
"""The transaction version of the clients that send this request."""


class AddOffsetsToTxn(RequestHandler):
    """See the module. Args: partition_of_group: a group's partition of `__consumer_offsets`."""

    api_key = ApiKey.ADD_OFFSETS_TO_TXN
    versions = (0, 4)
    needs = Needs.COORDINATOR

    def __init__(
        self,
        transactions: TransactionCoordinators,
        partition_of_group: Callable[[str], int],
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._transactions = transactions
        self._partition_of_group = partition_of_group

    def lapsed_leaderships(self, request: AddOffsetsToTxnRequest) -> Collection[Leadership]:
        return self._transactions.lapsed_shards([request.transactional_id])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: AddOffsetsToTxnRequest
    ) -> HandlerResponse:
        """Serve one AddOffsetsToTxn; the response waits for the commit."""
        if not self._access.allows(
            client, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id
        ):
            return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not self._access.allows(client, AclOperation.READ, AclResourceType.GROUP, request.group_id):
            return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return self._add(header.api_version, request)

    async def _add(self, version: int, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        topic_partition = CONSUMER_OFFSETS, self._partition_of_group(request.group_id)
        try:
            await self._transactions.add_partitions(
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
