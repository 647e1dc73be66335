"""`python -m bench headline`: the figures the project is judged by, in one run of at most 40 minutes.

Owns: the command line, the order of sessions, and what is kept: ratios with 95 % intervals over pairs of
sessions, the noise floor of neighbours of one side, and the goals, met or MISSED. One node first, then three;
one side is alive at a time; rounds are mirrored (ABBA). Every latency of the closed loops stays beside the
result, in `raw/RESULT/BLOCK-POLICY-SESSION.i64.gz`, which its block names (`bench.raw`). Exit status as of
`python -m bench`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import argument_types
from bench.figures.ratios import BASELINE, SUBJECT
from bench.headline import work
from bench.headline.goals import GOALS, RATIOS
from bench.headline.sizes import ONE_FULL, ONE_QUICK, THREE_FULL, THREE_QUICK, HeadlineSizes
from bench.raw import RawSamples
from bench.running import comparison
from bench.sessions.cluster import DEFAULT_SHAPES, NODES, NodesSession
from bench.sessions.session import Session
from bench.settings import FLUSH, OS

KIND = "headline"


@dataclass(frozen=True)
class Planned:
    """One session to come."""

    nodes: int
    side: str
    kind: str
    round: int

    @property
    def policies(self) -> tuple[str, ...]:
        """A Lockstep that does not flush is in no headline; Kafka serves both policies in one life."""
        return (FLUSH, OS) if self.kind == "kafka" else (FLUSH,)

    def __str__(self) -> str:
        return f"{self.nodes} x {self.kind} {'+'.join(self.policies)}, round {self.round + 1}"


def plan_sessions(subject: str, baseline: str, nodes: Sequence[int], rounds: int) -> list[Planned]:
    """All rounds of each number of nodes, every second one mirrored: neighbours of one side are A/A pairs."""
    plan: list[Planned] = []
    for count in nodes:
        for number in range(rounds):
            one = [
                Planned(count, BASELINE, baseline, number),
                Planned(count, SUBJECT, subject, number),
            ]
            plan += one if number % 2 == 0 else one[::-1]
    return plan


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench headline", description=__doc__)
    comparison.add_options(parser, quick="at most three minutes: whether it works, not how fast it is")
    comparison.add_heap(parser)
    parser.add_argument("--nodes", type=int, choices=(1, NODES), action="append", help="default: both")
    parser.add_argument("--row", choices=work.ROWS, action="append", help="default: all")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    required = comparison.required_goals(parser, options, RATIOS, GOALS)
    wanted = frozenset(options.row or work.ROWS)
    nodes = [each for each in options.nodes or (1, NODES) if each == 1 or wanted & work.NODES_ROWS]
    if not nodes:
        parser.error(f"three nodes are measured in {' and '.join(sorted(work.NODES_ROWS))} only")
    sizes = _sizes(options)
    plan = plan_sessions(options.subject, comparison.baseline_of(options), nodes, sizes[1].rounds)
    raw = RawSamples()
    return comparison.run_comparison(
        KIND,
        ["python -m bench headline", *argument_types.words(options, ("nodes", "row"))],
        options,
        {str(count): vars(each) for count, each in sizes.items()},
        lambda parent: _run(plan, sizes, wanted, options.heap, parent, raw),
        required,
        GOALS,
        RATIOS,
        intervals=True,
        raw=raw,
        kind=KIND,
        heap=options.heap,
    )


def _sizes(options: argparse.Namespace) -> dict[int, HeadlineSizes]:
    """By number of nodes."""
    chosen = {1: ONE_QUICK, NODES: THREE_QUICK} if options.quick else {1: ONE_FULL, NODES: THREE_FULL}
    changed: dict[str, Any] = {"rounds": options.rounds} if options.rounds else {}
    if options.seconds:
        changed |= {"latency_s": options.seconds}
    return {count: replace(sizes, **changed) for count, sizes in chosen.items()}


def _run(
    plan: Sequence[Planned],
    sizes: dict[int, HeadlineSizes],
    wanted: frozenset[str],
    heap: str,
    parent: Path,
    raw: RawSamples,
) -> comparison.Outcomes:
    def made(planned: Planned) -> Session:
        side, kind, policies = planned.side, planned.kind, planned.policies
        mine = sizes[planned.nodes]
        if planned.nodes == 1:
            return Session(side, kind, policies, mine, parent)
        return NodesSession(side, kind, policies, DEFAULT_SHAPES, mine, parent, heap=heap)

    def make(planned: Planned) -> Session:
        session = made(planned)
        session.keep_raw = partial(raw.add, plan.index(planned) + 1)
        return session

    def measure(planned: Planned, session: Session) -> None:
        if isinstance(session, NodesSession):
            work.three_nodes(session, wanted)
        else:
            work.one_node(session, sizes[planned.nodes], wanted)

    sessions, failures = comparison.run_sessions(plan, make, measure)
    for planned, session in zip(plan, sessions, strict=True):
        session |= {"nodes": planned.nodes, "round": planned.round}
    return sessions, failures
