"""Connections over which clients may request delegation tokens.

Owns: the rule that is checked before any other: no token over a connection that is not authenticated, which
the node knows that the client is connected to, and none by means of another token, which each node knows.
Source: Kafka's KafkaApis.allowTokenRequests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lockstep.broker.requests.kafka_principal import ANONYMOUS
from lockstep.broker.requests.request_context import ClientContext
from lockstep.broker.settings.config import PLAINTEXT, SSL

NO_TIME: Final = -1
"""A time in the response to a request that is not allowed."""


class TokenRequestPolicy:
    """See the module. Args: protocol_of: the security protocol of a listener, by its name."""

    def __init__(self, protocol_of: Callable[[str], str]) -> None:
        self._protocol_of = protocol_of

    def is_allowed(self, client: ClientContext) -> bool:
        """True if the client may request one. The node that forwarded a request has checked its
        connection."""
        if client.principal.token_authenticated:
            return False
        if client.is_forwarded:
            return True
        protocol = self._protocol_of(client.listener)
        is_one_way = protocol == SSL and client.principal == ANONYMOUS
        return not (protocol == PLAINTEXT or is_one_way)
