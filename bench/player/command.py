"""`python -m bench player`: seed 000's figures 9 to 13 on this machine, and our recoveries and dummies.

Owns: the command line, and what is kept of a run. Three durable nodes of both kinds, one kind alive at a
time: LogPlayer's delays, and those of plain Kafka, Kafka transactions and two-level Kafka over the same
workload; one node of ours for what is in the log already. `--smoke` is one node, no Kafka, a few seconds:
whether it works.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

from bench import argument_types
from bench.figures import tables as common_tables
from bench.figures.ratios import Goal
from bench.player import tables
from bench.player.points import FULL, GOALS, OPEN, QUICK, RATE_SHARE, RATIOS, SMOKE, Axes
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
    measure,
    plan_sessions,
)
from bench.runner import HEAP, REQUIRED, RUN, Comparison, Options
from bench.settings import NODES_FULL, NODES_QUICK

KIND, ALONE = "player", "player_stalled"
"""Of results: all of it, or `python -m bench player stalled`."""


class Player(Comparison[Planned, PlayerNode | PlayerNodes]):
    """Seed 000's figures 9 to 13 on this machine, and our recoveries and dummies."""

    name = KIND
    options: ClassVar[Options] = {
        "part": {"nargs": "*", "choices": [*PARTS, "all"], "default": "all", "help": "default: all"},
        **RUN,
        **HEAP,
        "--smoke": {"action": "store_true", "help": "one node, no Kafka, a few seconds"},
        "--rate": {"type": argument_types.positive, "help": "transactions a second, open loops"},
        **REQUIRED,
    }
    quick, whole = NODES_QUICK, NODES_FULL
    ratios, goals = RATIOS, GOALS

    def __init__(self, chosen: argparse.Namespace) -> None:
        chosen.vs, chosen.subject = KAFKA, LOCKSTEP
        super().__init__(chosen)
        words = chosen.part if isinstance(chosen.part, list) else [chosen.part]
        self.parts = frozenset(PARTS if "all" in words else words)
        self.axes: Axes = SMOKE if chosen.smoke else QUICK if chosen.quick else FULL
        if chosen.seconds:
            self.axes = replace(self.axes, closed_s=chosen.seconds, open_s=chosen.seconds)
        if chosen.rate:
            self.axes = replace(self.axes, rate=chosen.rate)

    @property
    def kind(self) -> str:
        return ALONE if self.parts == {STALLED} else KIND

    @property
    def kept_name(self) -> str:
        return KIND

    def plan(self) -> Sequence[Planned]:
        if self.chosen.smoke:
            return [Planned(ONE, self.parts, True)]
        return plan_sessions(self.parts, self.sizes.rounds)

    def session(self, planned: Planned) -> PlayerNode | PlayerNodes:
        sizes = NODES_QUICK if self.chosen.smoke else self.sizes
        return make(planned, sizes, self.parent, self.chosen.heap)

    def measure(self, planned: Planned, session: PlayerNode | PlayerNodes) -> None:
        measure(planned, session, self.axes)

    def displayed_goals(self) -> tuple[Goal, ...]:
        return () if self.chosen.smoke else self.goals

    def figures(self, measured: Any) -> dict[str, Any]:
        axes = asdict(self.axes)
        return {"axes": axes, **super().figures(measured), "notes": notes(measured, axes)}

    def table(self, result: dict[str, Any]) -> str:
        ratios = common_tables.table(result) if result["comparison"] else ""
        late = [f"NOT AT ITS RATE: {each}" for each in result["notes"]]
        return "\n\n".join([tables.summary(result), ratios, *late])


def notes(sessions: list[dict[str, Any]], axes: dict[str, Any]) -> list[str]:
    """Open loops that did not keep their rate: their delays are not at equal rates."""
    return [
        f"{block['name']}: {block['figures']['per_s']:.1f} transactions/s of {axes['rate']:g}"
        for session in sessions
        for block in session["blocks"]
        if f"_{OPEN}_" in block["name"] and block["figures"]["per_s"] < RATE_SHARE * axes["rate"]
    ]
