"""Traces that lie: each takes a true trace and changes what one member is said to have done.

Every one breaks a rule of Raft or of this log; the relation and TLC must refuse all of them. A doctor looks
for the first place where the lie can be told and returns the trace up to there (what follows a lie proves
nothing), or None where the trace has no such place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tests.model.events import NOBODY, Event, Trace

Doctor = Callable[[Trace], Trace | None]


def _steps(trace: Trace) -> Iterator[tuple[int, Event, dict[int, Event]]]:
    """(number, event, what was seen last of each member before it) of each ordinary step."""
    last: dict[int, Event] = {}
    for number, event in enumerate(trace.events):
        if event.kind == "step" and event.member in last:
            yield number, event, last
        last[event.member] = event


def _ends_with(trace: Trace, number: int, *lies: Event) -> Trace:
    return Trace(trace.voters, [*trace.events[:number], *lies])


def _length(event: Event) -> int:
    return event.kept + len(event.added)


def commit_without_majority(trace: Trace) -> Trace | None:
    """A leader commits what it has only just written."""
    for number, event, last in _steps(trace):
        if event.role == "leader" and event.added and last[event.member].role == "leader":
            return _ends_with(trace, number, replace(event, commit=_length(event)))
    return None


def two_leaders(trace: Trace) -> Trace | None:
    """A voter that follows a leader leads in the same term."""
    for number, event, last in _steps(trace):
        if event.role == "leader" and event.added and event.term > 1:
            other = next((e for e in last.values() if e.member != event.member), None)
            if other is not None:
                lie = replace(
                    other,
                    kind="step",
                    term=event.term,
                    voted_for=other.member,
                    role="leader",
                    hard=(event.term, other.member),
                    kept=_length(other),
                    added=((event.term, None),),
                )
                return _ends_with(trace, number + 1, lie)
    return None


def vote_twice(trace: Trace) -> Trace | None:
    """A voter gives its vote to another in the same term."""
    for number, event, _ in _steps(trace):
        if event.role == "follower" and event.voted_for not in (NOBODY, event.member):
            other = next(m for m in trace.voters if m not in (event.voted_for, event.member))
            lie = replace(event, voted_for=other, kept=_length(event), added=())
            return _ends_with(trace, number + 1, lie)
    return None


def vote_forgotten(trace: Trace) -> Trace | None:
    """A vote that was on the disk is gone after a restart."""
    for number, event in enumerate(trace.events):
        if event.kind == "start" and event.voted_for != NOBODY:
            return _ends_with(trace, number, replace(event, voted_for=NOBODY, hard=(event.term, NOBODY)))
    return None


def vote_for_nobody_who_stood(trace: Trace) -> Trace | None:
    """A vote in a term in which that member never stood."""
    for number, event, _ in _steps(trace):
        if event.role == "follower" and event.voted_for == NOBODY and event.term > 0:
            stood = {e.member for e in trace.events if e.term == event.term and e.voted_for == e.member}
            other = next((m for m in trace.voters if m != event.member and m not in stood), None)
            if other is None:
                continue
            return _ends_with(
                trace, number + 1, replace(event, voted_for=other, kept=_length(event), added=())
            )
    return None


def term_back(trace: Trace) -> Trace | None:
    """A member goes back to the term before."""
    for number, event, _ in _steps(trace):
        if event.term > 1:
            lie = replace(
                event, term=event.term - 1, voted_for=NOBODY, role="follower", kept=_length(event), added=()
            )
            return _ends_with(trace, number + 1, lie)
    return None


def term_from_nowhere(trace: Trace) -> Trace | None:
    """A follower is in a term that nobody began."""
    for number, event, _ in _steps(trace):
        if event.role == "follower":
            term = max(e.term for e in trace.events) + 3
            return _ends_with(
                trace, number + 1, replace(event, term=term, voted_for=NOBODY, kept=_length(event), added=())
            )
    return None


def commit_back(trace: Trace) -> Trace | None:
    """A commit index goes back without a crash."""
    for number, event, _ in _steps(trace):
        if event.commit > 1:
            lie = replace(event, commit=event.commit - 1, kept=_length(event), added=())
            return _ends_with(trace, number + 1, lie)
    return None


def committed_cut(trace: Trace) -> Trace | None:
    """A follower cuts an entry that it knows to be committed, and has another there."""
    for number, event, _ in _steps(trace):
        if event.role == "follower" and event.commit > 1 and event.commit == _length(event):
            at = event.commit - 1
            lie = replace(event, kept=at, added=((event.term, None),), persisted=at, commit=at, verified=at)
            return _ends_with(trace, number + 1, lie)
    return None


def wrong_term_of_an_entry(trace: Trace) -> Trace | None:
    """A follower takes an entry with another term than its leader's."""
    for number, event, _ in _steps(trace):
        follows = event.role == "follower" and event.added and event.added[-1] == (event.term, None)
        if follows and event.kept and event.commit < _length(event):
            lie = replace(event, added=(*event.added[:-1], (event.term + 1, None)))
            return _ends_with(trace, number, lie)
    return None


