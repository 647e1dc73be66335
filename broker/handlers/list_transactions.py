"""ListTransactions: this broker coordinates none; filters are checked all the same (KIP-664, KIP-1152).

Source: Kafka's TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

import re
from typing import Final

from broker.context import Answer, ClientContext
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

API_KEY = ApiKey.LIST_TRANSACTIONS
VERSIONS = (0, 2)

STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def handle(context: ClientContext, header: RequestHeader, request: ListTransactionsRequest) -> Answer:
    """No transactions, and which states there are none of."""
    if request.transactional_id_pattern and not _is_pattern(request.transactional_id_pattern):
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [state for state in dict.fromkeys(request.state_filters) if state not in STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
