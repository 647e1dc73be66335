"""From blocks to medians, from medians to ratios, from ratios to goals met or missed.

Owns: which figure of which block is compared under which pair of policies, and the project's goals.
Invariants: a ratio is the subject's median over the baseline's; equal policies are paired, and the pairs
that are not equal are named "cross" (the subject flushes, the baseline as shipped does not). A figure that
rests on an unproven block is never compared.
"""

from __future__ import annotations

import operator
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.settings import FLUSH, OS

SUBJECT, BASELINE = "subject", "baseline"
ANY = "any"
"""The policy of a figure that does not depend on it: reads, memory, restart."""

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
    """What is divided by what: (figure, policy) of the subject over (figure, policy) of the baseline."""

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


def _ratios() -> Iterable[Ratio]:
    both, free, cross, none = (FLUSH, FLUSH), (OS, OS), (FLUSH, OS), (ANY, ANY)
    yield Ratio("produce.flush", "throughput, both flush", "MB/s", "produce.mb_per_s", both)
    yield Ratio("produce.cross", "throughput, durable vs as shipped", "MB/s", "produce.mb_per_s", cross)
    yield Ratio("produce.os", "throughput, neither flushes", "MB/s", "produce.mb_per_s", free)
    for quantile in ("p50", "p99"):
        for name, policies in (("flush", both), ("cross", cross), ("os", free)):
            yield Ratio(
                f"latency1.{quantile}.{name}",
                f"1 producer, {quantile}, {_WORDS[name]}",
                "ms",
                f"latency1.{quantile}_ms",
                policies,
            )
    for name, policies in (("flush", both), ("cross", cross), ("os", free)):
        words = f"16 producers, {_WORDS[name]}"
        yield Ratio(f"latency16.rate.{name}", words, "requests/s", "latency16.requests_per_s", policies)
        yield Ratio(f"latency16.p99.{name}", f"{words}, p99", "ms", "latency16.p99_ms", policies)
        words = f"16 librdkafka producers, {_WORDS[name]}"
        yield Ratio(f"clients16.rate.{name}", words, "requests/s", "clients16.requests_per_s", policies)
        yield Ratio(f"clients16.p99.{name}", f"{words}, p99", "ms", "clients16.p99_ms", policies)
    yield Ratio("commits.flush", "offset commits, both flush", "commits/s", "commits.requests_per_s", both)
    yield Ratio("commits.p99.flush", "offset commits, both flush, p99", "ms", "commits.p99_ms", both)
    for name, words in (("start", "starts"), ("join", "gets one more"), ("leave", "loses one")):
        title = f"group of 50 {words}: seconds to settle"
        yield Ratio(f"rebalance.{name}", title, "s", f"rebalance.{name}_s", both)
    yield Ratio(
        "members.memory",
        "memory of one of 10,000 members, connection included, against 40 KiB",
        "KiB",
        "members.kib_each",
        both,
        bound=40.0,
    )
    yield Ratio("consume.raw", "catch-up read", "GB/s", "consume.gb_per_s", none)
    yield Ratio("consume.client", "catch-up read with librdkafka", "MB/s", "consume_client.mb_per_s", none)
    yield Ratio("memory.max", "resident memory, highest", "MB", "memory.rss_max_mb", none)
    yield Ratio("memory.median", "resident memory, median", "MB", "memory.rss_median_mb", none)
    yield Ratio("restart", "kill -9 to first ack", "s", "restart.first_ack_s", none)
    for name, words in (("one", "1 producer"), ("sixteen", "16 producers")):
        base = "latency1" if name == "one" else "latency16"
        title = f"16 partitions, {words}, p50, both flush"
        yield Ratio(f"partitions.{name}", title, "ms", f"partitions_{name}.p50_ms", both)
        yield Ratio(
            f"growth.{name}",
            f"own growth from 1 to 16 partitions, {words}, p50",
            "ms",
            f"partitions_{name}.p50_ms",
            both,
            own=f"{base}.p50_ms",
        )
    yield Ratio("partitions.span", "one request over 16 partitions, p50", "ms", "span16.p50_ms", both)
    yield Ratio(
        "growth.span",
        "own growth, 16 records in one batch to 16 batches, p50",
        "ms",
        "span16.p50_ms",
        both,
        own="span1.p50_ms",
    )


_WORDS = {"flush": "both flush", "cross": "durable vs as shipped", "os": "neither flushes"}
RATIOS = {ratio.name: ratio for ratio in _ratios()}

