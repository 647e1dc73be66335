"""Single cores brought into a wanted state, for the mirror tests of the core's modules."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.storage.raft.configuration import Configuration, ConfigurationStack
from lockstep.storage.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.ready import Ready
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.raft.term_index import TermIndex
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import HardState

ME = 1
THREE = Configuration((1, 2, 3))
START_MS = 1000


def core(
    configuration: Configuration = THREE,
    terms: Sequence[int] = (),
    term: int | None = None,
    voted_for: int = -1,
    base: tuple[int, int] = (0, 0),
    settings: RaftSettings | None = None,
) -> Raft:
    """Member 1 at 1,000 ms, its log with an entry of each of `terms` above the checkpoint `base`."""
    index = TermIndex(*base)
    for place, each in enumerate(terms):
        index.append(base[0] + 1 + place, each, 10)
    return Raft(
        ME,
        ConfigurationStack(configuration, base[0]),
        HardState(index.last_term if term is None else term, voted_for),
        index,
        base[0],
        settings or RaftSettings(),
        START_MS,
        lambda n: 0,
    )


def drained(raft: Raft) -> Ready:
    """`ready`, with the hard state flushed and what that releases added."""
    ready = raft.ready()
    if ready.hard_state is not None:
        raft.on_hard_state_persisted(ready.hard_state)
        after = raft.ready()
        after.hard_state, after.accepted = ready.hard_state, ready.accepted
        after.truncate_after, after.installs = ready.truncate_after, ready.installs or after.installs
        after.messages = [*ready.messages, *after.messages]
        return after
    return ready


def said(raft: Raft, to: int | None = None) -> list[Message]:
    """What it has to say, the hard state flushed; to one member or to all."""
    return [message for message in drained(raft).messages if to in (None, message.to)]


def give_votes(raft: Raft, voters: Sequence[int]) -> None:
    """Let a core that has no leader ask, stand and win."""
    raft.tick(raft.election_due_ms)
    now_ms = raft.now_ms
    for voter in voters:
        raft.step(VoteResponse(voter, ME, raft.term + 1, True, True), now_ms)
    drained(raft)
    for voter in voters:
        raft.step(VoteResponse(voter, ME, raft.term, False, True), now_ms)


def leader(
    configuration: Configuration = THREE,
    terms: Sequence[int] = (),
    is_serving: bool = True,
    settings: RaftSettings | None = None,
) -> Raft:
    """A leader, at 1,500 ms, whose no-op all others hold if it is to serve."""
    raft = core(configuration, terms, settings=settings)
    others = [member for member in configuration.members if member != ME]
    give_votes(raft, [member for member in others if configuration.is_voter(member)])
    assert raft.role is Role.LEADER
    drained(raft)
    if is_serving:
        raft.on_persisted(raft.last_index, raft.term, raft.truncation_count)
        for member in others:
            raft.step(holds(raft, member, raft.last_index), raft.now_ms)
        drained(raft)
        assert raft.is_serving
    return raft


def holds(raft: Raft, member: int, match_index: int) -> AppendResponse:
    """The answer of a member that holds the leader's log up to there."""
    return AppendResponse(member, ME, raft.term, match_index, match_index, 0, 0, raft.now_ms)


def lacks(raft: Raft, member: int, prev_index: int, hint: tuple[int, int]) -> AppendResponse:
    """The answer of a member that has no such entry."""
    return AppendResponse(member, ME, raft.term, -1, prev_index, *hint, raft.now_ms)


def beats(raft: Raft, member: int, match_index: int, sent_ms: int | None = None) -> HeartbeatResponse:
    """The answer to a heartbeat, sent now if nothing else is said."""
    return HeartbeatResponse(member, ME, raft.term, match_index, raft.now_ms if sent_ms is None else sent_ms)


def entries(
    prev: tuple[int, int],
    terms: Sequence[int],
    term: int = 5,
    commit_index: int = 0,
    configurations: Sequence[tuple[int, Configuration]] = (),
    sender: int = 2,
) -> Append:
    """A request of leader 2 with an entry of each of `terms` after `prev` (index, term)."""
    runs = [
        (prev[0] + 1 + place, each)
        for place, each in enumerate(terms)
        if place == 0 or terms[place - 1] != each
    ]
    last = prev[0] + len(terms)
    sizes = [10] * len(terms)
    return Append(
        sender, ME, term, prev[0], prev[1], runs, last, configurations, commit_index, 77, sizes=sizes
    )


def heartbeat(term: int = 5, commit_index: int = 0, sender: int = 2, sent_ms: int = 77) -> Heartbeat:
    return Heartbeat(sender, ME, term, commit_index, sent_ms)


def ballot(
    term: int, last: tuple[int, int], pre: bool = False, transfer: bool = False, sender: int = 2
) -> VoteRequest:
    """A request of member 2 whose last entry is `last` (index, term)."""
    return VoteRequest(sender, ME, term, pre, *last, transfer)


def role(raft: Raft) -> Role:
    """Its role; a call, because type checkers believe that an attribute stays what it was."""
    return raft.role
