"""`python -m bench nodes3`: three Lockstep nodes against three Apache Kafka nodes, on this machine.

Owns: the order of sessions, and what is measured in each. One side's three nodes are alive at
a time; sessions alternate and are mirrored every second round. Exit status as of `python -m bench`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures.ratios import BASELINE, SUBJECT
from bench.nodes3.goals import GOALS, RATIOS, SHAPES
from bench.nodes3.work import ROWS, run
from bench.running import comparison
from bench.sessions.cluster import NODES, NodesSession
from bench.sessions.commits import count_commits
from bench.settings import FLUSH, NODES_FULL, NODES_QUICK, OS, POLICIES, Sizes


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
    """Like the sessions of one broker (ABBA). Kafka serves all policies and shapes in one life, Lockstep one
    of each."""
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


def _measure(session: NodesSession, rows: frozenset[str], sizes: Sizes) -> None:
    session.open()
    run(session, rows, sizes.restarts_per_session)
    count_commits(session)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench nodes3", description=__doc__)
    parser.add_argument("row", nargs="?", default="all", choices=[*ROWS, "all"], help="default: all")
    comparison.add_options(parser, quick="short blocks and a short warm-up")
    comparison.add_baseline_tree(parser)
    comparison.add_heap(parser)
    parser.add_argument("--policy", choices=POLICIES, action="append", help="default: both")
    parser.add_argument("--groups", type=int, choices=SHAPES, action="append", help="default: both")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    comparison.check_baseline_tree(parser, options)
    required = comparison.required_goals(parser, options, RATIOS, GOALS)
    sizes = comparison.apply_sizes(NODES_QUICK if options.quick else NODES_FULL, options)
    policies, shapes = tuple(options.policy or (FLUSH, OS)), tuple(options.groups or SHAPES)
    rows = frozenset(ROWS if options.row == "all" else [options.row])
    plan = plan_sessions(options.subject, comparison.baseline_of(options), policies, shapes, sizes.rounds)

    def run_plan(parent: Path) -> comparison.Outcomes:
        def make(planned: Planned) -> NodesSession:
            tree = options.baseline_tree if planned.side == BASELINE else None
            side, kind = planned.side, planned.kind
            return NodesSession(
                side, kind, planned.policies, planned.shapes, sizes, parent, tree, options.heap
            )

        return comparison.run_sessions(plan, make, lambda _, session: _measure(session, rows, sizes))

    return comparison.run_comparison(
        "nodes3",
        ["python -m bench nodes3", options.row],
        options,
        sizes,
        run_plan,
        required,
        GOALS,
        RATIOS,
        kind="nodes3",
        heap=options.heap,
    )
