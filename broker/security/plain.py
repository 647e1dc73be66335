"""PLAIN (RFC 4616): user and password in one message. Pure; the passwords are the listener's settings.

Source: Kafka's PlainSaslServer and PlainServerCallbackHandler for the checks, their order and texts.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from lockstep.broker.security.sasl_exchange import Authenticated, AuthenticationFailed

NAME: Final = "PLAIN"
_PARTS: Final = 3
_FAILED: Final = "Authentication failed"


class PlainExchange:
    """One login. Args: passwords: by user."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def respond(self, token: bytes) -> bytes | Authenticated:
        """The end of the login. Raises AuthenticationFailed."""
        parts = token.decode("utf-8", "replace").split("\0")
        if len(parts) != _PARTS:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise AuthenticationFailed("a message of another form", text)
        authzid, name, password = parts
        if not name:
            raise AuthenticationFailed("no user is named", f"{_FAILED}: username not specified")
        if not password:
            raise AuthenticationFailed(f"user {name} has no password", f"{_FAILED}: password not specified")
        expected = self._passwords.get(name, "")
        is_correct = hmac.compare_digest(expected.encode(), password.encode())
        if not is_correct or name not in self._passwords:
            reason = "the password is wrong" if name in self._passwords else "there is no such user"
            raise AuthenticationFailed(f"user {name}: {reason}", f"{_FAILED}: Invalid username or password")
        if authzid not in ("", name):
            text = f"{_FAILED}: Client requested an authorization id that is different from username"
            raise AuthenticationFailed(f"user {name} requests another identity", text)
        return Authenticated(b"", name)
