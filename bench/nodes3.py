"""`python -m bench nodes3`: three Lockstep nodes against three Apache Kafka nodes, on this machine.

Owns: the command line, the order of sessions, and what is kept of a run. One side's three nodes are alive at
a time; sessions alternate and are mirrored every second round. Exit status as of `python -m bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.compare import BASELINE, SUBJECT, BadRequirement, Goal, compare, parse_requirement
from bench.device import NoBlockDevice
from bench.facts import code_facts, machine_facts
from bench.kept import LOCAL_RESULTS, keep
from bench.nodes_goals import NODES_GOALS, NODES_RATIOS, SHAPES
from bench.nodes_rows import ROWS, count_commits, run
from bench.nodes_session import HEAP, NODES, NodesSession
from bench.report import table
from bench.session import RoundFailed, say
from bench.settings import FLUSH, NODES_FULL, NODES_QUICK, OS, POLICIES, PRODUCER_PROPERTIES, Sizes
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.targets import TargetFailed

EXIT_FAILED = 1
EXIT_GOAL_MISSED = 3


@dataclass(frozen=True)
class Planned:
    """One session to come: three nodes of a kind, the policies and numbers of partitions they serve."""

    side: str
    kind: str
    policies: tuple[str, ...]
    shapes: tuple[int, ...]

    def __str__(self) -> str:
        words = "+".join(map(str, self.shapes))
        return f"{NODES} x {self.kind} {'+'.join(self.policies)}, partitions {words}"


def plan_sessions(
    subject: str, baseline: str, policies: tuple[str, ...], shapes: tuple[int, ...], rounds: int
) -> list[Planned]:
    """As for one broker (ABBA). Kafka serves all policies and shapes in one life, Lockstep one of each."""
    one = [
        each
        for side, kind in ((BASELINE, baseline), (SUBJECT, subject))
        for each in _sessions_of(side, kind, policies, shapes)
    ]
    return [each for number in range(rounds) for each in (one if number % 2 == 0 else one[::-1])]


def _sessions_of(side: str, kind: str, policies: tuple[str, ...], shapes: tuple[int, ...]) -> list[Planned]:
    if kind == "kafka":
        return [Planned(side, kind, policies, shapes)]
    return [Planned(side, kind, (policy,), (shape,)) for policy in policies for shape in shapes]


def run_plan(
    plan: Sequence[Planned], rows: frozenset[str], sizes: Sizes, parent: Path, heap: str, tree: Path | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run every session in turn; (what each measured, what failed)."""
    sessions: list[dict[str, Any]] = []
    failures: list[str] = []
    began = time.monotonic()
    for number, planned in enumerate(plan, 1):
        say(f"[{time.monotonic() - began:4.0f} s] session {number} of {len(plan)}: {planned}")
        source = tree if planned.side == BASELINE else None
        session = NodesSession(
            planned.side, planned.kind, planned.policies, planned.shapes, sizes, parent, source, heap
        )
        try:
            session.open()
            run(session, rows, sizes.restarts_per_session)
            count_commits(session)
        except (RoundFailed, TargetFailed) as error:
            failures.append(f"session {number} ({planned}): {error}")
            say(f"  FAILED: {error}\n{session.log_tail()}")
        finally:
            session.close()
        failures += [f"session {number}: {problem}" for problem in session.unproven()]
        sessions.append(session.outcome())
    say(f"[{time.monotonic() - began:4.0f} s] done")
    return sessions, failures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench nodes3", description=__doc__)
    parser.add_argument("row", nargs="?", default="all", choices=[*ROWS, "all"], help="default: all")
    parser.add_argument("--vs", choices=["kafka", "self"], default="kafka")
    parser.add_argument("--subject", choices=["lockstep", "kafka"], default="lockstep")
    parser.add_argument(
        "--baseline-tree", type=Path, help="with --vs self: the baseline is Lockstep from this source tree"
    )
    parser.add_argument("--quick", action="store_true", help="short blocks and a short warm-up")
    parser.add_argument("--rounds", type=int, help="sessions of each kind")
    parser.add_argument("--seconds", type=float, help="length of each latency block")
    parser.add_argument("--policy", choices=POLICIES, action="append", help="default: both")
    parser.add_argument("--groups", type=int, choices=SHAPES, action="append", help="default: both")
    parser.add_argument("--heap", default=HEAP, help=f"of each Kafka node (default {HEAP})")
    parser.add_argument("--require", action="append", default=[], metavar="RATIO>=X", help="or 'goals'")
    parser.add_argument("--json", action="store_true", help="the comparison on stdout as JSON")
    parser.add_argument("--out", type=Path, default=LOCAL_RESULTS, help="directory for the kept result")
    parser.add_argument("--directory", type=Path, help="where data directories are made")
    return parser


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = NODES_QUICK if options.quick else NODES_FULL
    if options.rounds:
        sizes = replace(sizes, rounds=options.rounds)
    if options.seconds:
        sizes = replace(sizes, latency_s=options.seconds)
    return sizes


