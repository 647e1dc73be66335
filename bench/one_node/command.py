"""`python -m bench`: Lockstep measured against Apache Kafka, or a broker against itself.

Owns: the command line, the alternation of sessions, and what is kept of a run. Progress goes to stderr, the
result to stdout (a table, or JSON with --json). Exit status: 0; 1 when a round failed or a durability was
not proven; 2 for words that cannot be met; 3 when everything ran and a required ratio was missed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures.ratios import BASELINE, SUBJECT
from bench.machine.process import RssSampler
from bench.one_node.goals import GOALS, RATIOS
from bench.one_node.work import BACKLOG_ROWS, QUICK_ROWS, ROWS, run
from bench.progress import log_progress
from bench.running import comparison
from bench.sessions.session import Session
from bench.settings import FLUSH, FULL, OS, POLICIES, QUICK


@dataclass(frozen=True)
class Planned:
    """One session to come: the side, its kind of broker, the policies that broker serves."""

    side: str
    kind: str
    policies: tuple[str, ...]
    backlog: bool
    """True if backlogs are filled, read and recovered in it: once per side and round is enough."""

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


def _run_session(session: Session, rows: frozenset[str], with_restart: bool, is_whole: bool) -> None:
    """Args: is_whole: it serves every row that was asked for; only then its memory is beside others'."""
    session.open()
    sampler = RssSampler(session.target.pids)
    with sampler.sample_rss():
        run(session, rows, with_restart=with_restart)
    found = sampler.result()
    session.memory = found if is_whole else {}
    log_progress(f"  memory           {found['rss_max_mb']:.0f} MB at most")


def _parser(others: Collection[str], told: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, epilog=told)
    parser.add_argument(
        "row",
        choices=[*ROWS, "all", "quick", *others],
        help="one row, 'all' of them, or 'quick': all but groups, with --quick; the others have options of "
        "their own ('python -m bench headline --help')",
    )
    comparison.add_options(parser, quick="about five minutes for everything")
    comparison.add_baseline_tree(parser)
    parser.add_argument("--policy", choices=POLICIES, action="append", help="default: both")
    return parser


def main(arguments: Sequence[str], others: Collection[str], told: str) -> int:
    """Run what the command line asks for; the exit status.

    Args:
        others: the commands of `python -m bench` that are no rows.
        told: what its help says of those.
    """
    parser = _parser(others, told)
    options = parser.parse_args(arguments)
    if options.row in others:
        parser.error(f"'{options.row}' comes first, its options after it")
    comparison.check_baseline_tree(parser, options)
    required = comparison.required_goals(parser, options, RATIOS, GOALS)
    options.quick = options.quick or options.row == "quick"
    sizes = comparison.apply_sizes(QUICK if options.quick else FULL, options)
    policies = tuple(options.policy) if options.policy else (FLUSH, OS)
    rows = frozenset({"all": ROWS, "quick": QUICK_ROWS}.get(options.row, [options.row]))
    plan = plan_sessions(options.subject, comparison.baseline_of(options), policies, sizes.rounds, rows)
    seen: Counter[Planned] = Counter()

    def measure(planned: Planned, session: Session) -> None:
        with_restart = "restart" in rows and seen[planned] < sizes.restart_sessions
        seen[planned] += 1
        served = rows if planned.backlog else rows - BACKLOG_ROWS
        _run_session(session, served, with_restart, is_whole=planned.backlog)

    def run_plan(parent: Path) -> comparison.Outcomes:
        def make(planned: Planned) -> Session:
            tree = options.baseline_tree if planned.side == BASELINE else None
            return Session(planned.side, planned.kind, planned.policies, sizes, parent, tree)

        return comparison.run_sessions(plan, make, measure)

    start = ["python -m bench", options.row]
    return comparison.run_comparison(options.row, start, options, sizes, run_plan, required, GOALS, RATIOS)