GOALS = tuple(
    Goal(*each)
    for each in (
        ("produce.flush", ">=", 2.0),
        ("produce.cross", ">=", 0.9),
        ("produce.os", ">=", 1.6),
        ("latency1.p50.flush", "<=", 0.65),
        ("latency1.p99.flush", "<=", 0.75),
        ("latency16.rate.flush", ">=", 4.0),
        ("latency16.p99.flush", "<=", 0.2),
        ("latency16.rate.cross", ">=", 0.9),
        ("consume.raw", ">=", 1.0),
        ("memory.max", "<=", 0.15),
        ("restart", "<=", 0.2),
        ("growth.one", "<=", 1.3),
        ("growth.sixteen", "<=", 1.3),
        ("commits.flush", ">=", 2.0),
        ("rebalance.start", "<=", 1.0),
        ("rebalance.join", "<=", 1.0),
        ("rebalance.leave", "<=", 1.0),
        ("members.memory", "<=", 1.0),
    )
)
"""What the project wants to show for one node against a warmed-up Apache Kafka 4.3.1."""

_REQUIREMENT = re.compile(r"(?P<ratio>[a-z0-9.]+)(?P<relation><=|>=)(?P<bound>\d+(\.\d+)?)")


def parse_requirement(
    text: str, ratios: Mapping[str, Ratio] = RATIOS, goals: Iterable[Goal] = GOALS
) -> list[Goal]:
    """ "goals" for all of the project's goals, or one like "produce.flush>=2". BadRequirement."""
    if text == "goals":
        return list(goals)
    match = _REQUIREMENT.fullmatch(text.replace(" ", ""))
    if match is None or match["ratio"] not in ratios:
        raise BadRequirement(
            f"{text!r} is neither 'goals' nor RATIO>=X or RATIO<=X; ratios: {', '.join(ratios)}"
        )
    return [Goal(match["ratio"], match["relation"], float(match["bound"]))]


Figures = dict[tuple[str, str, str], list[float]]
"""(side, figure, policy) -> its values, in the order they were measured."""

_POLICY_FREE = frozenset({"consume", "consume_client", "restart", "memory"})


def figures_of(sessions: list[dict[str, Any]]) -> Figures:
    """Every numeric figure of every proven block and of each session's memory."""
    figures: Figures = {}
    for session in sessions:
        blocks = [*session["blocks"]]
        if session["memory"]:
            blocks.append({"name": "memory", "policy": ANY, "figures": session["memory"], "proven": True})
        for block in blocks:
            if not block["proven"]:
                continue
            policy = ANY if block["name"] in _POLICY_FREE else block["policy"]
            for name, value in block["figures"].items():
                if isinstance(value, int | float):
                    key = (session["side"], f"{block['name']}.{name}", policy)
                    figures.setdefault(key, []).append(float(value))
    return figures


def compare(
    sessions: list[dict[str, Any]],
    required: list[Goal],
    shown: tuple[Goal, ...] = (),
    ratios: Mapping[str, Ratio] = RATIOS,
) -> list[dict[str, Any]]:
    """One row per ratio both sides have figures for; a required ratio without figures is a missed goal.

    `shown` goals stand beside their ratio; only `required` ones have to be there.
    """
    figures = figures_of(sessions)
    wanted = {goal.ratio: goal for goal in (*shown, *required)}
    needed = {goal.ratio for goal in required}
    rows: list[dict[str, Any]] = []
    for ratio in ratios.values():
        goal = wanted.get(ratio.name)
        subject = figures.get((SUBJECT, ratio.figure, ratio.policies[0]))
        if ratio.own:
            baseline = figures.get((SUBJECT, ratio.own, ratio.policies[0]))
        elif ratio.bound:
            baseline = [ratio.bound]
        else:
            baseline = figures.get((BASELINE, ratio.against or ratio.figure, ratio.policies[1]))
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
            row["baseline_growth"] = _own_growth(figures, ratio)
        if ratio.bound:
            row["bound"] = True
        if goal is not None:
            row |= {"goal": str(goal), "met": goal.met_by(value)}
        rows.append(row)
    return rows


def _own_growth(figures: Figures, ratio: Ratio) -> float | None:
    """The same growth on the baseline's side, for the reader."""
    grown = figures.get((BASELINE, ratio.figure, ratio.policies[1]))
    plain = figures.get((BASELINE, ratio.own, ratio.policies[1]))
    return statistics.median(grown) / statistics.median(plain) if grown and plain else None
