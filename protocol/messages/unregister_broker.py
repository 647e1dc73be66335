"""UnregisterBroker (64): a broker that does not come back is removed from the metadata (KIP-631)."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, int16, int32, message, string


@message(api_key=64, versions="0", flexible="0+", kind="request")
class UnregisterBrokerRequest(Struct):
    """The broker."""

    broker_id: int = int32()


@message(api_key=64, versions="0", flexible="0+", kind="response")
class UnregisterBrokerResponse(Struct):
    """The result of removing the broker."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
