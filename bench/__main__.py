"""`python -m bench`: Lockstep measured against Apache Kafka, or a broker against itself.

Owns: the command line, the alternation of sessions, and what is kept of a run. Progress goes to stderr, the
result to stdout (a table, or JSON with --json). Exit status: 0; 1 when a round failed or a durability was
not proven; 3 when everything ran and a required ratio was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import micro, nodes3, profile, transactions
from bench.compare import BASELINE, GOALS, SUBJECT, BadRequirement, Goal, compare, parse_requirement
from bench.device import NoBlockDevice
from bench.facts import code_facts, machine_facts
from bench.kept import LOCAL_RESULTS, keep
from bench.logstore import command as logstore
from bench.process import RssSampler
from bench.report import table
from bench.rows import run_rows
from bench.session import RoundFailed, Session, say
from bench.settings import (
    BACKLOG_ROWS,
    FLUSH,
    FULL,
    OS,
    POLICIES,
    PRODUCER_PROPERTIES,
    QUICK,
    QUICK_ROWS,
    ROWS,
    Sizes,
)
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.targets import TargetFailed

EXIT_FAILED = 1
EXIT_GOAL_MISSED = 3

TOOLS = {
    "logstore": logstore.main,
    "nodes3": nodes3.main,
    "transactions": transactions.main,
    "profile": profile.main,
    "micro": micro.main,
}
"""Commands with words of their own."""


@dataclass(frozen=True)
class Planned:
    """One session to come: the side, its kind of broker, the policies that broker serves."""

    side: str
    kind: str
    policies: tuple[str, ...]
    backlog: bool
    """Whether backlogs are filled, read and recovered in it: once per side and round is enough."""

    def __str__(self) -> str:
        return f"{self.kind} {'+'.join(self.policies)}"


def plan_sessions(
    subject: str, baseline: str, policies: tuple[str, ...], rounds: int, rows: frozenset[str]
) -> list[Planned]:
    """Alternating, and mirrored every second round (ABBA), so that a drift of the machine hits both sides.

    Kafka flushes by topic, so one process serves all policies; Lockstep needs a process for each.
    """
    plan: list[Planned] = []
    for number in range(rounds):
        one = [
            each
            for side, kind in ((BASELINE, baseline), (SUBJECT, subject))
            for each in _sessions_of(side, kind, policies)
            if each.backlog or rows - BACKLOG_ROWS
        ]
        plan += one if number % 2 == 0 else one[::-1]
    return plan


def _sessions_of(side: str, kind: str, policies: tuple[str, ...]) -> list[Planned]:
    if kind == "kafka":
        return [Planned(side, kind, policies, True)]
    return [Planned(side, kind, (policy,), place == 0) for place, policy in enumerate(policies)]


def _run_session(session: Session, rows: frozenset[str], with_restart: bool) -> None:
    session.open()
    sampler = RssSampler(session.target.pids)
    with sampler.sampling():
        run_rows(session, rows, with_restart=with_restart)
    session.memory = sampler.result()
    say(f"  memory           {session.memory['rss_max_mb']:.0f} MB at most")


def run_plan(
    plan: list[Planned], rows: frozenset[str], sizes: Sizes, parent: Path, trees: Mapping[str, Path | None]
) -> tuple[list[Any], list[str]]:
    """Run every session in turn; (what each measured, what failed)."""
    sessions, failures = [], []
    seen: Counter[Planned] = Counter()
    began = time.monotonic()
    for number, planned in enumerate(plan, 1):
        say(f"[{time.monotonic() - began:4.0f} s] session {number} of {len(plan)}: {planned}")
        with_restart = "restart" in rows and seen[planned] < sizes.restart_sessions
        seen[planned] += 1
        tree = trees.get(planned.side)
        session = Session(planned.side, planned.kind, planned.policies, sizes, parent, tree)
        try:
            _run_session(session, rows if planned.backlog else rows - BACKLOG_ROWS, with_restart)
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
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog="Also: 'python -m bench nodes3' compares three nodes, 'transactions' their transactions, "
        "'logstore' repeats seed 001; 'profile' and 'micro' look inside Lockstep alone; "
        "'python -m bench.report RESULT.json ...' writes docs/benchmarks.md.",
    )
    parser.add_argument(
        "row", choices=[*ROWS, "all", "quick"], help="what to measure ('quick': all but groups, --quick)"
    )
    parser.add_argument(
        "--vs", choices=["kafka", "self"], default="kafka", help="'self' shows the noise floor"
    )
    parser.add_argument("--subject", choices=["lockstep", "kafka"], default="lockstep")
    parser.add_argument(
        "--baseline-tree", type=Path, help="with --vs self: the baseline is Lockstep from this source tree"
    )
    parser.add_argument("--quick", action="store_true", help="about five minutes for everything")
    parser.add_argument("--rounds", type=int, help="sessions of each kind (an even number is balanced)")
    parser.add_argument("--seconds", type=float, help="length of each latency block")
    parser.add_argument("--policy", choices=POLICIES, action="append", help="default: both")
    parser.add_argument("--require", action="append", default=[], metavar="RATIO>=X", help="or 'goals'")
    parser.add_argument("--json", action="store_true", help="the comparison on stdout as JSON")
    parser.add_argument("--out", type=Path, default=LOCAL_RESULTS, help="directory for the kept result")
    parser.add_argument("--directory", type=Path, help="where data directories are made")
    return parser


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick or options.row == "quick" else FULL
    if options.rounds:
        sizes = replace(sizes, rounds=options.rounds)
    if options.seconds:
        sizes = replace(sizes, latency_s=options.seconds)
    return sizes


def _command_line(options: argparse.Namespace) -> str:
    """The run's own words without paths."""
    words = ["python -m bench", options.row, "--subject", options.subject, "--vs", options.vs]
    words += ["--quick"] if options.quick else []
    words += ["--baseline-tree", "BEFORE"] if options.baseline_tree else []
    for name in ("rounds", "seconds"):
        value = getattr(options, name)
        words += [f"--{name}", str(value)] if value else []
    for policy in options.policy or ():
        words += ["--policy", policy]
    for requirement in options.require:
        words += ["--require", requirement]
    return " ".join(words)


