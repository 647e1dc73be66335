"""One target, as the player knows it: its stream and its term, what it has acknowledged, its recovery.

A term belongs to one stream, from its Hello on, and is never used again: whatever carries an older one is
of a stream that the player has given up. Between the Hello and the answer the queue is in S and takes
nothing, so the term counts from the step on in which the answer opens the queue.
"""

from __future__ import annotations

from enum import Enum

from player.core.health import Health
from player.core.messages import NOTHING, Part
from player.core.target_queue import TargetQueue
from player.core.transitions import State


class Link(Enum):
    """Where the stream to a target stands."""

    AWAY = "not connected"
    GREETING = "greeted"
    """The Hello is sent."""
    ANSWERED = "answered"
    """It has answered, and the main stream has not begun."""
    OPEN = "open"
    STOPPED = "stopped"
    """Until somebody resumes it."""


class Target:
    """See the module. `recovery.py`, `dispatching.py` and `connecting.py` change it."""

    __slots__ = (
        "dropped",
        "end_position",
        "fetched_position",
        "fetching",
        "first_position",
        "health",
        "last_ack",
        "link",
        "name",
        "overflows",
        "queue",
        "quiet_position",
        "quiet_since_ms",
        "stopped_because",
        "term",
        "writing",
    )

    def __init__(self, name: str, first_position: int, now_ms: int) -> None:
        self.name = name
        self.first_position = first_position
        """Where it begins if it has no mark."""
        self.link = Link.AWAY
        self.term = 0
        """Of its stream; 0 before the first."""
        self.last_ack = NOTHING
        """It has stored everything up to there."""
        self.queue = TargetQueue()
        self.health = Health(now_ms)
        self.writing = False
        """A batch was handed out whose write has not completed."""
        self.fetched_position = NOTHING
        """What it has missed has been read up to there."""
        self.end_position = NOTHING
        """What it has missed ends there; what follows comes through the normal queue, unless `dropped`."""
        self.fetching = False
        """A Fetch was handed out and is not answered."""
        self.dropped = False
        """The normal queue takes nothing: all of it will be read as part of this recovery."""
        self.overflows = 0
        """How often too much was waiting since it last had acknowledged everything."""
        self.quiet_position = NOTHING
        """Where its queue was at the look at `quiet_since_ms`, and at each look since."""
        self.quiet_since_ms = now_ms
        self.stopped_because = ""

    @property
    def has_stream(self) -> bool:
        """Whether its term is that of a stream which has not been given up."""
        return self.link in (Link.GREETING, Link.ANSWERED, Link.OPEN)

    @property
    def may_answer(self) -> bool:
        """Whether its first try is still to come, or to be answered."""
        return self.link in (Link.AWAY, Link.GREETING) and not self.health.failures

    @property
    def is_open(self) -> bool:
        return self.queue.state is not State.SUSPENDED

    @property
    def takes_main_stream(self) -> bool:
        """Whether its normal queue takes what the main stream brings."""
        return self.is_open and not self.dropped

    def push(self, part: Part) -> None:
        """Of the main stream."""
        if self.takes_main_stream and part.position > self.last_ack:
            self.queue.normal.append(part)