def _command_line(options: argparse.Namespace) -> str:
    """The run's own words without paths."""
    words = ["python -m bench nodes3", options.row, "--subject", options.subject, "--vs", options.vs]
    words += ["--quick"] if options.quick else []
    words += ["--baseline-tree", "BEFORE"] if options.baseline_tree else []
    for name in ("rounds", "seconds"):
        value = getattr(options, name)
        words += [f"--{name}", str(value)] if value else []
    for name in ("policy", "groups", "require"):
        words += [word for value in getattr(options, name) or () for word in (f"--{name}", str(value))]
    words += ["--heap", options.heap] if options.heap != HEAP else []
    return " ".join(words)


def finish(result: dict[str, Any], options: argparse.Namespace, required: frozenset[str]) -> int:
    """Keep and print what was measured; the exit status."""
    path = keep(result, options.out, f"{result['kind']}-{result['subject']}-vs-{result['baseline']}")
    if options.json:
        print(json.dumps({key: result[key] for key in ("command", "comparison", "failures")}, indent=1))
    else:
        print(table(result))
    say(f"kept: {os.path.relpath(path)}")
    for failure in result["failures"]:
        say(f"FAILED: {failure}")
    if result["failures"]:
        return EXIT_FAILED
    missed = [row for row in result["comparison"] if row["ratio"] in required and not row["met"]]
    for row in missed:
        value = "no figures" if row["value"] is None else f"{row['value']:.2f}"
        say(f"MISSED: {row['ratio']} is {value}, wanted {row.get('goal', 'a figure')}")
    return EXIT_GOAL_MISSED if missed else 0


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.baseline_tree and (options.vs, options.subject) != ("self", "lockstep"):
        parser.error("--baseline-tree goes with --vs self and --subject lockstep")
    required: list[Goal] = []
    try:
        for text in options.require:
            required += parse_requirement(text, NODES_RATIOS, NODES_GOALS)
    except BadRequirement as error:
        parser.error(str(error))
    sizes = _sizes(options)
    baseline = options.subject if options.vs == "self" else options.vs
    policies, shapes = tuple(options.policy or (FLUSH, OS)), tuple(options.groups or SHAPES)
    rows = frozenset(ROWS if options.row == "all" else [options.row])
    parent = options.directory or Path(tempfile.gettempdir())
    try:
        machine = machine_facts(parent)
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        plan = plan_sessions(options.subject, baseline, policies, shapes, sizes.rounds)
        sessions, failures = run_plan(plan, rows, sizes, parent, options.heap, options.baseline_tree)
    except (NoBlockDevice, ToolchainMissing) as error:
        say(f"cannot measure here: {error}")
        return EXIT_FAILED
    shown = NODES_GOALS if options.subject != baseline else ()
    result = {
        "format": 1,
        "kind": "nodes3",
        "command": _command_line(options),
        "started": started,
        "subject": options.subject,
        "baseline": baseline,
        "heap": options.heap,
        "code": code_facts(),
        "machine": machine,
        "sizes": vars(sizes),
        "producer_properties": PRODUCER_PROPERTIES,
        "comparison": compare(sessions, required, shown, NODES_RATIOS),
        "failures": failures,
        "sessions": sessions,
    }
    return finish(result, options, frozenset(goal.ratio for goal in required))
