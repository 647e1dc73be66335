"""DescribeDelegationToken (41): the tokens of some owners or of all (KIP-48).

Versions: 1 throttling is the client's duty (KIP-219); 2 flexible; 3 names the requester, too (KIP-373).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, byte_string, int16, int32, int64, message, string, struct
from lockstep.protocol.primitives import Buffer


@struct()
class DescribeDelegationTokenOwner(Struct):
    """One owner."""

    principal_type: str = string()
    principal_name: str = string()


@message(api_key=41, versions="1-3", flexible="2+", kind="request")
class DescribeDelegationTokenRequest(Struct):
    """The owners; null means all."""

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")


@struct()
class DescribedDelegationTokenRenewer(Struct):
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


@struct()
class DescribedDelegationToken(Struct):
    """One token."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(versions="3+")
    token_requester_principal_name: str = string(versions="3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: Buffer = byte_string()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@message(api_key=41, versions="1-3", flexible="2+", kind="response")
class DescribeDelegationTokenResponse(Struct):
    """The tokens."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
