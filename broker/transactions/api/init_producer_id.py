"""InitProducerId: an identity for an idempotent or a transactional producer (KIP-98, KIP-360).

0 to 5 are served. From 3 on a client may name the id it has: without a transactional id a fresh one is always
right; with one its epoch is raised, or it is fenced because there is a newer producer.
Source: Kafka's KafkaApis.handleInitProducerIdRequest.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.transactions.transaction_coordinator import ProducerIdSource
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lockstep.protocol.staged_messages import staged_query
from lockstep.storage.types import StorageError

FENCED_MIN_VERSION: Final = 4
"""Older versions do not know PRODUCER_FENCED (KIP-588)."""
NONE: Final = -1


class InitProducerId(RequestHandler):
    """See the module."""

    api_key = ApiKey.INIT_PRODUCER_ID
    versions = (0, 5)
    needs = Needs.COORDINATOR

    def __init__(
        self,
        transactions: TransactionCoordinators,
        producer_ids: ProducerIdSource,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._transactions = transactions
        self._producer_ids = producer_ids

    def lapsed_leaderships(self, request: InitProducerIdRequest) -> Collection[Leadership]:
        name = request.transactional_id
        return () if name is None else self._transactions.lapsed_shards([name])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: InitProducerIdRequest
    ) -> HandlerResponse:
        """Serve one request; an id may have to wait for a block of them to be recorded."""
        denied = self._denial(client, request.transactional_id)
        if denied is not ErrorCode.NONE:
            return _error_response(denied)
        if (request.producer_id == NONE) != (request.producer_epoch == NONE):
            return _error_response(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is None:
            return self._new_producer_id()
        if staged_query(request.transactional_id) is not None:  # such ids have no coordinator
            return _error_response(ErrorCode.INVALID_REQUEST)
        return self._init_transactional(header.api_version, request, request.transactional_id)

    def _denial(self, client: ClientContext, transactional_id: str | None) -> ErrorCode:
        """The error of a client that may not have a producer id."""
        access, write = self._access, AclOperation.WRITE
        if transactional_id is not None:
            if access.allows(client, write, AclResourceType.TRANSACTIONAL_ID, transactional_id):
                return ErrorCode.NONE
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if access.allows_on_cluster(
            client, AclOperation.IDEMPOTENT_WRITE, is_requested=False
        ) or access.allows_on_any(client, write, AclResourceType.TOPIC):
            return ErrorCode.NONE
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    async def _new_producer_id(self) -> InitProducerIdResponse:
        try:
            producer_id = await self._producer_ids.take()
        except StorageError:  # as Kafka's ProducerIdManager: what else passes, older clients take for fatal
            return _error_response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    async def _init_transactional(
        self, api_version: int, request: InitProducerIdRequest, transactional_id: str
    ) -> InitProducerIdResponse:
        try:
            producer_id, epoch = await self._transactions.init_producer_id(
                transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
            )
        except RequestError as rejection:
            error = rejection.error
            if error is ErrorCode.PRODUCER_FENCED and api_version < FENCED_MIN_VERSION:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            return _error_response(error)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _error_response(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
