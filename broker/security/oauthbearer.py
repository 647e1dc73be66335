"""OAUTHBEARER (RFC 7628), the server's side, as Kafka has it.

Pure. Owns: the form of the client's messages, and the rejection of a token: a JSON text without an error, the
client's byte 0x01, then the failure. A client may send another token instead of that byte, as in Kafka; a
second rejected token ends the login, so that each connection tries two tokens at most.
Does not: look into a token (`token_validator.py`).
Source: Kafka's OAuthBearerSaslServer and OAuthBearerClientInitialResponse.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lockstep.broker.security.sasl_exchange import Authenticated, AuthenticationFailed

NAME: Final = "OAUTHBEARER"
CONFIRMATION: Final = b"\x01"
REJECTED_TOKEN: Final = '{"status":"invalid_token"}'
_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS: Final = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_FIRST: Final = re.compile(rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_BEARER: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)


class InvalidToken(Exception):
    """A token is not accepted; the text is for the broker's log and has no part of the signature."""


@dataclass(frozen=True)
class ValidToken:
    """The user of an accepted token, and its end in milliseconds since 1970."""

    name: str
    expires_ms: int


class OAuthBearerExchange:
    """One login. Args: validate: raises InvalidToken."""

    def __init__(self, validate: Callable[[str], ValidToken]) -> None:
        self._validate = validate
        self._rejection = ""
        """The reason of the token that was rejected; empty for none."""

    def respond(self, token: bytes) -> bytes | Authenticated:
        """The response to the client's next message. Raises AuthenticationFailed."""
        if self._rejection and token == CONFIRMATION:
            raise AuthenticationFailed(self._rejection, REJECTED_TOKEN)
        authzid, bearer = _parse(token)
        try:
            valid = self._validate(bearer)
        except InvalidToken as error:
            if self._rejection:
                raise AuthenticationFailed(f"a second token: {error}", REJECTED_TOKEN) from None
            self._rejection = str(error)
            return REJECTED_TOKEN.encode()
        if authzid not in ("", valid.name):
            raise AuthenticationFailed(
                f"user {valid.name} requests another identity",
                f"Authentication failed: Client requested an authorization id ({authzid}) that is different "
                f"from the token's principal name ({valid.name})",
            )
        return Authenticated(b"", valid.name, valid.expires_ms)


def _parse(message: bytes) -> tuple[str, str]:
    """The requested identity, empty for none, and the token. Raises AuthenticationFailed."""
    try:
        parsed = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        parsed = None
    if parsed is None:
        raise AuthenticationFailed("the first message is not of the form n,,^Aauth=Bearer TOKEN^A^A")
    pairs = [each.partition("=") for each in parsed["pairs"].split("\x01") if each]
    bearer = _BEARER.fullmatch({name: text for name, _, text in pairs}.get("auth", ""))
    if bearer is None or bearer["scheme"].lower() != "bearer":
        raise AuthenticationFailed("the first message has no auth=Bearer TOKEN")
    return (parsed["authzid"] or "").replace("=2C", ",").replace("=3D", "="), bearer["token"]
