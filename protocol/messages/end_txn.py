"""EndTxn (26): commit or abort a transaction.

Versions: 1 throttling is the client's duty (KIP-219); 2 PRODUCER_FENCED (KIP-588); 3 flexible; 4
TRANSACTION_ABORTABLE (KIP-890); 5 every transaction has an epoch of its own: the response names the id and
epoch of the next (KIP-890).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, boolean, int16, int32, int64, message, string


@message(api_key=26, versions="0-5", flexible="3+", kind="request")
class EndTxnRequest(Struct):
    """The transaction, and how it ends."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(api_key=26, versions="0-5", flexible="3+", kind="response")
class EndTxnResponse(Struct):
    """The result, with the producer id and epoch of the next transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1, versions="5+", ignorable=True)
    producer_epoch: int = int16(default=-1, versions="5+", ignorable=True)
