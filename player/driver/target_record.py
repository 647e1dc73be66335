"""A target's endpoint, as an application configures it, and a driver's record of the target.

Owns: the state that outlives a target's streams: its address, its counters, the end of its last stream.
Does not: know its queue (`lockstep.player.core.target`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lockstep.player.driver.counters import TargetCounters
from lockstep.player.driver.target_stream import TargetStream

WARN_AGAIN_S: Final = 60.0


class TargetEndpoint(NamedTuple):
    """A target's name and address, and its first position if it has none stored."""

    name: str
    address: str
    first_position: int = 0
    from_earliest: bool = False
    """It begins at the log's beginning at the time of its first handshake, and not at `first_position`, which
    may be deleted later."""


class TargetRecord:
    """A target's state over all its streams."""

    __slots__ = (
        "address",
        "closed_because",
        "counters",
        "from_earliest",
        "logged",
        "stream",
        "warned_of",
        "warned_until_s",
    )

    def __init__(self, address: str, from_earliest: bool) -> None:
        self.address = address
        self.from_earliest = from_earliest
        self.counters = TargetCounters()
        self.stream: TargetStream | None = None
        """The newest stream, until it is closed."""
        self.closed_because = ""
        """The reason why its last stream ended or was aborted; empty where the close was requested."""
        self.logged = ""
        """The logged reason why its streams break; empty again once one is connected. A target that is down
        for a day is one line, and not one for each attempt."""
        self.warned_of = ""
        """The last warning's reason; not repeated before `warned_until_s`, though streams connect in between:
        a target whose `apply` raises accepts each stream and ends it."""
        self.warned_until_s = 0.0

    def is_warning_due(self, reason: str, now_s: float) -> bool:
        """True if a stream's end is to be logged now; records the warning then."""
        if reason == self.warned_of and now_s < self.warned_until_s:
            return False
        self.warned_of, self.warned_until_s = reason, now_s + WARN_AGAIN_S
        return True
