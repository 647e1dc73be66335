"""The player's state of one target: its stream and term, its last acknowledgement, its recovery.

A term belongs to one stream, from its Hello on, and is never used again: a message with an older term is of a
stream that the player has closed. Between the Hello and its response the queue is in S and takes nothing, so
the term counts from the step on in which the response opens the queue.
"""

from __future__ import annotations

from enum import Enum

from lockstep.player.core.health import Health
from lockstep.player.core.messages import NOTHING, Part
from lockstep.player.core.target_queue import TargetQueue
from lockstep.player.core.transitions import QueueState


class LinkState(Enum):
    """The state of the stream to a target."""

    DISCONNECTED = "not connected"
    HANDSHAKE = "greeted"
    """The Hello is sent."""
    ANSWERED = "answered"
    """It has responded, and the main stream has not started."""
    OPEN = "open"
    STOPPED = "stopped"
    """It gets nothing until `Player.resume`."""


class Target:
    """See the module. `recovery.py`, `delivery.py` and `connections.py` change it."""

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
        """The first position of a target without a stored one."""
        self.link = LinkState.DISCONNECTED
        self.term = 0
        """Its stream's term; 0 before the first stream."""
        self.last_ack = NOTHING
        """It has stored everything up to there."""
        self.queue = TargetQueue()
        self.health = Health(now_ms)
        self.writing = False
        """A batch was handed out whose write has not completed."""
        self.fetched_position = NOTHING
        """The missed range has been read up to there."""
        self.end_position = NOTHING
        """The missed range ends there; later entries come through the normal queue, unless `dropped`."""
        self.fetching = False
        """A Fetch was handed out and has no result yet."""
        self.dropped = False
        """The normal queue takes nothing: all of it will be read as part of this recovery."""
        self.overflows = 0
        """Overflows of its queue since it last had acknowledged everything."""
        self.quiet_position = NOTHING
        """Its queue's position at the check at `quiet_since_ms`, and at each check since."""
        self.quiet_since_ms = now_ms
        self.stopped_because = ""

    @property
    def has_stream(self) -> bool:
        """True while its term is that of a stream which is not closed."""
        return self.link in (LinkState.HANDSHAKE, LinkState.ANSWERED, LinkState.OPEN)

    @property
    def awaits_first_connection(self) -> bool:
        """True until its first connection attempt has succeeded or failed."""
        return self.link in (LinkState.DISCONNECTED, LinkState.HANDSHAKE) and not self.health.failures

    @property
    def is_open(self) -> bool:
        return self.queue.state is not QueueState.SUSPENDED

    @property
    def accepts_main_stream(self) -> bool:
        """True where its normal queue takes the entries of the main stream."""
        return self.is_open and not self.dropped

    def push(self, part: Part) -> None:
        """Queue a part of the main stream."""
        if self.accepts_main_stream and part.position > self.last_ack:
            self.queue.normal.append(part)
