"""`python -m tests.sim.soak` (`make soak`): fresh seeds on a few processes, added to docs/evidence/sim.json.

Each run of the campaign takes up the seeds after the last recorded one, so seeds are never run twice on one
commit by accident; simulated hours add up per commit. `--repeat` runs each seed in two processes with
different PYTHONHASHSEED and compares the trace hashes. A violation is printed with the command that repeats
it, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.campaigns.evidence import ROOT, add_run, load_runs
from tests.sim.options import FAULTS

CAMPAIGN = "sim"
SEEDS_PER_PROCESS = 50
"""A process costs a second to start; a violation or a crash loses no more than this many seeds."""


def _chunk(first: int, count: int, hash_seed: int, extra: list[str]) -> list[dict[str, Any]]:
    """Run seeds in a process of their own; their outcomes."""
    command = [
        sys.executable,
        "-m",
        "tests.sim",
        "--seed",
        str(first),
        "--seeds",
        str(count),
        "--json",
        *extra,
    ]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(outcomes) < count:  # the simulator itself failed: that is a finding, too
        seed = first + len(outcomes)
        text = done.stderr[-2000:] or f"exit status {done.returncode}"
        outcomes.append({"seed": seed, "rule": "the simulator runs", "violation": text})
    return outcomes


def _all(
    first: int, seeds: int, processes: int, hash_seed: int, extra: list[str]
) -> Iterator[dict[str, Any]]:
    """The outcomes of all seeds, in order of their numbers, as they come."""
    chunks = [
        (at, min(SEEDS_PER_PROCESS, first + seeds - at))
        for at in range(first, first + seeds, SEEDS_PER_PROCESS)
    ]
    with ThreadPoolExecutor(processes) as threads:
        try:
            for outcomes in threads.map(lambda c: _chunk(c[0], c[1], hash_seed, extra), chunks):
                yield from outcomes
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def _say_violation(outcome: dict[str, Any], extra: list[str]) -> None:
    words = ["python", "-m", "tests.sim", "--seed", str(outcome["seed"]), *extra]
    print(f"VIOLATION {outcome['violation']}\n  again: {' '.join(words)}", flush=True)


def _figures(outcomes: list[dict[str, Any]], wall_s: float) -> dict[str, Any]:
    """What is recorded of a run."""
    whole = [o for o in outcomes if "faults" in o]
    faults: Counter[str] = Counter()
    for outcome in whole:
        faults.update(outcome["faults"])
    simulated_s = sum(o["simulated_s"] for o in whole)
    busy_s = sum(o["cpu_s"] for o in whole)
    return {
        "seeds": len(outcomes),
        "first_seed": min(o["seed"] for o in outcomes),
        "last_seed": max(o["seed"] for o in outcomes),
        "simulated_hours": round(simulated_s / 3600, 2),
        "wall_s": round(wall_s, 1),
        "simulated_per_core_second": round(simulated_s / max(busy_s, 1e-9), 1),
        "slowest_seed_s": round(max((o["wall_s"] for o in whole), default=0.0), 2),
        "events": sum(o["events"] for o in whole),
        "workloads": dict(sorted(Counter(o["workload"] for o in whole).items())),
        "faults_median": statistics.median([sum(o["faults"].values()) for o in whole] or [0]),
        "fault_kinds_median": statistics.median([len(o["faults"]) for o in whole] or [0]),
        "faults": {kind: faults[kind] for kind in FAULTS},
        "violations": [
            {"seed": o["seed"], "rule": o["rule"], "text": o["violation"][:500]}
            for o in outcomes
            if o["rule"]
        ],
    }


def _run(arguments: argparse.Namespace, extra: list[str]) -> int:
    runs = load_runs(CAMPAIGN)
    first = arguments.first or 1 + max((run.get("last_seed", 0) for run in runs), default=0)
    started = time.perf_counter()
    outcomes = []
    try:
        for outcome in _all(first, arguments.seeds, arguments.processes, 0, extra):
            outcomes.append(outcome)
            if outcome["rule"]:
                _say_violation(outcome, extra)
            if len(outcomes) % 100 == 0:
                print(f"{len(outcomes)} seeds, {time.perf_counter() - started:.0f} s", flush=True)
    except KeyboardInterrupt:
        print("interrupted: what has been run is recorded")
    if not outcomes:
        return 1
    figures = _figures(outcomes, time.perf_counter() - started)
    never = [kind for kind, count in figures["faults"].items() if not count]
    print(json.dumps(figures, indent=1))
    if never:
        print(f"faults that never happened: {', '.join(never)}")
    if not arguments.dry:
        add_run(CAMPAIGN, figures)
    return 1 if figures["violations"] else 0


def _repeat(arguments: argparse.Namespace, extra: list[str]) -> int:
    """Each seed twice under different hash seeds."""
    first = arguments.first or 1
    started = time.perf_counter()
    equal = 0
    differing = []
    one = _all(first, arguments.seeds, 1, 1, extra)
    other = _all(first, arguments.seeds, 1, 4242, extra)
    with ThreadPoolExecutor(2) as threads:
        for a, b in zip(*threads.map(list, (one, other)), strict=True):
            if a.get("trace_hash") == b.get("trace_hash") and a.get("trace_hash"):
                equal += 1
            else:
                differing.append(a["seed"])
    print(f"{equal} of {arguments.seeds} seeds have the same hash twice; differing: {differing[:20]}")
    if not arguments.dry:
        figures = {
            "repeated": arguments.seeds,
            "repeated_from": first,
            "equal_hashes": equal,
            "wall_s": round(time.perf_counter() - started, 1),
        }
        add_run(CAMPAIGN, figures)
    return 1 if differing else 0


def main() -> int:
    """See the module. Arguments it does not know go to `python -m tests.sim`."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.soak")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the first seed, instead of the next fresh one")
    parser.add_argument("--repeat", action="store_true", help="each seed twice, comparing hashes")
    parser.add_argument("--dry", action="store_true", help="record nothing")
    arguments, extra = parser.parse_known_args()
    return (_repeat if arguments.repeat else _run)(arguments, extra)


if __name__ == "__main__":
    sys.exit(main())
