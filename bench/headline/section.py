"""The first section of docs/benchmarks.md. Owns the wording; measures nothing."""

from __future__ import annotations

from typing import Any

from bench.headline.goals import GOALS, RATIOS
from bench.nodes_session import NODES
from bench.tables import facts, reservations, table, written_table


def section(result: dict[str, Any]) -> str:
    """The figures the project is judged by."""
    judged = [row for row in result["comparison"] if "goal" in row]
    missed = [row for row in judged if not row["met"]]
    sizes = result["sizes"].values()
    small = sorted({f"{each['small_warmup_records']:,}" for each in sizes if "small_warmup_records" in each})
    warmups = [f"{each['client_warmup_records']:,}" for each in sizes if each.get("client_warmup_records")]
    rounds = sorted({each["rounds"] for each in sizes})
    pairs = sorted({len(row["pairs"]) for row in result["comparison"] if "pairs" in row})
    named = {row["ratio"] for row in judged}
    absent = [RATIOS[goal.ratio].title for goal in GOALS if goal.ratio not in named]
    counted = f"{' and '.join(map(str, pairs))} of them"
    if pairs and pairs[0] < rounds[0]:
        counted += f", as a session failed; {' and '.join(map(str, rounds))} were to be"
    parts = [
        "## Headline",
        f"{len(judged) - len(missed)} of {len(GOALS)} goals met. Each ratio is the geometric mean over "
        f"pairs of neighbouring sessions ({counted}), each in a fresh process "
        "and directory, with its 95 % interval (Student's t of the logarithms). *A/A* is how far two "
        "neighbouring sessions of the same broker were apart at most, as a factor: a ratio nearer to 1 than "
        "that says nothing. A question mark: the interval holds the goal's bound, so that another run may "
        "end otherwise. *Durable vs as shipped*: a Lockstep that flushes each acknowledged write against a "
        f"Kafka that flushes none. {NODES} nodes a side share this machine and disk; Kafka's have a heap of "
        f"{result['heap']} each, Lockstep's their default of three log groups. Alone, Kafka has the heap of "
        "1 GB it ships with: resident memory is compared with that, not with the least it would run in. A "
        "session of Kafka's serves both policies one after the other, so that at the kill -9 it has twice "
        "the topics, and one backlog as Lockstep has. The catch-up read finds its backlog in the page cache. "
        "Throughput is that of Kafka's own load tool, whose virtual machine compiles while it sends "
        f"{' or, with more nodes, '.join(warmups) or 'a third as many'} records of 1 KB before those that "
        f"count, and {' or '.join(small) or 'a third as many'} of 100 bytes.",
        f"No figures, and so not met: {'; '.join(absent)}." if absent else "",
        facts(result),
        reservations(result),
        table(result, "github"),
        "### What the headline's blocks asked of the disk and the processor",
        "A block of three nodes begins with n3; its figures are all nodes' together.",
        written_table(result, "github"),
    ]
    if result["failures"]:
        parts.append("Failed: " + "; ".join(text.splitlines()[0] for text in result["failures"]))
    return "\n\n".join(part for part in parts if part) + "\n"
