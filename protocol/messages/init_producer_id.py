"""InitProducerId (22): a producer id and epoch for an idempotent or transactional producer.

Versions: 0 (KIP-98); 1 throttling is the client's duty (KIP-219); 2 flexible; 3 the producer names the id
and epoch it had, and gets a higher epoch (KIP-360); 4 PRODUCER_FENCED (KIP-588); 5 TRANSACTION_ABORTABLE
(KIP-890); 6 two-phase commit (KIP-939), unstable in Kafka 4.4: do not advertise it.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, boolean, int16, int32, int64, message, string


@message(api_key=22, versions="0-6", flexible="2+", kind="request")
class InitProducerIdRequest(Struct):
    """Requests an id; without a transactional id for an idempotent producer only."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(default=-1, versions="3+")
    producer_epoch: int = int16(default=-1, versions="3+")
    enable2_pc: bool = boolean(versions="6+")
    keep_prepared_txn: bool = boolean(versions="6+")


@message(api_key=22, versions="0-6", flexible="2+", kind="response")
class InitProducerIdResponse(Struct):
    """The id and epoch to produce with."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(default=-1, versions="6+")
    ongoing_txn_producer_epoch: int = int16(default=-1, versions="6+")
