"""The section of docs/benchmarks/ on growth. Owns the wording; measures nothing."""

from __future__ import annotations

from typing import Any

from bench.figures.tables import facts, join_parts
from bench.growth.axes import FLAT, RATE
from bench.growth.slopes import EXPLAINED
from bench.growth.steps import disturbed_steps, far_apart, table

PICTURE = "growth.svg"
"""Beside the page: `python -m bench growth --picture docs/growth.svg`."""


def section(result: dict[str, Any]) -> str:
    """The section about the growth of cost."""
    noisy, apart = disturbed_steps(result), far_apart(result)
    steps = result["steps"].get("connections", [])
    closed = any("held_connections" not in step["figures"] for step in steps)
    logs = result["steps"].get("log_gib", [])
    unwritten = [f"{step['value']:,}" for step in logs if "loaded_rss_mb" not in step["figures"]]
    parts = [
        "## How cost grows",
        facts(result),
        f"![How cost grows]({PICTURE})",
        table(result, "github"),
        "*How to read this.* One node that flushes every acknowledged write. Over partitions, connections "
        f"and groups the load is the same at every step, {RATE:,} requests/s of one 1 KB record each in an "
        "open loop: CPU and latency differ by what grew alone; over the log, everything is evicted from the "
        "page cache before the start and before the reads, and the same load is written to it last. A slope "
        f"is that of the line through the logarithms: 0 is flat, 1 linear; up to {FLAT:g} either way is "
        f"called flat, and steeper ones that explain less than {EXPLAINED:g} of the spread (R²) no trend. "
        "*Stays flat* is the project's promise. Figures that are 0 at some step, too small to measure, have "
        "no line.",
        "Over connections, resident MB and the CPU when idle are of a node whose connections had been closed "
        "again: these steps are of before that was mended."
        if closed
        else "",
        f"Nothing was written to the logs of {', '.join(unwritten)} GiB after their reads: these steps are "
        "of before that was measured, and are in no row of such writes."
        if unwritten
        else "",
        "The two rounds of these steps are far apart, so that their figure is of neither: "
        f"{'; '.join(apart)}. Something was waited for once, which is not known; a closed loop would hardly "
        "show it."
        if apart
        else "",
        f"Other work disturbed these steps: {', '.join(noisy)}." if noisy else "",
    ]
    return join_parts(parts)
