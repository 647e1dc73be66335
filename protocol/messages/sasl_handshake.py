"""SaslHandshake (17): a client names its SASL mechanism (KIP-43).

Versions: 1 what follows is SaslAuthenticate, not bytes without a frame (KIP-152).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, message, string


@message(api_key=17, versions="0-1", flexible="none", kind="request")
class SaslHandshakeRequest(Struct):
    """The mechanism by which the client would authenticate."""

    mechanism: str = string()


@message(api_key=17, versions="0-1", flexible="none", kind="response")
class SaslHandshakeResponse(Struct):
    """The result, with the mechanisms that the broker enables."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)
