"""`python -m tests.model.check` (`make model`): TLC over every run, every planted mistake, and traces.

Prints a line per run, adds the figures to docs/evidence/model.json (`--record`), and exits with 1 where a
model has an error, a run did not finish, a planted mistake found no counterexample, the exhaustive runs
together saw fewer than a million distinct states, a trace of the simulator is no behaviour of the model, or
a doctored one is.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count, islice
from typing import Any

from compat_tests.kafka_jars import ToolchainMissing
from tests.campaigns.evidence import add_run
from tests.model import player_doctored, relation, tla_player_traces, tla_traces, tlc
from tests.model.doctored import lies
from tests.model.events import Trace
from tests.model.planted import PlantedMistake
from tests.model.runs import DAY, NIGHT, PLANTS
from tests.model.tlc import Configuration, Outcome
from tests.sim.plants.player import PLANTS as PLAYER_PLANTS
from tests.sim.player import recorder as player_recorder
from tests.sim.recorder import recorded_groups, recorded_seed
from tests.sim.run import drawn

CAMPAIGN = "model"
LEAST_DISTINCT = 1_000_000
TLC_EVENTS = 500
PLAYER_EVENTS = 500
"""TLC follows so many of each target."""
LIE_EVENTS = 1500
"""No lie of the player is told later, nor has a planted mistake a longer trace."""
TRACES = "traces"


def exhaustive(runs: dict[str, Configuration], workers: int, timeout_s: float) -> dict[str, Outcome]:
    """Each run to its end, one after the other."""
    outcomes = {}
    for name, configuration in runs.items():
        outcome = outcomes[name] = tlc.check(configuration, workers=workers, timeout_s=timeout_s)
        said = "ok" if outcome.complete else outcome.violated or outcome.failure
        print(
            f"{name:42} {outcome.distinct:>10,} distinct of {outcome.states:>11,} states, "
            f"depth {outcome.depth:>3}, {outcome.seconds:>6.1f} s: {said}",
            flush=True,
        )
    return outcomes


def planted(plants: dict[str, PlantedMistake], at_once: int, timeout_s: float) -> dict[str, Outcome]:
    """A counterexample for each mistake, some at a time."""
    with ThreadPoolExecutor(at_once) as pool:
        running = {
            name: pool.submit(tlc.check, plant.configuration, timeout_s=timeout_s, heap_mib=1000)
            for name, plant in plants.items()
        }
        outcomes = {}
        for name, future in running.items():
            outcome = outcomes[name] = future.result()
            said = (
                f"breaks {outcome.violated}"
                if caught(plants[name], outcome)
                else f"NOT CAUGHT {outcome.violated}"
            )
            print(f"planted {name:34} {said} {outcome.failure}({outcome.seconds} s)", flush=True)
    return outcomes


def caught(plant: PlantedMistake, outcome: Outcome) -> bool:
    """Whether one of the rules that the mistake is against was broken."""
    return outcome.violated in plant.breaks


def traces(seeds: int, tlc_seeds: int) -> dict[str, Any]:
    """Traces of simulated clusters, all by the relation, the first events of some by TLC as well; then the
    doctored ones by both, which must refuse them at the same event. A node alone is left out: it asks its
    core for nothing when it appends, so that its entries are not seen."""
    events = refused = 0
    wrong: list[str] = []
    clusters = (seed for seed in count(1) if drawn(seed, None, {}, None)[1].nodes > 1)
    for number, seed in enumerate(islice(clusters, seeds), 1):
        trace = recorded_seed(seed)
        events += len(trace.events)
        verdict = relation.judge(trace)
        if not verdict and number <= tlc_seeds:
            verdict = tla_traces.judge([Trace(trace.voters, trace.events[:TLC_EVENTS])])[0][0]
        wrong += [f"seed {seed}: {verdict}"] if verdict else []
    doctored = lies(recorded_groups(3))
    verdicts, _ = tla_traces.judge(list(doctored.values()))
    for (name, lie), verdict in zip(doctored.items(), verdicts, strict=True):
        both = relation.judge(lie).split(",")[0], verdict.split(":")[0]
        if both[0] != both[1] or not verdict:
            wrong.append(f"{name}: the relation says {both[0]!r}, TLC {both[1]!r}")
        refused += 1
    print(
        f"{seeds} traces, {events:,} events; {refused} doctored: {wrong or 'all as they should be'}",
        flush=True,
    )
    return {"seeds": seeds, "events": events, "by_tlc": tlc_seeds, "doctored": refused, "errors": wrong}


def player_traces(seeds: int) -> dict[str, Any]:
    """The first events of each target of so many seeds of the player workload; what the code does with each
    planted mistake, to where the simulator sees it; and the doctored ones."""
    began, cpu = time.monotonic(), tlc.cpu_seconds()
    recorded, wrong = [], []
    judged = events = states = 0
    for seed in range(1, seeds + 1):
        traces = player_recorder.recorded_seed(seed)
        recorded += [replace(trace, events=trace.events[:LIE_EVENTS]) for trace in traces]
        heads = [replace(trace, events=trace.events[:PLAYER_EVENTS]) for trace in traces]
        verdicts, outcome = tla_player_traces.judge(heads)
        judged, states = judged + len(heads), states + outcome.distinct
        events += sum(len(trace.events) for trace in heads)
        wrong += [
            f"player seed {seed}, target {trace.target}: {verdict}"
            for trace, verdict in zip(heads, verdicts, strict=True)
            if verdict
        ]
    planted = [each for each in PLAYER_PLANTS if each.workload == player_recorder.WORKLOAD]
    for plant in planted:
        try:
            verdicts, _ = tla_player_traces.judge(player_recorder.recorded_plant(plant, LIE_EVENTS))
        except LookupError as error:
            wrong.append(str(error))
            continue
        if not any(verdicts):
            wrong.append(f"{plant.name}: what it does is taken for a behaviour of the model")
    told = player_doctored.lies(recorded)
    verdicts, _ = tla_player_traces.judge(list(told.values()))
    for (name, lie), verdict in zip(told.items(), verdicts, strict=True):
        if not verdict.startswith(f"event {len(lie.events) - 1}:"):
            wrong.append(f"player, {name}: {verdict or 'accepted'}, told at {len(lie.events) - 1}")
    wrong += [f"player, {name}: nowhere to be told" for name in player_doctored.DOCTORED if name not in told]
    seconds = round(time.monotonic() - began, 1)
    print(
        f"player: {judged} traces, {events:,} events; {len(planted)} mistakes planted in the code, "
        f"{len(told)} doctored, {seconds} s: "
        f"{wrong or 'all as they should be'}",
        flush=True,
    )
    return {
        "seeds": seeds,
        "traces": judged,
        "events": events,
        "states": states,
        "planted": len(planted),
        "doctored": len(told),
        "seconds": seconds,
        "cpu_seconds": round(tlc.cpu_seconds() - cpu, 1),
        "errors": wrong,
    }


def chosen(runs: Iterable[str], wanted: str) -> list[str]:
    return [name for name in runs if wanted in name]


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the TLA+ models with TLC.")
    parser.add_argument("--bounds", choices=("day", "night"), default="day")
    parser.add_argument("--only", default="", help="runs and mistakes whose name holds this, or `traces`")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout", type=float, default=0, help="seconds per run")
    parser.add_argument("--seeds", type=int, default=0, help="simulator seeds (10, at night 1,000)")
    parser.add_argument("--record", action="store_true", help="add the figures to docs/evidence/model.json")
    options = parser.parse_args()
    try:
        tlc.command()
    except ToolchainMissing as missing:
        print(f"model: {missing}", file=sys.stderr)
        return 2
    timeout_s = options.timeout or (1800 if options.bounds == "day" else 8 * 3600)
    table = DAY if options.bounds == "day" else NIGHT
    runs = {name: table[name] for name in chosen(table, options.only)}
    plants = {name: PLANTS[name] for name in chosen(PLANTS, options.only)}
    began = time.monotonic()
    done = exhaustive(runs, options.workers, timeout_s)
    mistakes = planted(plants, options.workers, timeout_s)
    seeds = options.seeds or (10 if options.bounds == "day" else 1000)
    traced = traces(seeds, max(2, seeds // 50)) if options.only in ("", TRACES) else {}
    played = player_traces(max(10, seeds // 10)) if options.only in ("", TRACES) else {}
    distinct = sum(outcome.distinct for outcome in done.values())
    wrong = [name for name, outcome in done.items() if not outcome.complete]
    wrong += [name for name, outcome in mistakes.items() if not caught(plants[name], outcome)]
    wrong += [*traced.get("errors", []), *played.get("errors", [])]
    if not options.only and distinct < LEAST_DISTINCT:
        wrong.append(f"only {distinct:,} distinct states, {LEAST_DISTINCT:,} wanted")
    seconds = round(time.monotonic() - began, 1)
    print(f"{distinct:,} distinct states, {len(plants)} planted mistakes, {seconds} s: {wrong or 'all well'}")
    if options.record:
        figures = {
            "bounds": options.bounds,
            "only": options.only,
            "workers": options.workers,
            "distinct_states": distinct,
            "errors": wrong,
            "seconds": seconds,
            "cpu_seconds": tlc.cpu_seconds(),
            "runs": {name: outcome.figures() for name, outcome in done.items()},
            "traces": traced,
            "player_traces": played,
            "planted": {name: outcome.figures() for name, outcome in mistakes.items()},
        }
        print(f"recorded in {add_run(CAMPAIGN, figures)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
