"""`python -m bench player`: seed 000's figures 9 to 13 on this machine, and our recoveries and dummies.

Owns: the command line, and what is kept of a run. Three durable nodes of both kinds, one kind alive at a
time: LogPlayer's delays, and those of plain Kafka, Kafka transactions and two-level Kafka over the same
workload; one node of ours for what is in the log already. `--smoke` is one node, no Kafka, a few seconds:
whether it works. `--plot RESULT.json` draws a kept result again without measuring. Exit status: 0; 1 when a
round failed or a durability was not proven; 3 when a required ratio was missed (`--require goals`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench import argument_types
from bench.exit_status import EXIT_FAILED
from bench.figures import pictures
from bench.figures.ratios import compare
from bench.figures.tables import table
from bench.kept import keep
from bench.player import section, tables
from bench.player.points import FULL, OPEN, QUICK, SMOKE, Axes
from bench.player.ratios import GOALS, RATE_SHARE, RATIOS
from bench.player.sessions import (
    KAFKA,
    LOCKSTEP,
    ONE,
    PARTS,
    STALLED,
    Planned,
    PlayerNode,
    PlayerNodes,
    make,
    plan_sessions,
)
from bench.player.sessions import measure as measure_session
from bench.running import comparison
from bench.settings import NODES_FULL, NODES_QUICK, Sizes

PLOTS = "bench.player.plots"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench player", description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*PARTS, "all"], default="all", help="default: all")
    comparison.add_run_options(parser, quick="few points, short blocks and a short warm-up")
    comparison.add_heap(parser)
    parser.add_argument("--smoke", action="store_true", help="one node, no Kafka, a few seconds")
    parser.add_argument("--rate", type=argument_types.positive, help="transactions a second, open loops")
    parser.add_argument("--require", action="append", default=[], metavar="RATIO<=X", help="or 'goals'")
    pictures.add_options(parser)
    return parser


def _axes(options: argparse.Namespace) -> Axes:
    axes = SMOKE if options.smoke else QUICK if options.quick else FULL
    if options.seconds:
        axes = replace(axes, closed_s=options.seconds, open_s=options.seconds)
    return replace(axes, rate=options.rate) if options.rate else axes


def _words(options: argparse.Namespace, parts: frozenset[str]) -> str:
    words = ["python -m bench player", *(each for each in PARTS if each in parts and parts != {*PARTS})]
    words += argument_types.words(options, ("smoke", "quick", "rounds", "seconds", "rate", "require"))
    return " ".join([*words, *comparison.heap_words(options)])


def notes(sessions: list[dict[str, Any]], axes: dict[str, Any]) -> list[str]:
    """Open loops that did not keep their rate: their delays are not at equal rates."""
    return [
        f"{block['name']}: {block['figures']['per_s']:.1f} transactions/s of {axes['rate']:g}"
        for session in sessions
        for block in session["blocks"]
        if f"_{OPEN}_" in block["name"] and block["figures"]["per_s"] < RATE_SHARE * axes["rate"]
    ]


def kind_of(parts: frozenset[str]) -> str:
    """The kind of a kept result, by which `bench.page` finds it."""
    return section.ALONE if parts == {STALLED} else section.KIND


def _plan(options: argparse.Namespace, parts: frozenset[str], sizes: Sizes) -> list[Planned]:
    return [Planned(ONE, parts, True)] if options.smoke else plan_sessions(parts, sizes.rounds)


def _summary(result: dict[str, Any]) -> str:
    ratios = table(result) if result["comparison"] else ""
    return "\n\n".join(
        [tables.summary(result), ratios, *(f"NOT AT ITS RATE: {each}" for each in result["notes"])]
    )


def main(arguments: Sequence[str]) -> int:
    """Measure and draw; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.plot:
        pictures.draw(PLOTS, options, options.plot)
        return 0
    required = comparison.required_goals(parser, options, RATIOS, GOALS)
    chosen = options.part if isinstance(options.part, list) else [options.part]
    parts = frozenset(PARTS if "all" in chosen else chosen)
    axes = _axes(options)
    sizes = NODES_QUICK if options.quick or options.smoke else NODES_FULL
    sizes = replace(sizes, rounds=options.rounds or sizes.rounds)

    def run(parent: Path) -> comparison.Outcomes:
        def measure(planned: Planned, session: PlayerNode | PlayerNodes) -> None:
            measure_session(planned, session, axes)

        plan = _plan(options, parts, sizes)
        return comparison.run_sessions(plan, lambda each: make(each, sizes, parent, options.heap), measure)

    found = comparison.perform(options, run)
    if found is None:
        return EXIT_FAILED
    result = {
        "format": 1,
        "kind": kind_of(parts),
        "command": _words(options, parts),
        "subject": LOCKSTEP,
        "baseline": KAFKA,
        "axes": asdict(axes),
        "sizes": vars(sizes),
        "heap": options.heap,
        "comparison": compare(found["sessions"], required, () if options.smoke else GOALS, RATIOS),
        "notes": notes(found["sessions"], asdict(axes)),
        **found,
    }
    path = keep(result, options.out, "player")
    if options.json:
        print(
            json.dumps({key: result[key] for key in ("command", "comparison", "notes", "failures")}, indent=1)
        )
    else:
        print(_summary(result))
    pictures.draw(PLOTS, options, path)
    return comparison.exit_status(result, frozenset(goal.ratio for goal in required))
