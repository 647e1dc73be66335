"""The headline in docs/benchmarks.md, and the page of how it was measured. Measures nothing."""

from __future__ import annotations

import statistics
from typing import Any

from bench.figures.tables import facts, reservations, table, with_failures, written_table
from bench.headline.goals import GOALS, RATIOS

PICTURE = "headline.svg"
"""Beside the page: `make bench-page` draws it."""
WHY = "[decision 30](decisions/0030-tried-for-speed.md)"


def _properties(result: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in result.get("producer_properties", {}).items())


def _blocks(nodes: str, sizes: dict[str, Any]) -> str:
    """The length of the blocks of throughput. Args: nodes: their number."""
    measured = sorted({f"{each:,}" for each in sizes["produce_records"].values()})
    words = (
        f"on {'one node' if nodes == '1' else f'{nodes} nodes'} {' or '.join(measured)} records of 1 KB count"
    )
    if sizes.get("client_warmup_records"):
        words += f" after {sizes['client_warmup_records']:,}"
    if nodes == "1" and "small_warmup_records" in sizes:
        words += f", {sizes['small_records']:,} of 100 bytes after {sizes['small_warmup_records']:,}"
    return words


def _how(result: dict[str, Any]) -> list[str]:
    """The notes for readers of the table, a line each."""
    blocks = "; ".join(_blocks(name, each) for name, each in result["sizes"].items())
    return [
        "A session is a fresh process in a fresh directory; the intervals are of 95 % (Student's t of the "
        "pairs' logarithms). Dividing the columns gives a somewhat different number than the ratio.",
        "*Durable vs as shipped*: a Lockstep that flushes each acknowledged write against a Kafka that "
        "flushes none. Most of Kafka's blocks end before the system begins to write back what they wrote "
        "(*device KB/write*, below): what that costs later is in no figure.",
        "*Both flush*: a Kafka with `flush.messages=1` and its defaults; one that "
        "`bench/baselines/tuned.py` tunes, `kafka-tuned-flush`, is measured in the grid alone.",
        f"*Three nodes* a side share this machine and disk; Kafka's have a heap of {result['heap']} each, "
        "Lockstep's their default of three log groups. Kafka acknowledges what all replicas in sync have; "
        "Lockstep what two of three have on their disks, and the third follows a little later "
        "([decision 34](decisions/0034-spares.md)).",
        "*Throughput* is that of Kafka's own load tool with its producer's defaults "
        f"({_properties(result)}) into one partition; its virtual machine compiles meanwhile: {blocks}. With "
        "records of 100 bytes the tool itself takes most of the machine (*client, of a CPU*, below) unless "
        "it waits for Kafka's flushes: *durable vs as shipped* compares little but clients there.",
        "*Producers* are connections of a client of our own; each sends one record of 1 KB a request and "
        "waits for the answer. In such closed loops a stall of 300 ms is one sample for each producer and in "
        "no p99 (*longest answer*, below), and with 16 and 64 producers each broker is at its own highest "
        "rate. Latencies at equal rates, counted from when a request was due, are those of `rate-1kb` in "
        f"[the grid](benchmarks/grid.md).{_raw(result)}",
        f"The *fan-out*{_fan_out(result)} is read from memory as it is written{_fetches(result)}. The "
        "*catch-up read* finds its backlog in the page cache. *Memory*: alone, Kafka has the heap of "
        "1 GB it ships with, not the least it would run in. A session of Kafka's serves both policies one "
        "after the other, so that at the *kill -9* it has twice the topics, and one backlog as Lockstep has, "
        "which was written without flushes.",
        f"*kill -9 to first ack* counts from the start of the new process.{_first_starts(result)} A Kafka as "
        "shipped does not register a broker again before `broker.session.timeout.ms`, 9 s, has passed: most "
        f"of its time is this timer, not work ({WHY} has the two apart).",
    ]


def _raw(result: dict[str, Any]) -> str:
    """The place of the single latencies, as a sentence; empty where none was kept."""
    blocks = [block for session in result["sessions"] for block in session["blocks"] if "raw" in block]
    if not blocks:
        return ""
    samples = sum(block["raw"]["samples"] for block in blocks)
    return (
        f" Each of the {samples:,} latencies is kept in nanoseconds, a file a block, on the machine that "
        "measured; the result has the files' names and SHA-256."
    )


