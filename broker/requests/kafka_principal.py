"""The principal of a connection: the user as whom its requests are served, as Kafka's type and name.

Owns: type and name, and their text `User:alice`. Does not: know how a client proved it (`broker/security/`),
or what it may do.
Source: Kafka's KafkaPrincipal and SecurityUtils.parseKafkaPrincipal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

USER_TYPE: Final = "User"
"""The type of every principal that Kafka itself makes."""


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """A type and a name; equal ones are the same user."""

    principal_type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)
    """True if the client has logged in by a delegation token; it may not have others made."""

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> KafkaPrincipal:
        """The principal of a text like `User:alice`; a name may have colons itself. Raises ValueError."""
        principal_type, colon, name = text.partition(":")
        if not principal_type or not colon:
            raise ValueError(
                f"expected a string in format principalType:principalName but got {text or 'nothing'}"
            )
        return cls(principal_type, name)


ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""The principal of every connection without authentication."""
