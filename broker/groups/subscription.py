"""The topics of a `consumer` group's member: the beginning of its metadata that all versions share.

Kafka's ConsumerProtocolSubscription: a version, an array of topic names, then what later versions added.
The broker only looks; groups of other protocol types are never looked at.
"""

from __future__ import annotations

from struct import Struct as Binary
from struct import error as StructError
from typing import Final

CONSUMER: Final = "consumer"
"""The protocol type of consumers; others (Connect's, for one) are opaque."""

_VERSION_AND_COUNT: Final = Binary(">hi")
_LENGTH: Final = Binary(">h")


def topics_of(subscription: bytes) -> set[str] | None:
    """Topic names, or None if this is not a subscription."""
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(subscription)
        if version < 0 or count < 0:
            return None
        topics: set[str] = set()
        at = _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(subscription, at)
            at += _LENGTH.size
            if length < 0 or at + length > len(subscription):
                return None
            topics.add(subscription[at : at + length].decode())
            at += length
    except (StructError, UnicodeDecodeError):
        return None
    return topics
