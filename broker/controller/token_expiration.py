"""Removes expired delegation tokens, on the controller.

Owns: when it happens. Does not: know when a token has expired (`broker/security/delegation_tokens.py`).
Source: Kafka's QuorumController, expireDelegationTokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lockstep.broker.coordination.expiration_loop import ExpirationRule
from lockstep.broker.security.delegation_tokens import DelegationTokens

log = logging.getLogger("lockstep.security")


class TokenExpiration:
    """See the module. Args: is_controller: true while this node is the controller."""

    def __init__(
        self, tokens: DelegationTokens, is_controller: Callable[[], bool], interval_ms: float
    ) -> None:
        self._tokens, self._is_controller, self._interval_ms = tokens, is_controller, interval_ms

    def rules(self) -> list[ExpirationRule]:
        """The one rule."""
        return [
            ExpirationRule("the removal of expired delegation tokens", lambda: self._interval_ms, self.remove)
        ]

    async def remove(self) -> int:
        """Remove expired tokens; how many."""
        if not self._is_controller():
            return 0
        removed = await self._tokens.remove_expired()
        if removed:
            log.info("removed %d expired delegation tokens", removed)
        return removed
