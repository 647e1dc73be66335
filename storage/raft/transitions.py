"""Legal role changes, as a table that the core asserts on every change.

Source: Raft paper, figure 4, with the PreVote role of Ongaro's thesis, section 9.6.
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """The role of a voter in its term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


TRANSITIONS: dict[tuple[Role, Role], str] = {
    (Role.FOLLOWER, Role.PRE_CANDIDATE): "the election timeout passed",
    (Role.FOLLOWER, Role.CANDIDATE): "a leader transferred its leadership by a TimeoutNow",
    (Role.PRE_CANDIDATE, Role.CANDIDATE): "a majority would vote for us",
    (Role.PRE_CANDIDATE, Role.FOLLOWER): "a leader or a higher term was seen, or a majority would not",
    (Role.PRE_CANDIDATE, Role.PRE_CANDIDATE): "too few responded in time",
    (Role.CANDIDATE, Role.PRE_CANDIDATE): "the vote was split: a pre-vote before yet another term",
    (Role.CANDIDATE, Role.LEADER): "a majority voted for us",
    (Role.CANDIDATE, Role.FOLLOWER): "a leader of this term or a higher term was seen, or a majority denied",
    (Role.LEADER, Role.FOLLOWER): "a higher term was seen, no majority responds, or it was removed",
}


class IllegalTransition(AssertionError):
    """A role change that the table does not name: a bug, never an input."""


def check(old: Role, new: Role) -> None:
    """Raises IllegalTransition unless `old` may become `new`."""
    if (old, new) not in TRANSITIONS:
        raise IllegalTransition(f"{old.value} may not become {new.value}")
