"""The simulator's traces are behaviours of the model; traces that lie are not, and TLC says the same."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import islice

import pytest

from compat_tests.kafka_jars import ToolchainMissing, skip_or_fail
from tests.model import relation, tla_traces, tlc
from tests.model.doctored import DOCTORED, lies
from tests.model.events import Trace
from tests.sim.recorder import recorded_groups, recording
from tests.sim.run import run_seed
from tests.support.cases import each_case

SEED = 3
"""A short run; any other would do."""


@functools.cache
def true_trace() -> Trace:
    """The first run of three nodes that is long enough."""
    return next(trace for trace in recorded_groups(3) if len(trace.events) >= 500)


@functools.cache
def told() -> dict[str, Trace]:
    """A lie of each kind, from the first runs that have a place for it."""
    return lies(islice(recorded_groups(3), 20))


def require_tlc() -> None:
    """TLC, or a skip that says what is missing; in CI a failure."""
    try:
        tlc.command()
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))


def test_a_trace_of_the_simulator_is_a_behaviour_of_the_model() -> None:
    trace = true_trace()
    assert len(trace.events) >= 500
    assert {event.kind for event in trace.events} >= {"start", "step"}
    assert relation.judge(trace) == ""


@each_case("name", DOCTORED)
def test_a_doctored_trace_is_refused(name: str) -> None:
    lie = told()[name]
    refused = relation.judge(lie)
    assert refused.startswith(f"event {len(lie.events) - 1}, "), refused or "accepted"


def test_a_member_begins_with_nothing_or_what_was_left() -> None:
    trace = true_trace()
    first = trace.events[0]
    entry = (1, None)
    for lie in (
        replace(first, term=1, hard=(1, -1)),
        replace(first, voted_for=1),
        replace(first, added=(entry,), persisted=1),
        replace(first, persisted=1),
        replace(first, commit=1),
        replace(first, kind="step"),
    ):
        assert relation.judge(Trace(trace.voters, [lie])).startswith("event 0, "), lie
    written = next(number for number, event in enumerate(trace.events) if event.added)
    came = [*trace.events[: written + 1]]
    term = came[-1].term
    left = replace(first, member=99, term=term, hard=(term, -1), added=came[-1].added[:1], persisted=1)
    assert relation.judge(Trace(trace.voters, [*came, left])) == ""
    assert relation.judge(Trace(trace.voters, [*came, replace(left, term=0, hard=(0, -1))])) != ""


def test_recording_leaves_the_run_as_it_is() -> None:
    plain = run_seed(SEED)
    with recording(()) as recorder:
        assert run_seed(SEED).trace_hash == plain.trace_hash
    assert recorder.trace.events


@pytest.mark.java
def test_tlc_and_the_relation_agree() -> None:
    """One start of TLC for all: the true trace is followed to its end, each lie up to the lie."""
    require_tlc()
    trace = true_trace()
    short = [lie for lie in told().values() if len(lie.events) < 60]
    assert len(short) >= 10
    verdicts, _ = tla_traces.judge([Trace(trace.voters, trace.events[:150]), *short])
    assert verdicts[0] == ""
    for lie, verdict in zip(short, verdicts[1:], strict=True):
        assert verdict.startswith(f"event {len(lie.events) - 1}:")
