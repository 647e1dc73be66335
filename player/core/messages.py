"""The messages of a stream between the player and one target, and the entries of the log.

A position is an entry's place in the log: an offset, or an LSN; 0 or more, ascending, not always dense.
An entry is the unit of delivery. A source splits the log into entries always in the same way, since a
target's position is that of an entry. Payloads are never parsed.
"""

from __future__ import annotations

from collections.abc import Sequence

NOTHING = -1
"""In place of a position: before the first one."""


class Entry:
    """One committed entry of the log; a whole record batch is one where all of it has the same targets."""

    __slots__ = ("partition", "payload", "position")

    def __init__(self, position: int, payload: object, partition: int | None = None) -> None:
        self.position = position
        self.payload = payload
        self.partition = partition
        """Its partition where the log has several; None where the log is one partition."""


class Part:
    """One target's share of one entry. A dummy has no payload: it only moves the target's position."""

    __slots__ = ("partition", "payload", "position", "size_bytes")

    def __init__(self, position: int, payload: object, size_bytes: int, partition: int | None = None) -> None:
        self.position = position
        self.payload = payload
        self.size_bytes = size_bytes
        self.partition = partition
        """As its entry's; None in a dummy."""

    @property
    def is_dummy(self) -> bool:
        return self.payload is None


def dummy(position: int) -> Part:
    """A dummy part at a position."""
    return Part(position, None, 0)


class Batch:
    """Parts that are sent, and acknowledged, together.

    `previous_position` is that of the part sent to this target before the first one here, over all its
    streams: the position of the handshake, or the last part of the batch before.
    """

    __slots__ = ("parts", "previous_position", "size_bytes")

    def __init__(self, previous_position: int, parts: Sequence[Part], size_bytes: int) -> None:
        self.previous_position = previous_position
        self.parts = parts
        self.size_bytes = size_bytes

    @property
    def last_position(self) -> int:
        return self.parts[-1].position


class Hello:
    """The first message of a stream: log, terms, and where a target without a position begins.

    The target persists both terms, ends the work of older streams, and then responds with its position.
    """

    __slots__ = ("first_position", "log_id", "player_term", "target_term")

    def __init__(self, log_id: str, player_term: int, target_term: int, first_position: int) -> None:
        self.log_id = log_id
        self.player_term = player_term
        self.target_term = target_term
        self.first_position = first_position
