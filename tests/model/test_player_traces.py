"""What players and targets do in the simulator are behaviours of LogPlayer; traces that lie are not."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.model import tla_player_traces
from tests.model.player_doctored import lies
from tests.model.player_events import PlayerEvent, PlayerTrace, TargetEvent
from tests.model.test_traces import require_tlc
from tests.sim.plants.player import PLANTS
from tests.sim.player.recorder import WORKLOAD, recorded_plant, recorded_seed, recording
from tests.sim.run import run_seed

SEEDS = (1, 10)
"""Short runs, with batches of one part and of many; any others would do."""
EVENTS = 150


@functools.cache
def recorded() -> Sequence[PlayerTrace]:
    """The traces of all targets."""
    return [trace for seed in SEEDS for trace in recorded_seed(seed)]


def beginnings() -> list[PlayerTrace]:
    """So much of each as TLC follows in a few seconds."""
    return [replace(trace, events=trace.events[:EVENTS]) for trace in recorded()]


def test_recording_leaves_the_run_as_it_is_and_is_the_same_each_time() -> None:
    plain = run_seed(SEEDS[0], WORKLOAD)
    with recording() as recorder:
        assert run_seed(SEEDS[0], WORKLOAD).trace_hash == plain.trace_hash
    assert recorder.traces()[0] == recorded()[0]


def test_a_trace_has_what_players_and_the_target_did() -> None:
    for trace in recorded():
        players = [event for event in trace.events if isinstance(event, PlayerEvent)]
        targets = [event for event in trace.events if isinstance(event, TargetEvent)]
        assert {event.link for event in players} >= {"disconnected", "handshake", "open", "stopped"}
        assert {event.state for event in players} >= {"S", "N"}
        applied = [position for event in targets if event.call == "store" for position in event.parts]
        assert applied and applied == sorted(trace.sizes)[: len(applied)]
        assert len(applied) == targets[-1].applied


def test_every_lie_changes_the_last_event_of_a_true_trace() -> None:
    traces = recorded()
    told = lies(traces)
    assert len(told) >= 30
    for name, lie in told.items():
        true = next(trace for trace in traces if trace.events[: len(lie.events) - 1] == lie.events[:-1])
        assert lie.events[-1] not in true.events[len(lie.events) - 1 :][:1], name


def test_a_mistake_of_another_workload_is_not_looked_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sim.player.recorder.MOST_SEEDS", 1)
    of_a_group = next(each for each in PLANTS if each.workload != WORKLOAD)
    with pytest.raises(LookupError, match=f"{of_a_group.name} shows in none of 1 seeds"):
        recorded_plant(of_a_group, 500)


@pytest.mark.java
def test_tlc_accepts_true_traces_and_rejects_each_false_one_at_its_step() -> None:
    """One start of TLC for all. And what the code does with a mistake in it is refused, too."""
    require_tlc()
    planted = recorded_plant(next(each for each in PLANTS if each.name == "player-suspend-keeps"), 500)
    told = {name: lie for name, lie in lies(recorded()).items() if len(lie.events) <= EVENTS}
    assert len(told) >= 20
    true = beginnings()
    verdicts, outcome = tla_player_traces.judge([*true, *told.values(), *planted])
    assert any(verdicts[len(true) + len(told) :])
    assert verdicts[: len(true)] == [""] * len(true)
    assert outcome.distinct > sum(len(trace.events) for trace in true)
    for (name, lie), verdict in zip(told.items(), verdicts[len(true) :], strict=False):
        assert verdict.startswith(f"event {len(lie.events) - 1}:"), f"{name}: {verdict or 'accepted'}"
