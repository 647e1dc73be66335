"""What is seen of players and of one target after each of their steps: what is observed of LogPlayer's state.

Positions are those of the log, -1 is before the first; `model/TracePlayer.tla` counts from 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.player.core.settings import PlayerSettings

Terms = tuple[int, int]
"""(player_term, target_term) of a stream."""

Queued = tuple[int, int, int]
"""(how many parts, the first one's position, the last one's)."""

EMPTY: Queued = (0, -1, -1)


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch that was handed out in this step."""

    previous: int
    last: int
    parts: int
    real: int
    """So many of them are no dummies."""


@dataclass(frozen=True, slots=True)
class PlayerEvent:
    """One call of a player's core, and what it knows of the target then.

    `call` is the method's name without `on_`; "born" for the constructor, "other" for a call about another
    target.
    A target that there is not is "stopped". `term` and `first` are arguments of the call: the stream's, and
    where the log begins (of `connected` and `feed_lost`).
    """

    player: int
    call: str
    term: int
    first: int
    link: str
    newest_term: int
    state: str
    ack: int
    normal: Queued
    catchup: Queued
    popped: Queued
    sent: int
    writing: bool
    reads: bool
    """A Fetch is not answered, or failed and comes again."""
    fetched: int
    end: int
    dropped: bool
    started: bool
    current: int
    batch: Sent | None


@dataclass(frozen=True, slots=True)
class TargetEvent:
    """One step of a process of the target, or of its store.

    `call`: "process" begins; "hello" is taken or "refuses" is said; "persisted" or "unpersisted"; "settled",
    or "unanswered" where the stream is over by then; "receive" or "drop" of a batch; "store" or "failed", of
    a transaction. `parts` are the positions of what was received, or applied. Before there is a mark
    positions are -1.
    """

    process: int
    call: str
    terms: Terms
    """The stream's; of a process those it begins with."""
    by: int
    """The player_term that "refuses" names."""
    position: int
    received: int
    work: int
    """Batches received and not stored."""
    stored: int
    stored_terms: Terms
    applied: int
    """So many parts were ever applied."""
    parts: tuple[int, ...]


Event = PlayerEvent | TargetEvent


@dataclass(frozen=True, slots=True)
class PlayerTrace:
    """One target's run. `sizes`: of the parts that were committed for it, by position. `before_first` is
    where it stood before it was greeted at all."""

    target: str
    settings: PlayerSettings
    before_first: int
    sizes: dict[int, int]
    events: list[Event]