def entry_that_the_leader_lacks(trace: Trace) -> Trace | None:
    """A follower has one more entry of this term than its leader wrote."""
    longest: dict[int, int] = {}
    for number, event, _ in _steps(trace):
        if event.role == "leader":
            longest[event.term] = _length(event)
        if event.role == "follower" and event.added and longest.get(event.term) == _length(event):
            return _ends_with(trace, number, replace(event, added=(*event.added, (event.term, None))))
    return None


def commit_beyond_the_leaders(trace: Trace) -> Trace | None:
    """A follower commits what its leader has not."""
    committed: dict[int, int] = {}
    for number, event, _ in _steps(trace):
        if event.role == "leader":
            committed[event.term] = event.commit
            continue
        known = committed.get(event.term, event.persisted)
        if event.role == "follower" and known < event.persisted <= event.verified:
            lie = replace(event, commit=event.persisted, kept=_length(event), added=())
            return _ends_with(trace, number + 1, lie)
    return None


def commit_before_flush(trace: Trace) -> Trace | None:
    """A follower commits an entry that it has not flushed."""
    for number, event, _ in _steps(trace):
        if (
            event.role == "follower"
            and event.persisted < _length(event)
            and event.commit == event.persisted > 0
        ):
            lie = replace(event, commit=event.persisted + 1, kept=_length(event), added=())
            return _ends_with(trace, number + 1, lie)
    return None


def flushed_entry_lost(trace: Trace) -> Trace | None:
    """A restart finds less than had been flushed."""
    last: dict[int, Event] = {}
    for number, event in enumerate(trace.events):
        before = last.get(event.member)
        if event.kind == "start" and before is not None and before.persisted > before.commit >= 0:
            cut = before.persisted - 1
            if cut >= max(1, event.commit) and event.kept >= cut:
                return _ends_with(trace, number, replace(event, kept=cut, added=(), persisted=cut))
        last[event.member] = event
    return None


def stale_entry_back(trace: Trace) -> Trace | None:
    """A restart finds an entry that was never there."""
    for number, event in enumerate(trace.events):
        if event.kind == "start" and event.term > 0 and event.kept:
            lie = replace(
                event, added=(*event.added, (event.term, ((event.member,),))), persisted=_length(event) + 1
            )
            return _ends_with(trace, number, lie)
    return None


def leader_without_votes(trace: Trace) -> Trace | None:
    """A candidate leads as soon as it stands."""
    for number, event, _ in _steps(trace):
        if event.role == "candidate" and len(trace.voters) > 1 and event.hard == (event.term, event.member):
            lie = replace(event, role="leader", kept=_length(event), added=((event.term, None),))
            return _ends_with(trace, number + 1, lie)
    return None


def leader_cuts(trace: Trace) -> Trace | None:
    """A leader takes back its own last entry."""
    for number, event, _ in _steps(trace):
        if event.role == "leader" and event.commit < _length(event) - 1 and event.persisted < _length(event):
            lie = replace(event, kept=_length(event) - 1, added=())
            return _ends_with(trace, number + 1, lie)
    return None


def propose_before_no_op(trace: Trace) -> Trace | None:
    """A new leader writes a second entry before its no-op is committed."""
    for number, event, last in _steps(trace):
        if event.role == "leader" and last[event.member].role == "candidate" and len(trace.voters) > 1:
            lie = replace(event, kept=_length(event), added=((event.term, None),))
            return _ends_with(trace, number + 1, lie)
    return None


def install_below_commit(trace: Trace) -> Trace | None:
    """A shipped checkpoint replaces a log that was further."""
    for number, event, _ in _steps(trace):
        if event.role == "follower" and event.commit > 2:
            at = event.commit - 1
            lie = replace(event, kind="install", kept=at, added=(), commit=at, persisted=at, verified=at)
            return _ends_with(trace, number + 1, lie)
    return None


DOCTORED: dict[str, Doctor] = {
    doctor.__name__: doctor
    for doctor in (
        commit_without_majority,
        two_leaders,
        vote_twice,
        vote_forgotten,
        vote_for_nobody_who_stood,
        term_back,
        term_from_nowhere,
        commit_back,
        committed_cut,
        wrong_term_of_an_entry,
        entry_that_the_leader_lacks,
        commit_beyond_the_leaders,
        commit_before_flush,
        flushed_entry_lost,
        stale_entry_back,
        leader_without_votes,
        leader_cuts,
        propose_before_no_op,
        install_below_commit,
    )
}


def lies(traces: Iterable[Trace]) -> dict[str, Trace]:
    """A lie of each kind, from the first trace that has a place for it; no more traces than needed."""
    found: dict[str, Trace] = {}
    for trace in traces:
        for name, doctor in DOCTORED.items():
            lie = doctor(trace) if name not in found else None
            if lie is not None:
                found[name] = lie
        if len(found) == len(DOCTORED):
            break
    return {name: found[name] for name in DOCTORED if name in found}
