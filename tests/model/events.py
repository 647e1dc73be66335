"""What is seen of a member after each of its steps: the observed half of a state of SharedLogRaft.

An `Event` is one line of a trace. `kept` of the log seen before stay, `added` follow; an entry is its term
and, for a configuration, its voter sets. `verified` says nothing of a leader or candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

Voters = tuple[tuple[int, ...], ...]
Entry = tuple[int, Voters | None]
HardPair = tuple[int, int]
"""(term, voted for); -1 is nobody."""

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Event:
    """`kind`: "start" (first or again, after a crash), "step", or "install" of a shipped checkpoint."""

    member: int
    kind: str
    term: int
    voted_for: int
    role: str
    kept: int
    added: tuple[Entry, ...]
    commit: int
    persisted: int
    verified: int
    hard: HardPair
    """What is known to be on the disk."""


@dataclass(slots=True)
class Trace:
    """The events of one run, in the order in which they happened, and the group's first voters."""

    voters: tuple[int, ...]
    events: list[Event]
