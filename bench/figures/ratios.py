"""From blocks to medians, from medians to ratios, from ratios to goals met or missed.

Owns: what a ratio and a goal are, and how they come from what sessions have measured; which there are, each
comparison says itself. Invariants: a ratio is the subject's median over the baseline's; a figure that rests
on an unproven block is never compared.
"""

from __future__ import annotations

import operator
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.settings import FLUSH, OS

SUBJECT, BASELINE = "subject", "baseline"
ANY = "any"
"""The policy of a figure that does not depend on it: reads, memory, restart."""
UNEQUAL = "durable vs as shipped"
"""In the titles of ratios whose sides do not promise the same."""
NO_POLICY: Final = (ANY, ANY)
"""The policies of a ratio of such figures."""
POLICY_PAIRS: Final = {
    "flush": ((FLUSH, FLUSH), "both flush"),
    "cross": ((FLUSH, OS), UNEQUAL),
    "os": ((OS, OS), "neither flushes"),
}
"""By the end of a ratio's name: the subject's policy and the baseline's, and their words in its title."""

_OPERATORS: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le}


class BadRequirement(ValueError):
    """A --require that cannot be read, or that names no ratio."""


@dataclass(frozen=True)
class Goal:
    """A bound on one ratio."""

    ratio: str
    relation: str
    bound: float

    def met_by(self, value: float) -> bool:
        return _OPERATORS[self.relation](value, self.bound)

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g}"


@dataclass(frozen=True)
class Ratio:
    """A ratio's definition: (figure, policy) of the subject over (figure, policy) of the baseline."""

    name: str
    title: str
    unit: str
    figure: str
    policies: tuple[str, str]
    own: str = ""
    """Set for growth: the baseline is this figure of the same side."""
    bound: float = 0.0
    """Set for what has a bound of its own, in `unit`: the baseline is the bound."""
    against: str = ""
    """Set where the baseline's figure has another name than the subject's."""


_REQUIREMENT = re.compile(r"(?P<ratio>[a-z0-9._]+)(?P<relation><=|>=)(?P<bound>\d+(\.\d+)?)")


def parse_requirement(text: str, ratios: Mapping[str, Ratio], goals: Iterable[Goal]) -> list[Goal]:
    """ "goals" for all `goals`, or one like "produce.flush>=2" of a ratio among `ratios`. BadRequirement."""
    if text == "goals":
        return list(goals)
    match = _REQUIREMENT.fullmatch(text.replace(" ", ""))
    if match is None or match["ratio"] not in ratios:
        raise BadRequirement(
            f"{text!r} is neither 'goals' nor RATIO>=X or RATIO<=X; ratios: {', '.join(ratios)}"
        )
    return [Goal(match["ratio"], match["relation"], float(match["bound"]))]


Values = dict[tuple[str, str, str], list[float]]
"""(side, figure, policy) -> its values, in the order they were measured."""

_OF_ANY_POLICY = frozenset({"consume", "consume_client", "restart", "memory"})
"""Blocks that are kept with the policy of the backlog they found, and do not depend on it."""


def values_of(sessions: list[dict[str, Any]]) -> Values:
    """Every numeric figure of every proven block and of each session's memory."""
    found: Values = {}
    for session in sessions:
        blocks = [*session["blocks"]]
        if session["memory"]:
            blocks.append({"name": "memory", "policy": ANY, "figures": session["memory"], "proven": True})
        for block in blocks:
            if not block["proven"]:
                continue
            policy = ANY if block["name"] in _OF_ANY_POLICY else block["policy"]
            for name, value in block["figures"].items():
                if isinstance(value, int | float):
                    key = (session["side"], f"{block['name']}.{name}", policy)
                    found.setdefault(key, []).append(float(value))
    return found


def medians(rounds: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Each numeric figure's median over the rounds that have it. Args: rounds: figures by name, of each."""
    found: dict[str, list[float]] = {}
    for figures in rounds:
        for name, value in figures.items():
            if isinstance(value, int | float):
                found.setdefault(name, []).append(float(value))
    return {name: statistics.median(values) for name, values in found.items()}


def block_medians(sessions: Iterable[dict[str, Any]], name: str) -> dict[str, float]:
    """The figures of a block of this name, each the median over the sessions; empty where none is proven."""
    blocks = (block for session in sessions for block in session["blocks"] if block["name"] == name)
    return medians(block["figures"] for block in blocks if block["proven"])


def compare(
    sessions: list[dict[str, Any]],
    required: list[Goal],
    shown: tuple[Goal, ...],
    ratios: Mapping[str, Ratio],
) -> list[dict[str, Any]]:
    """One row per ratio both sides have figures for; a required ratio without figures is a missed goal.

    `shown` goals stand beside their ratio; only `required` ones have to be there.
    """
    found = values_of(sessions)
    expected = {goal.ratio: goal for goal in (*shown, *required)}
    needed = {goal.ratio for goal in required}
    rows: list[dict[str, Any]] = []
    for ratio in ratios.values():
        goal = expected.get(ratio.name)
        subject = found.get((SUBJECT, ratio.figure, ratio.policies[0]))
        if ratio.own:
            baseline = found.get((SUBJECT, ratio.own, ratio.policies[0]))
        elif ratio.bound:
            baseline = [ratio.bound]
        else:
            baseline = found.get((BASELINE, ratio.against or ratio.figure, ratio.policies[1]))
        if not subject or not baseline:
            if ratio.name in needed:
                rows.append(
                    {
                        "ratio": ratio.name,
                        "title": ratio.title,
                        "value": None,
                        "goal": str(goal),
                        "met": False,
                    }
                )
            continue
        value = statistics.median(subject) / statistics.median(baseline)
        row: dict[str, Any] = {
            "ratio": ratio.name,
            "title": ratio.title,
            "unit": ratio.unit,
            "subject": statistics.median(subject),
            "baseline": statistics.median(baseline),
            "value": value,
            "subject_values": subject,
            "baseline_values": baseline,
        }
        if ratio.own:
            row["baseline_growth"] = _own_growth(found, ratio)
        if ratio.bound:
            row["bound"] = True
        if goal is not None:
            row |= {"goal": str(goal), "met": goal.met_by(value)}
        rows.append(row)
    return rows


def _own_growth(values: Values, ratio: Ratio) -> float | None:
    """The same growth on the baseline's side, for the reader."""
    grown = values.get((BASELINE, ratio.figure, ratio.policies[1]))
    plain = values.get((BASELINE, ratio.own, ratio.policies[1]))
    return statistics.median(grown) / statistics.median(plain) if grown and plain else None


MORE_IS_BETTER = frozenset({"MB/s", "GB/s", "/s", "requests/s", "records/s", "commits/s", "transactions/s"})
LESS_IS_BETTER = frozenset({"ms", "s", "us", "s/GB", "MB", "KiB"})


def more_is_better(unit: str) -> bool:
    """True if more of it is better. Raises ValueError for a unit without a direction."""
    if unit not in MORE_IS_BETTER | LESS_IS_BETTER:
        raise ValueError(f"is more {unit!r} better?")
    return unit in MORE_IS_BETTER