def _fan_out(result: dict[str, Any]) -> str:
    """The note on the warm-up; empty where it lasted until the compiler was quiet."""
    blocks = [
        block for session in result["sessions"] for block in session["blocks"] if block["name"] == "fan_out"
    ]
    if all("compiler_cpu_share" in block for block in blocks):
        return ""
    return f", which was warmed up by one small pass only (Kafka was slower for it: {WHY}),"


def _fetches(result: dict[str, Any]) -> str:
    """The size of a fetch response of the fan-out, in brackets; empty where it was not kept."""
    sizes: dict[str, list[float]] = {}
    for session in result["sessions"]:
        for block in session["blocks"]:
            if block["name"] == "fan_out" and block["figures"].get("fetches"):
                kilobytes = block["figures"]["bytes"] / block["figures"]["fetches"] / 1000
                sizes.setdefault(result[session["side"]], []).append(kilobytes)
    if not sizes:
        return ""
    said = ", ".join(f"{name} {statistics.median(each):,.0f} KB" for name, each in sorted(sizes.items()))
    return f" (readers ask with Kafka's default, fetch.min.bytes=1; answered a fetch, median: {said})"


def _first_starts(result: dict[str, Any]) -> str:
    """The duration of the baseline's first starts, as a sentence; empty where none was kept."""
    took = [
        session["start_s"]
        for session in result["sessions"]
        if session["side"] == "baseline" and session.get("nodes") == 1 and "start_s" in session
    ]
    return f" First starts of Kafka's sessions took {min(took):.1f} to {max(took):.1f} s." if took else ""


def _pair_count(result: dict[str, Any]) -> str:
    """The number of pairs of the ratios."""
    rounds = sorted({each["rounds"] for each in result["sizes"].values()})
    pairs = sorted({len(row["pairs"]) for row in result["comparison"] if "pairs" in row})
    counted = f"{' and '.join(map(str, pairs))} of them"
    if pairs and pairs[0] < rounds[0]:
        counted += f", as a session failed; {' and '.join(map(str, rounds))} were to be"
    return counted


def met(result: dict[str, Any]) -> str:
    """The number of goals met, and those without figures."""
    judged = [row for row in result["comparison"] if "goal" in row]
    named = {row["ratio"] for row in judged}
    absent = [RATIOS[goal.ratio].title for goal in GOALS if goal.ratio not in named]
    said = f"{sum(row['met'] for row in judged)} of {len(GOALS)} goals met; what is missed, and why: {WHY}."
    return said + (f" No figures, and so not met: {'; '.join(absent)}." if absent else "")


def section(result: dict[str, Any]) -> str:
    """The figures the project is judged by."""
    parts = [
        "## Headline",
        f"![Every ratio with its interval, and the goals]({PICTURE})",
        table(result, "github"),
        "*How to read this*: a ratio is the geometric mean over pairs of neighbouring sessions "
        f"({_pair_count(result)}), the columns before it are medians over all sessions. *A/A* is how far two "
        "sessions of the same broker were apart at most, as a factor: a ratio nearer to 1 says nothing. A "
        "question mark: the interval holds the goal's bound. In the picture right is better, whatever the "
        "unit, lines are the intervals, red marks the goals. How it was measured, and what each block cost: "
        "[headline](benchmarks/headline.md).",
    ]
    return with_failures(parts, result)


def details(result: dict[str, Any]) -> str:
    """The method of the headline, and the cost of its blocks."""
    parts = [
        "## How the headline was measured",
        "\n".join(f"- {line}" for line in _how(result)),
        facts(result),
        reservations(result),
        "## What the headline's blocks asked of the disk and the processor",
        written_table(result, "github"),
        "A block of three nodes begins with n3; its figures are all nodes' together. *fill* writes the "
        "backlog that is read. A write is a request that was acknowledged (of the load tool: 16 KB), a "
        "flush what the device was asked for, and *ms/flush* the device's own part of it: whoever waits "
        "for one waits for the file system, too. Kafka flushes a log's two indexes with it.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
