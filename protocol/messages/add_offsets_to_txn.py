"""AddOffsetsToTxn (25): a transaction is about to commit offsets of a consumer group.

Versions: 1 throttling is the client's duty (KIP-219); 2 PRODUCER_FENCED (KIP-588); 3 flexible; 4
TRANSACTION_ABORTABLE (KIP-890). In transactions of version 2 TxnOffsetCommit does this by itself.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, int16, int32, int64, message, string


@message(api_key=25, versions="0-4", flexible="3+", kind="request")
class AddOffsetsToTxnRequest(Struct):
    """The transaction and the group."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(api_key=25, versions="0-4", flexible="3+", kind="response")
class AddOffsetsToTxnResponse(Struct):
    """The result of adding the group's partition to the transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
