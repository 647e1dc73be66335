"""A target as whoever runs a player names it, and as a playing knows it.

Owns: what outlives the streams to a target: its address, its counts, what was said of the last stream.
Does not: know what is queued for it (`player.core.target`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from player.playing.counters import TargetCounters

WARN_AGAIN_S: Final = 60.0

if TYPE_CHECKING:
    from player.playing.target_stream import TargetStream


class PlayedTarget(NamedTuple):
    """Where a target is, and where it begins if it has no mark."""

    name: str
    address: str
    first_position: int = 0
    from_earliest: bool = False
    """It begins where the log begins when it is greeted, whatever `first_position` says: that may be deleted
    when it is reached for the first time."""


class KnownTarget:
    """A target, whatever becomes of its streams."""

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
        """The newest, until it is closed."""
        self.closed_because = ""
        """Why the last stream that is over ended, or was given up; empty where somebody wanted it so."""
        self.logged = ""
        """Why its streams break, as the log has it; empty again once one is connected. A target that is down
        for a day is one line, and not one for each try."""
        self.warned_of = ""
        """The last warning's reason; not repeated before `warned_until_s`, though streams come up between:
        a target whose `apply` raises takes each stream and ends it."""
        self.warned_until_s = 0.0

    def is_warning_due(self, reason: str, now_s: float) -> bool:
        """Whether the log is to say now why a stream is over; notes that it does."""
        if reason == self.warned_of and now_s < self.warned_until_s:
            return False
        self.warned_of, self.warned_until_s = reason, now_s + WARN_AGAIN_S
        return True
