"""Traces of the player as a TLA+ module, and TLC's judgement of them (model/TracePlayer.tla)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from lockstep.player.core.settings import Bound
from tests.model import tlc
from tests.model.player_events import Event, PlayerEvent, PlayerTrace, Queued, TargetEvent
from tests.model.tla_traces import furthest_matched
from tests.model.tlc import Configuration, Outcome

_PLENTY = "1000000"
_BOUNDS = ("Fitting", "HasRoom", "IsFull", "Exceeds")
_INVARIANTS = ("AppliedIsDue", "StreamBringsWhatIsDue", "OlderStreamsAreOver", "AckedIsStored")


def _bool(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _queue(queued: Queued) -> str:
    return f"<<{queued[0]}, {queued[1] + 1}, {queued[2] + 1}>>"


def _sequence(numbers: Sequence[int]) -> str:
    return "<<" + ", ".join(map(str, numbers)) + ">>"


def _bound(bound: Bound) -> str:
    return f"<<{bound.entries}, {bound.size_bytes}>>"


def _player_event(event: PlayerEvent) -> str:
    batch = event.batch
    sent = () if batch is None else (batch.previous + 1, batch.last + 1, batch.parts, batch.real)
    return (
        f'[p |-> {event.player}, call |-> "{event.call}", of |-> {event.term}, first |-> {event.first + 1}, '
        f'link |-> "{event.link}", term |-> {event.newest_term}, state |-> "{event.state}", '
        f"ack |-> {event.ack + 1}, normal |-> {_queue(event.normal)}, catchup |-> {_queue(event.catchup)}, "
        f"popped |-> {_queue(event.popped)}, sent |-> {event.sent + 1}, writing |-> {_bool(event.writing)}, "
        f"reads |-> {_bool(event.reads)}, fetched |-> {event.fetched + 1}, end |-> {event.end + 1}, "
        f"dropped |-> {_bool(event.dropped)}, started |-> {_bool(event.started)}, "
        f"current |-> {event.current + 1}, batch |-> {_sequence(sent)}]"
    )


def _target_event(event: TargetEvent, before_first: int) -> str:
    def position(value: int) -> int:
        return max(value, before_first) + 1

    return (
        f'[p |-> 0, q |-> {event.process}, call |-> "{event.call}", terms |-> {_sequence(event.terms)}, '
        f"by |-> {event.by}, position |-> {position(event.position)}, "
        f"received |-> {position(event.received)}, work |-> {event.work}, "
        f"stored |-> {position(event.stored)}, stored_terms |-> {_sequence(event.stored_terms)}, "
        f"applied |-> {event.applied}, parts |-> {_sequence([part + 1 for part in event.parts])}]"
    )


def _event(event: Event, before_first: int) -> str:
    return _player_event(event) if isinstance(event, PlayerEvent) else _target_event(event, before_first)


def _length(traces: Sequence[PlayerTrace]) -> int:
    """The last position of any of them that is mentioned, counted from 1."""
    last = 1
    for trace in traces:
        for event in trace.events:
            if isinstance(event, PlayerEvent):
                last = max(last, event.current + 1, event.end + 1, event.first + 1)
            else:
                last = max(last, event.stored + 1, event.received + 1)
    return last


def _trace(trace: PlayerTrace, length: int) -> str:
    settings = trace.settings
    sizes = [trace.sizes.get(position, 0) for position in range(length)]
    mine = [position + 1 for position in sorted(trace.sizes) if position < length]
    events = ",\n".join(_event(event, trace.before_first) for event in trace.events)
    return (
        f"[first |-> {trace.before_first + 1}, mine |-> {{{', '.join(map(str, mine))}}}, "
        f"through |-> {_sequence([0, *accumulate(sizes)])}, batch |-> {_bound(settings.batch)}, "
        f"window |-> {_bound(settings.window)}, normal |-> {_bound(settings.normal)}, "
        f"catchup |-> {_bound(settings.catchup)}, events |-> <<\n{events}\n>>]"
    )


def module(traces: Sequence[PlayerTrace]) -> str:
    """TraceData.tla."""
    length = _length(traces)
    texts = ",\n".join(_trace(trace, length) for trace in traces)
    return f"---- MODULE TraceData ----\nEXTENDS Integers\nTraces == <<\n{texts}\n>>\n====\n"


def _most(traces: Sequence[PlayerTrace]) -> tuple[int, int, int]:
    """How many players, terms of one of them, and processes there are."""
    events = [event for trace in traces for event in trace.events]
    players = [event for event in events if isinstance(event, PlayerEvent)]
    targets = [event for event in events if isinstance(event, TargetEvent)]
    return (
        max([event.player for event in players], default=1),
        max([1, *(event.newest_term for event in players), *(event.terms[1] for event in targets)]),
        max([event.process for event in targets], default=1),
    )


def judge(traces: Sequence[PlayerTrace], timeout_s: float = 600) -> tuple[list[str], Outcome]:
    """For each trace: empty where TLC finds a behaviour of the model with these events, else where it is
    stuck. And what TLC said. RuntimeError without a verdict."""
    players, terms, processes = _most(traces)
    constants = {
        "Length": str(_length(traces)),
        "Routes": "{{}}",
        "MaxPlayers": str(players),
        "MaxProcesses": str(processes),
        "MaxTerm": str(terms),
        "Dummies": "TRUE",
        "Others": "TRUE",
        "Fenced": "TRUE",
        "Reduced": "FALSE",
        "Plant": '""',
    }
    for name in ("MaxCuts", "MaxBatch", "MaxWindow", "MaxNormal", "MaxCatchup", "MaxFeed"):
        constants[name] = _PLENTY
    configuration = Configuration(
        "TracePlayer",
        constants,
        invariants=_INVARIANTS,
        specification="TraceSpec",
        instead={name: f"Trace{name}" for name in _BOUNDS},
    )
    data = {"TraceData": module(traces)}
    outcome = tlc.check(configuration, timeout_s=timeout_s, heap_mib=1500, extra_modules=data)
    if not outcome.complete:
        raise RuntimeError(f"no verdict: {outcome.violated} {outcome.failure}")
    return furthest_matched(outcome, [len(trace.events) for trace in traces]), outcome
