"""CreateDelegationToken (38): a token with which others may log in (KIP-48).

Versions: 1 throttling is the client's duty (KIP-219); 2 flexible; 3 an owner who is not the requester
(KIP-373).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, byte_string, int16, int32, int64, message, string, struct
from lockstep.protocol.primitives import Buffer


@struct()
class CreatableRenewers(Struct):
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


@message(api_key=38, versions="1-3", flexible="2+", kind="request")
class CreateDelegationTokenRequest(Struct):
    """The requested owner, renewers and lifetime."""

    owner_principal_type: str | None = string(versions="3+", nullable="3+")
    owner_principal_name: str | None = string(versions="3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


@message(api_key=38, versions="1-3", flexible="2+", kind="response")
class CreateDelegationTokenResponse(Struct):
    """The token."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(versions="3+")
    token_requester_principal_name: str = string(versions="3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: Buffer = byte_string()
    throttle_time_ms: int = int32()
