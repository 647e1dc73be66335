"""ListTransactions (66): the transactions a broker coordinates (KIP-664).

Versions: 1 only those that are open for some time (KIP-994); 2 only those whose id fits a pattern (KIP-1152).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, int64, message, string, struct


@message(api_key=66, versions="0-2", flexible="0+", kind="request")
class ListTransactionsRequest(Struct):
    """The filters of the transactions to list."""

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(default=-1, versions="1+")
    transactional_id_pattern: str | None = string(default=None, versions="2+", nullable="2+")


@struct()
class TransactionState(Struct):
    """One transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(api_key=66, versions="0-2", flexible="0+", kind="response")
class ListTransactionsResponse(Struct):
    """The transactions."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
