"""One login by one SASL mechanism, as the session of a connection sees it.

Pure. Owns: the interface that mechanisms have, and the outcomes of a login.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class AuthenticationFailed(Exception):
    """A login failed.

    Args:
        reason: the reason for the broker's log, without any secret.
        client_text: the text for the client; None for the one that all failures of the mechanism have.
    """

    def __init__(self, reason: str, client_text: str | None = None) -> None:
        super().__init__(reason)
        self.client_text = client_text


@dataclass(frozen=True)
class Authenticated:
    """The end of a login."""

    token: bytes
    """The last message for the client."""
    name: str
    """The name of the principal."""
    expires_ms: int | None = None
    """The end of what the client has logged in with, in milliseconds since 1970; None for no end."""
    is_token: bool = False
    """True for a login by a delegation token, whose owner `name` is."""


class Exchange(Protocol):
    """One login: a response for each message of the client."""

    def respond(self, token: bytes) -> bytes | Authenticated:
        """The response to the client's next message. Raises AuthenticationFailed."""
