"""The player core's outputs: the actions since the last call of `Player.ready`."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.player.core.messages import Batch, Hello


@dataclass(slots=True, frozen=True)
class RangeRead:
    """Read the log from `first_position` to `last_position`, at least one entry and not much more than
    `max_bytes`; then `on_fetched`, or `on_fetch_failed`, or `on_range_lost`."""

    target: str
    target_term: int
    first_position: int
    last_position: int
    max_bytes: int


class PlayerReady:
    """The driver executes each action once, in the order of the attributes below.

    Attributes:
        closes: (target, its term, why): close this stream, and write nothing more to it. `why` is empty
            where the close was requested, or `stopped` or `deposed` gives the reason.
        hellos: (target, Hello): open a stream and send this on it.
        batches: (target, its term, Batch): write it, then `on_written`.
        heartbeats: (target, its term): send it a heartbeat.
        fetches: reads of the log for recoveries.
        start_position: read the main stream from there on; not None only once.
        stopped: (target, why): nothing more is sent to it until `resume`.
        unrouted: the first unknown target of a part; not None only once.
        deposed: a target has seen a newer player's term: end this player; no other action follows.
    """

    __slots__ = (
        "batches",
        "closes",
        "deposed",
        "fetches",
        "heartbeats",
        "hellos",
        "start_position",
        "stopped",
        "unrouted",
    )

    def __init__(self) -> None:
        self.closes: list[tuple[str, int, str]] = []
        self.hellos: list[tuple[str, Hello]] = []
        self.batches: list[tuple[str, int, Batch]] = []
        self.heartbeats: list[tuple[str, int]] = []
        self.fetches: list[RangeRead] = []
        self.start_position: int | None = None
        self.stopped: list[tuple[str, str]] = []
        self.unrouted: str | None = None
        self.deposed = False

    def close(self, name: str, target_term: int, why: str = "") -> None:
        """Close a stream; this step's earlier actions for it are withdrawn."""
        self.closes.append((name, target_term, why))
        self.batches = [each for each in self.batches if each[:2] != (name, target_term)]
        self.heartbeats = [each for each in self.heartbeats if each != (name, target_term)]
        self.fetches = [
            each for each in self.fetches if (each.target, each.target_term) != (name, target_term)
        ]
