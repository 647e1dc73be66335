"""From seconds to ratios: the report of `python -m bench spark`, and the project's goals. Pure.

Owns: what is divided by what. Seconds are kept by round (of the sinks: by turn), and what is divided are
the medians of one round, neighbours in time; a ratio is the geometric mean over the rounds, with its 95 %
interval (`bench.figures.intervals`). Invariant: a read that warms a broker up is in no figure.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any, Final

from bench.figures.intervals import interval_of
from bench.figures.ratios import Goal
from bench.figures.tables import interval, number, text_table, verdict

STOCK: Final = "kafka"
"""Spark's own source and sink, by the name of their format."""
OURS: Final = "lockstep"
TIMED: Final = "timed-lockstep"
"""Our sink, with its commits timed."""
PARTITIONS: Final = (1, 8)
SINK_SHARE: Final = 2
"""The sinks write one such part of the records that are read."""
COMMIT_GOAL: Final = Goal("commit_ms", "<=", 50.0)

Row = dict[str, Any]
Seconds = dict[str, list[list[float]]]
"""By what was done: a list for each round."""


@dataclass(frozen=True)
class RateRatio:
    """The rate of one thing over that of another."""

    name: str
    title: str
    sides: tuple[str, str]
    """In words."""
    seconds: tuple[str, str]
    """Their names among the seconds."""
    goal: Goal
    share: int = 1
    """One such part of the records is what was moved."""
    of_kafka: bool = False
    """True if the other side is Apache Kafka: else both are Lockstep, and it is Spark's own code."""


def _ratios() -> list[RateRatio]:
    found = []
    for count in PARTITIONS:
        words = f"{count} partition{'s' if count > 1 else ''}"
        stock = f"source.lockstep.{STOCK}.{count}"
        title = f"Spark's own source, {words}: from Lockstep over from Apache Kafka"
        name = f"source.stock.{count}"
        sides = ("from Lockstep", "from Apache Kafka")
        pair = (stock, f"source.kafka.{STOCK}.{count}")
        found.append(RateRatio(name, title, sides, pair, Goal(name, ">=", 1.0), of_kafka=True))
        title = f"from Lockstep, {words}: our source over Spark's own"
        name = f"source.ours.{count}"
        pair = (f"source.lockstep.{OURS}.{count}", stock)
        found.append(RateRatio(name, title, ("ours", "Spark's own"), pair, Goal(name, ">=", 0.8)))
    title = "into Lockstep: our exactly-once sink over Spark's own"
    sides = ("ours", "Spark's own")
    pair = (f"sink.{OURS}", f"sink.{STOCK}")
    found.append(RateRatio("sink", title, sides, pair, Goal("sink", ">=", 0.7), SINK_SHARE))
    return found


RATIOS: Final = tuple(_ratios())


def rates(result: dict[str, Any], name: str, share: int = 1) -> list[float]:
    """Records a second of each round's median. Args: name: among the seconds."""
    records = result["records"] // share
    return [records / statistics.median(each) for each in result["seconds"].get(name, []) if each]


def rows(result: dict[str, Any]) -> list[Row]:
    """A row for each ratio that both sides were measured for, and one for a commit."""
    found: list[Row] = []
    for ratio in RATIOS:
        subject, baseline = (rates(result, name, ratio.share) for name in ratio.seconds)
        pairs = [mine / theirs for mine, theirs in zip(subject, baseline, strict=False)]
        if not pairs:
            continue
        found_interval = interval_of(pairs)
        met = ratio.goal.met_by(found_interval.value)
        ends = [end for end in (found_interval.low, found_interval.high) if end is not None]
        found.append(
            {
                "ratio": ratio.name,
                "title": ratio.title,
                "sides": ratio.sides,
                "unit": "records/s",
                "subject": statistics.median(subject),
                "baseline": statistics.median(baseline),
                "value": found_interval.value,
                "low": found_interval.low,
                "high": found_interval.high,
                "pairs": pairs,
                "noise": None,
                "goal": str(ratio.goal),
                "met": met,
                "sure": bool(ends) and all(ratio.goal.met_by(end) == met for end in ends),
                "of_kafka": ratio.of_kafka,
            }
        )
    commits = milliseconds(result, "commit")
    if commits:
        value = statistics.median(commits)
        found.append(
            {
                "ratio": COMMIT_GOAL.ratio,
                "title": "a commit of our sink, median, ms",
                "value": value,
                "goal": str(COMMIT_GOAL),
                "met": COMMIT_GOAL.met_by(value),
                "of_kafka": False,
            }
        )
    return found


def milliseconds(result: dict[str, Any], name: str) -> list[float]:
    """Every single one of that name."""
    return [value * 1000 for each in result["seconds"].get(name, []) for value in each]


def highest(values: list[float], share: float) -> float:
    """The nearest-rank quantile. ValueError without values."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def table(result: dict[str, Any], style: str = "simple") -> str:
    """A row for each ratio: rates, ratio, interval, goal."""
    heads = ["", "the first", "the other", "ratio", "95 %", "goal", ""]
    lines = []
    for row in rows(result):
        figures = [number(row.get("subject")), number(row.get("baseline")), f"{row['value']:.2f}"]
        lines.append([row["title"], *figures, interval(row)[0], row["goal"], verdict(row)])
    return text_table(lines, heads, style)


def epochs(result: dict[str, Any], style: str) -> str:
    """The duration of a small epoch with either sink, and of the commit within ours; empty where none was
    run."""
    names = {
        "an epoch, Spark's own sink": f"epoch.{STOCK}",
        "an epoch, our sink": f"epoch.{TIMED}",
        "of it the commit": "commit",
    }
    lines = []
    for words, name in names.items():
        taken = milliseconds(result, name)
        if taken:
            shown = (statistics.median(taken), highest(taken, 0.9), max(taken))
            lines.append([words, len(taken), *(f"{value:.1f}" for value in shown)])
    heads = ["", "of them", "p50 ms", "p90 ms", "highest ms"]
    return text_table(lines, heads, style)


def against_kafka(result: dict[str, Any]) -> dict[str, Any]:
    """The comparison with Apache Kafka: the ratios whose other side it is."""
    of_kafka = [row for row in rows(result) if row["of_kafka"]]
    return {"kind": "spark", "subject": "lockstep", "baseline": "kafka", "comparison": of_kafka}
