"""The section of docs/benchmarks/ on Spark. Owns the wording; measures nothing."""

from __future__ import annotations

import statistics
from typing import Any

from tabulate import tabulate

from bench.figures.tables import facts, interval, join_parts, number, verdict
from bench.spark.figures import STOCK, TIMED, highest, milliseconds, rows, seconds_of

PICTURE = "spark.svg"
"""Beside the page: `python -m bench spark --plot RESULT.json --picture docs/spark.svg`."""
HEADS = ["", "the first", "the other", "ratio", "95 %", "goal", ""]


def table(result: dict[str, Any], style: str = "simple") -> str:
    """A row for each ratio: rates, ratio, interval, goal."""
    lines = []
    for row in rows(result):
        rates = [number(row.get("subject")), number(row.get("baseline"))]
        span, _ = interval(row)
        lines.append([row["title"], *rates, f"{row['value']:.2f}", span, row["goal"], verdict(row)])
    return tabulate(lines, headers=HEADS, tablefmt=style, disable_numparse=True)


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
    return tabulate(lines, headers=heads, tablefmt=style, disable_numparse=True) if lines else ""


def with_comparison(result: dict[str, Any]) -> dict[str, Any]:
    """With all of its ratios, as other kinds keep them."""
    return {**result, "comparison": rows(result)}


def against_kafka(result: dict[str, Any]) -> dict[str, Any]:
    """The comparison with Apache Kafka: the ratios whose other side it is."""
    of_kafka = [row for row in rows(result) if row["of_kafka"]]
    return {"kind": "spark", "subject": "lockstep", "baseline": "kafka", "comparison": of_kafka}


def section(result: dict[str, Any]) -> str:
    """Spark over both brokers, and both of our ends beside Spark's own."""
    words = {"command": f"python -m bench spark --rounds {result['rounds']}", "started": "time not kept"}
    pairs = {len(each) for name, each in seconds_of(result).items() if name.startswith("source.")}
    parts = [
        "## Spark",
        facts({**words, **result}),
        f"![Spark: reads, writes, epochs]({PICTURE})",
        table(result, "github"),
        f"*How to read this.* One Spark session of two processors (`local[2]`), {result['records']:,} "
        f"records of {result['record_bytes']:,} bytes on one node, read as a batch and written as one (a "
        "half of them), records a second. Brokers alternate (ABBA), one alive at a time, in fresh "
        "directories; Apache Kafka has the heap of 1 GB it ships with. The first read from a broker just "
        "started warms both it and Spark up and is not counted; there is no other warm-up, so that Kafka's "
        "compiler threads need not be quiet. What is read was written just before: it comes from the page "
        f"cache. A ratio is the geometric mean over rounds ({_pair_count(pairs)} of reads; both sinks in "
        "turn into one broker), with its 95 % interval (Student's t of the logarithms), which is wide for so "
        "few; a question mark: it holds the goal's bound.",
    ]
    small = epochs(result, "github")
    if small:
        parts += [
            "A stream's epochs of 1,000 small rows. The commit is not all that exactly-once takes: our "
            "sink's writers are Python, started by Spark for each epoch, and stage their rows first.",
            small,
        ]
    return join_parts(parts)


def _pair_count(pairs: set[int]) -> str:
    return " and ".join(map(str, sorted(pairs))) if pairs else "none"
