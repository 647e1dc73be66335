"""Topics whose creation was refused a short while ago: none of them is auto-created with other rules.

Owns: which names those are. A tool that copies topics asks for one with its settings, is refused, and goes
on; its producer then asks for the topic's metadata, and a topic made from that has the brokers' defaults:
what was to be compacted, or kept for ever, would be deleted after a week. Invariants: only a request that
named configurations counts, as auto-creation changes nothing of what another one asked for; at most
MAX_REFUSED_CREATIONS names are held, of which the oldest is forgotten first. A creation that succeeds ends
the wait at once. Does not: outlive this process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.refused import Refused
from broker.topic_rules import FIXED_IDS, check_name
from protocol.errors import ErrorCode

log = logging.getLogger("lockstep.topics")

MAX_REFUSED_CREATIONS: Final = 1_000
"""Names held at a time, of at most 249 characters each."""
HELD_SECONDS: Final = 900.0
"""Longer than the ten minutes after which MirrorMaker 2 tries to create its topics again
(refresh.topics.interval.seconds), so that each refusal is renewed before it ends."""
SAY_NOTHING_OF_RULES: Final = frozenset(
    {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NOT_CONTROLLER}
)
"""Refusals after which nothing is held: auto-creation meets the same, or the client tries again."""


class RefusedCreations:
    """See the module. Args: now: seconds of a clock that does not go back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._refused: dict[str, tuple[float, str]] = {}
        """By name, the oldest first: when its creation was refused, and why."""

    def note(self, name: str, refused: Refused) -> None:
        """A client was refused a topic for which it named configurations."""
        if refused.error in SAY_NOTHING_OF_RULES or name in FIXED_IDS:
            return
        try:
            check_name(name)
        except Refused:
            return
        if self._reason(name) is None:
            log.warning(
                "topic %s: its creation was refused (%s): for %d minutes, or until it is created, it is not "
                "auto-created with other settings",
                name,
                refused.message,
                HELD_SECONDS / 60,
            )
        self._refused.pop(name, None)
        self._refused[name] = self._now(), refused.message
        if len(self._refused) > MAX_REFUSED_CREATIONS:
            del self._refused[next(iter(self._refused))]

    def forget(self, name: str) -> None:
        """The topic was created."""
        self._refused.pop(name, None)

    def check(self, name: str) -> None:
        """Raises Refused for a topic that may not be auto-created now, with the error that a broker without
        auto-creation answers: clients wait as long as their own timeouts say, and then name the topic."""
        reason = self._reason(name)
        if reason is not None:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic '{name}' is not auto-created: its creation with settings was refused ({reason})",
            )

    def _reason(self, name: str) -> str | None:
        refused_at, reason = self._refused.get(name, (0.0, None))
        if reason is not None and self._now() - refused_at >= HELD_SECONDS:
            del self._refused[name]
            return None
        return reason
