"""ListTransactions: the transactional ids that are coordinated here (KIP-664, KIP-994, KIP-1152).

A pattern has to fit the whole id (`broker/transactions/id_pattern.py`); it is tried in a thread, others are
served meanwhile. Source: Kafka's TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.transactions.id_pattern import IdPattern, InvalidPattern
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.broker.transactions.transaction_records import TransactionMetadata
from lockstep.broker.transactions.transaction_records import TransactionState as State
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

STATES: Final = {state.label: state for state in State}
Listed = list[tuple[str, TransactionMetadata]]


class ListTransactions(RequestHandler):
    """See the module."""

    api_key = ApiKey.LIST_TRANSACTIONS
    versions = (0, 2)
    needs = Needs.COORDINATOR

    def __init__(
        self,
        transactions: TransactionCoordinators,
        clock_ms: Callable[[], int],
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._transactions = transactions
        self._clock_ms = clock_ms

    def lapsed_leaderships(self, request: ListTransactionsRequest) -> Collection[Leadership]:
        return self._transactions.lapsed_shards()

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ListTransactionsRequest
    ) -> HandlerResponse:
        """The transactions that match every filter, and the unknown state names."""
        pattern = None
        try:
            if request.transactional_id_pattern:
                pattern = IdPattern(request.transactional_id_pattern)
            everything = [
                each for each in self._transactions.list_all() if self._may_describe(client, each[0])
            ]
        except InvalidPattern:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        except RequestError as rejection:
            return ListTransactionsResponse(error_code=rejection.error)
        found = _apply_filters(everything, request, self._clock_ms())
        if pattern is not None:
            return _matching_transactions(request, found, pattern)
        return _response(request, found)

    def _may_describe(self, client: ClientContext, name: str) -> bool:
        return self._access.allows(
            client, AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, name, is_requested=False
        )


def _apply_filters(everything: Listed, request: ListTransactionsRequest, now_ms: int) -> Listed:
    states = {STATES[name] for name in request.state_filters if name in STATES}
    ids = frozenset(request.producer_id_filters)
    duration_ms = request.duration_filter

    def passes(each: TransactionMetadata) -> bool:
        if (ids and each.producer_id not in ids) or (request.state_filters and each.state not in states):
            return False
        return duration_ms < 0 or now_ms - each.start_ms > duration_ms

    return [(name, each) for name, each in everything if passes(each)]


async def _matching_transactions(
    request: ListTransactionsRequest, found: Listed, pattern: IdPattern
) -> ListTransactionsResponse:
    try:
        matching = await asyncio.to_thread(lambda: [each for each in found if pattern.matches(each[0])])
    except InvalidPattern:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    return _response(request, matching)


def _response(
    request: ListTransactionsRequest, found: Sequence[tuple[str, TransactionMetadata]]
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in dict.fromkeys(request.state_filters) if name not in STATES],
        transaction_states=[
            TransactionState(
                transactional_id=name, producer_id=each.producer_id, transaction_state=each.state.label
            )
            for name, each in found
        ],
    )
