"""Transactions over a log with locks: computed from an application's state, taken or rejected by the log.

    async with TransactionClient("localhost:9092", "accounts", Accounts()) as client:
        await client.execute(Transfer("ann", "bob", 5))

`BlockingTransactionClient` is the same for threads. The model is Waltz's (seeds 003 and 004): the log is what
is true; the application's state is made of what its subscription brings, in the order of the log.
"""

from lockstep.protocol.client_errors import ClientError
from lockstep.transactions.blocking_client import BlockingTransactionClient
from lockstep.transactions.client import TransactionClient
from lockstep.transactions.draft import Draft
from lockstep.transactions.model import (
    Appended,
    Application,
    Committed,
    Expired,
    HighWaterMarkAhead,
    NotAppended,
    NotApplied,
    Refusal,
    RefusedForGood,
    RequestId,
    SubscriptionClosed,
    SubscriptionStalled,
    TransactionError,
    lock,
)
from lockstep.transactions.transaction import Transaction

__all__ = [
    "Appended",
    "Application",
    "BlockingTransactionClient",
    "ClientError",
    "Committed",
    "Draft",
    "Expired",
    "HighWaterMarkAhead",
    "NotAppended",
    "NotApplied",
    "Refusal",
    "RefusedForGood",
    "RequestId",
    "SubscriptionClosed",
    "SubscriptionStalled",
    "Transaction",
    "TransactionClient",
    "TransactionError",
    "lock",
]
