"""DescribeTransactions: there are no transactions yet, so no id is known (KIP-664)."""

from __future__ import annotations

from broker.context import Answer, ClientContext
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

API_KEY = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS = (0, 0)


def handle(context: ClientContext, header: RequestHeader, request: DescribeTransactionsRequest) -> Answer:
    """One result per id; an empty one is no id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(
                transactional_id=each,
                error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if each else ErrorCode.INVALID_REQUEST,
            )
            for each in request.transactional_ids
        ]
    )
