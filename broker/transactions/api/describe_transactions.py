"""DescribeTransactions: the state of transactional ids that this node coordinates (KIP-664).

Source: Kafka's TransactionCoordinator.handleDescribeTransactions.
"""

from __future__ import annotations

from collections.abc import Collection

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.requests.duplicate_names import DuplicateNames
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


class DescribeTransactions(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_TRANSACTIONS
    versions = (0, 0)
    needs = Needs.COORDINATOR

    def __init__(self, transactions: TransactionCoordinators, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._transactions = transactions

    def lapsed_leaderships(self, request: DescribeTransactionsRequest) -> Collection[Leadership]:
        return self._transactions.lapsed_shards()

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeTransactionsRequest
    ) -> HandlerResponse:
        """One result per id; an empty one is no id."""
        names = DuplicateNames().without_excess(request.transactional_ids)
        return DescribeTransactionsResponse(
            transaction_states=[self._describe(client, each) for each in names]
        )

    def _describe(self, client: ClientContext, transactional_id: str) -> TransactionState:
        """The state, with those of its topics that the client may describe."""
        describe = AclOperation.DESCRIBE
        if not self._access.allows(client, describe, AclResourceType.TRANSACTIONAL_ID, transactional_id):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return TransactionState(transactional_id=transactional_id, error_code=error)
        try:
            metadata = self._transactions.describe(transactional_id)
        except RequestError as rejection:
            return TransactionState(transactional_id=transactional_id, error_code=rejection.error)
        topics: dict[str, list[int]] = {}
        for topic, index in metadata.partitions:
            if not self._access.allows(client, describe, AclResourceType.TOPIC, topic, is_requested=False):
                continue
            topics.setdefault(topic, []).append(index)
        return TransactionState(
            transactional_id=transactional_id,
            transaction_state=metadata.state.label,
            transaction_timeout_ms=metadata.timeout_ms,
            transaction_start_time_ms=metadata.start_ms,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
        )
