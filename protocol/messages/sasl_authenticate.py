"""SaslAuthenticate (36): one step of a SASL exchange, in a frame (KIP-152).

Versions: 1 how long the session lasts (KIP-368); 2 flexible.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, byte_string, int16, int64, message, string
from lockstep.protocol.primitives import Buffer


@message(api_key=36, versions="0-2", flexible="2+", kind="request")
class SaslAuthenticateRequest(Struct):
    """The client's token."""

    auth_bytes: Buffer = byte_string()


@message(api_key=36, versions="0-2", flexible="2+", kind="response")
class SaslAuthenticateResponse(Struct):
    """The broker's token, or why the exchange has failed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: Buffer = byte_string()
    session_lifetime_ms: int = int64(default=0, versions="1+", ignorable=True)
