"""The section of docs/benchmarks/ about seed 001's experiments. Measures nothing."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

from bench.figures.tables import facts, join_parts
from bench.logstore.tables import SEEDS_HEADLINES, summary

PICTURE = "logstore.svg"
"""Beside the page: `python -m bench logstore --plot RESULT.json --picture docs/logstore.svg`."""


def section(result: dict[str, Any]) -> str:
    """Seed 001's figure 7, and ours."""
    cap = result["stream_bytes_per_s"] / 1e6
    axes = result["axes"]
    parts = [
        "## Seed 001's experiments",
        facts(result),
        f"![Seed 001's figures 7a to 7d and pipeline depths]({PICTURE})",
        "*How to read this.* Log groups in processes of their own on this machine, an open-loop client in "
        f"another; every stream is capped at {cap:.0f} MB/s as on the seed's network. One request is one "
        f"atomic batch, of {axes['batch']} payloads where nothing else is said; latency counts from when it "
        "was due. The naive store is made of the same parts and writes every payload to the Raft log and, "
        "once committed, to a second log; the second copy has no flush of its own. The seed states neither "
        "payload sizes nor a flush policy: both policies were run. Lost messages are appends and their "
        "answers, dropped before they are sent.",
        tabulate(list(SEEDS_HEADLINES.items()), headers=["figure", "the seed"], tablefmt="github"),
        summary(result, "github"),
        "*7a*: ours over the naive store's: bytes that the stores wrote (files filled with zeros "
        "included), bytes in their logs, bytes that reached the device, space allocated. *Most CPU*: who "
        "used most of one CPU, and all processes together; the machine is saturated where all together "
        f"use all of its {result['machine']['cpus']} CPUs. Each row is one run of {axes['seconds']:g} s; "
        "more than 100 % of what was offered is what had waited since before it. The last table of each "
        "policy itemises what a replica wrote for a byte of payload in 7c; segments were recycled, nothing "
        "was cleaned.",
    ]
    repeated = sum(bool(run["figures"].get("repeated")) for run in result["runs"])
    if repeated:
        parts.append(f"{repeated} of {len(result['runs'])} runs failed once and were repeated.")
    if result["failures"]:
        parts.append(f"{len(result['failures'])} runs failed twice and are left out.")
    return join_parts(parts)
