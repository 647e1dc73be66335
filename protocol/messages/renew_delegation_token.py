"""RenewDelegationToken (39): a token is valid for longer (KIP-48).

Versions: 1 throttling is the client's duty (KIP-219); 2 flexible.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, byte_string, int16, int32, int64, message
from lockstep.protocol.primitives import Buffer


@message(api_key=39, versions="1-2", flexible="2+", kind="request")
class RenewDelegationTokenRequest(Struct):
    """The token and the requested period."""

    hmac: Buffer = byte_string()
    renew_period_ms: int = int64()


@message(api_key=39, versions="1-2", flexible="2+", kind="response")
class RenewDelegationTokenResponse(Struct):
    """The token's new expiry time."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
