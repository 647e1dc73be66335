"""The messages between members of a group; the bytes on the wire are the transport's.

Every message names its sender, its receiver and the sender's term. Receivers trust nothing else: a message
may be lost, late, duplicated or reordered. `sent_ms` is the sender's clock and comes back in the response,
so that a leader knows since when at the latest a follower has known it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.types import Buffer


@dataclass(slots=True)
class Message:
    """The fields of all messages: two member ids and a term."""

    sender: int
    to: int
    term: int


@dataclass(slots=True)
class VoteRequest(Message):
    """Requests a vote, or with `pre` a PreVote. `term` is the candidate's, or would be.

    `transfer`: the old leader requested this election, so that its lease is no reason to deny the vote.
    """

    pre: bool
    last_index: int
    last_term: int
    transfer: bool = False


@dataclass(slots=True)
class VoteResponse(Message):
    """`pre` and granted: `term` is the request's; otherwise it is the voter's own."""

    pre: bool
    granted: bool


@dataclass(slots=True)
class Append(Message):
    """The entries `prev_index + 1` to `last_index`; none where these are equal, which only probes the match.

    `runs` are the first index and term of each run of one term; `configurations` those among the entries.
    `frames` (their bytes), `chain` (the chain value before them) and `sizes` (bytes per entry) are the
    shell's: the first two on either side, the last on the receiving one, before the core sees the request.
    """

    prev_index: int
    prev_term: int
    runs: Sequence[tuple[int, int]]
    last_index: int
    configurations: Sequence[tuple[int, Configuration]]
    commit_index: int
    sent_ms: int
    frames: Sequence[Buffer] = field(default=(), repr=False)
    chain: int = field(default=0, repr=False)
    sizes: Sequence[int] = field(default=(), repr=False)


@dataclass(slots=True)
class AppendResponse(Message):
    """`match_index`: all up to there equals the leader's log and is flushed; -1: no entry like `prev_index`.

    Then the hint: the sender's last entry, not beyond `prev_index`, of a term that may still match.
    """

    match_index: int
    prev_index: int
    hint_index: int
    hint_term: int
    sent_ms: int


@dataclass(slots=True)
class Heartbeat(Message):
    """`commit_index` is never beyond what the receiver is known to hold."""

    commit_index: int
    sent_ms: int


@dataclass(slots=True)
class HeartbeatResponse(Message):
    """`match_index` as in an AppendResponse."""

    match_index: int
    sent_ms: int


@dataclass(slots=True)
class TimeoutNow(Message):
    """Leadership transfer: the receiver starts an election at once."""


@dataclass(slots=True)
class Install(Message):
    """One chunk of a snapshot, which covers the entries up to (`index`, `last_term`).

    `payload` and `commit_index`, the sender's, are the shell's.
    """

    index: int
    last_term: int
    chunk: int
    done: bool
    sent_ms: int
    payload: object = field(default=None, repr=False)
    commit_index: int = field(default=0, repr=False)


@dataclass(slots=True)
class InstallResponse(Message):
    """The chunk is stored, or (not `accepted`) the snapshot send must begin again."""

    index: int
    chunk: int
    accepted: bool
    sent_ms: int


@dataclass(slots=True)
class RangeRequest(Message):
    """Requests these entries, of which the sender's copy is corrupt. Not for the core."""

    first_index: int
    last_index: int


@dataclass(slots=True)
class RangeResponse(Message):
    """Committed entries from `first_index` on, as bytes of frames; `chain` is the chain value before them.
    They begin later than requested where the sender has freed the first of them. Not for the core."""

    first_index: int
    chain: int
    frames: Sequence[Buffer] = field(default=(), repr=False)
