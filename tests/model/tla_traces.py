"""A trace as a TLA+ module, and TLC's judgement of it (model/TraceRaft.tla).

TLC follows at most some hundred events in a few seconds; `relation` takes the long traces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.model import tlc
from tests.model.events import NOBODY, Entry, Event, Trace
from tests.model.tlc import Configuration, Outcome

_MATCHED = re.compile(r'<<"matched", (\d+), (\d+)>>')
_PLENTY = "100000"


def _sets(sets: tuple[tuple[int, ...], ...], names: dict[int, int]) -> str:
    return "{" + ", ".join(_set(each, names) for each in sets) + "}"


def _set(members: tuple[int, ...], names: dict[int, int]) -> str:
    return "{" + ", ".join(str(names[member]) for member in members) + "}"


def _entry(entry: Entry, names: dict[int, int]) -> str:
    term, voters = entry
    return f"[t |-> {term}, c |-> {_sets(voters, names) if voters is not None else '{}'}]"


def _event(event: Event, kind: str, names: dict[int, int]) -> str:
    def name(member: int) -> int:
        return 0 if member == NOBODY else names[member]

    added = ", ".join(_entry(entry, names) for entry in event.added)
    return (
        f'[n |-> {name(event.member)}, kind |-> "{kind}", term |-> {event.term}, '
        f'vote |-> {name(event.voted_for)}, role |-> "{event.role}", kept |-> {event.kept}, '
        f"added |-> <<{added}>>, commit |-> {event.commit}, persisted |-> {event.persisted}, "
        f"verified |-> {event.verified}, "
        f"hard |-> [term |-> {event.hard[0]}, vote |-> {name(event.hard[1])}]]"
    )


def _events(trace: Trace, names: dict[int, int]) -> str:
    born: set[int] = set()
    lines = []
    for event in trace.events:
        kind = event.kind if event.member in born else "birth"
        born.add(event.member)
        lines.append(_event(event, kind, names))
    return "<<\n" + ",\n".join(lines) + "\n>>"


def module(traces: Sequence[Trace], names: dict[int, int]) -> str:
    """TraceData.tla."""
    texts = ",\n".join(_events(trace, names) for trace in traces)
    return f"---- MODULE TraceData ----\nEXTENDS Naturals\nTraces == <<\n{texts}\n>>\n====\n"


def names_of(traces: Sequence[Trace]) -> dict[int, int]:
    """Small numbers for member ids; 0 is nobody."""
    members: set[int] = set()
    for trace in traces:
        members.update(trace.voters)
        for event in trace.events:
            members.update({event.member, event.voted_for, event.hard[1]} - {NOBODY})
            for _, voters in event.added:
                members.update(member for each in voters or () for member in each)
    return {member: number for number, member in enumerate(sorted(members), 1)}


def furthest_matched(outcome: Outcome, lengths: Sequence[int]) -> list[str]:
    """A verdict for each trace of so many events: empty where TLC has followed it to its end."""
    furthest = [0] * len(lengths)
    for which, at in _MATCHED.findall(outcome.output):
        furthest[int(which) - 1] = max(furthest[int(which) - 1], int(at))
    return [
        "" if at == length else f"event {at}: no step leads to it"
        for at, length in zip(furthest, lengths, strict=True)
    ]


def judge(traces: Sequence[Trace], timeout_s: float = 600) -> tuple[list[str], Outcome]:
    """For each trace (all of groups with the same first voters): empty where TLC finds a behaviour of the
    model with these events, else where it is stuck. And what TLC said. RuntimeError without a verdict."""
    names = names_of(traces)
    servers = "{" + ", ".join(map(str, sorted(names.values()))) + "}"
    configuration = Configuration(
        "TraceRaft",
        {
            "Servers": servers,
            "Nobody": "0",
            "OldVoters": _set(traces[0].voters, names),
            "NewVoters": "{}",
            "OddTerms": servers,
            "EvenTerms": servers,
            "MaxTerm": str(max(1, *(event.term for trace in traces for event in trace.events))),
            "MaxLength": _PLENTY,
            "MaxCrashes": _PLENTY,
            "MaxInstalls": _PLENTY,
            "MaxChanges": "0",
            "Reduced": "FALSE",
            "Plant": '""',
        },
        invariants=("ElectionSafety", "StateMachineSafety"),
        specification="TraceSpec",
    )
    data = {"TraceData": module(traces, names)}
    outcome = tlc.check(configuration, timeout_s=timeout_s, heap_mib=1500, extra_modules=data)
    if not outcome.complete:
        raise RuntimeError(f"no verdict: {outcome.violated} {outcome.failure}")
    return furthest_matched(outcome, [len(trace.events) for trace in traces]), outcome