def _finish(result: dict[str, Any], options: argparse.Namespace) -> int:
    path = keep(result, options.out, f"{options.row}-{result['subject']}-vs-{result['baseline']}")
    if options.json:
        print(json.dumps({key: result[key] for key in ("command", "comparison", "failures")}, indent=1))
    else:
        print(table(result))
    say(f"kept: {os.path.relpath(path)}")
    for failure in result["failures"]:
        say(f"FAILED: {failure}")
    if result["failures"]:
        return EXIT_FAILED
    required = {goal.ratio for text in options.require for goal in parse_requirement(text)}
    missed = [row for row in result["comparison"] if row["ratio"] in required and not row["met"]]
    for row in missed:
        value = "no figures" if row["value"] is None else f"{row['value']:.2f}"
        say(f"MISSED: {row['ratio']} is {value}, wanted {row.get('goal', 'a figure')}")
    return EXIT_GOAL_MISSED if missed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; the exit status."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # no broker is left behind
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in TOOLS:
        return TOOLS[words[0]](words[1:])
    parser = _parser()
    options = parser.parse_args(words)
    if options.baseline_tree and (options.vs, options.subject) != ("self", "lockstep"):
        parser.error("--baseline-tree goes with --vs self and --subject lockstep")
    goals: list[Goal] = []
    try:
        for text in options.require:
            goals += parse_requirement(text)
    except BadRequirement as error:
        parser.error(str(error))
    sizes = _sizes(options)
    baseline = options.subject if options.vs == "self" else options.vs
    policies = tuple(options.policy) if options.policy else (FLUSH, OS)
    rows = frozenset({"all": ROWS, "quick": QUICK_ROWS}.get(options.row, [options.row]))
    parent = options.directory or Path(tempfile.gettempdir())
    try:
        machine = machine_facts(parent)
        plan = plan_sessions(options.subject, baseline, policies, sizes.rounds, rows)
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        sessions, failures = run_plan(plan, rows, sizes, parent, {BASELINE: options.baseline_tree})
    except (NoBlockDevice, ToolchainMissing) as error:
        say(f"cannot measure here: {error}")
        return EXIT_FAILED
    result = {
        "format": 1,
        "command": _command_line(options),
        "started": started,
        "subject": options.subject,
        "baseline": baseline,
        "code": code_facts(),
        "machine": machine,
        "sizes": vars(sizes),
        "producer_properties": PRODUCER_PROPERTIES,
        "comparison": compare(sessions, goals, GOALS if options.subject != baseline else ()),
        "failures": failures,
        "sessions": sessions,
    }
    return _finish(result, options)


if __name__ == "__main__":
    sys.exit(main())
