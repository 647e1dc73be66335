"""The figures of clients under contention: goodput, rejections, starvation. Pure.

Nobody starves: every client gets at least half of what a client gets on average, and none is ever without a
success for longer than 20 times its clients' mean wait (1 s, where that is longer). All clients do the same,
so their successes differ by luck alone: with 64 successes each, a half is four standard deviations away, and
of 100,000 waits without memory none is 20 times the mean in 4,999 of 5,000 runs. A client that is always
second would miss both.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

from bench.figures.tables import text_table
from bench.load.latency import quantiles

LEAST_SHARE: Final = 0.5
LEAST_SUCCESSES: Final = 64
"""Of a client on average, for its share to be more than luck."""
MOST_MEAN_WAITS: Final = 20.0
FORGIVEN_WAIT_S: Final = 1.0
"""A machine with fewer processors than clients makes everyone wait now and then."""

Figures = dict[str, Any]


def point(clients: list[Figures], seconds: float) -> Figures:
    """All clients' results as figures of one point."""
    successes = [each["successes"] for each in clients]
    mean = sum(successes) / len(successes)
    latencies = array("q", [each for client in clients for each in client["latencies_ns"]])
    return {
        "goodput_per_s": sum(successes) / seconds,
        "refusals_per_success": sum(each["refusals"] for each in clients) / max(1, sum(successes)),
        "successes_per_client": mean,
        "least_share": min(successes) / mean if mean else 0.0,
        "longest_wait_s": max(each["longest_wait_s"] for each in clients),
        "mean_wait_s": seconds / mean if mean else seconds,
        "successes": successes,
        **(quantiles(latencies) if latencies else {}),
    }


def longest_allowed_s(figures: Figures) -> float:
    """The longest time of a client without a success."""
    return max(FORGIVEN_WAIT_S, MOST_MEAN_WAITS * float(figures["mean_wait_s"]))


def starvation(figures: Figures) -> str | None:
    """The reason why a client may have starved; None where none has."""
    if figures["successes_per_client"] < LEAST_SUCCESSES:
        return (
            f"{figures['successes_per_client']:.0f} successes a client are too few to tell shares from luck, "
            f"{LEAST_SUCCESSES} are needed: --seconds"
        )
    if figures["least_share"] < LEAST_SHARE:
        return f"a client had {figures['least_share']:.0%} of its share, {LEAST_SHARE:.0%} is the least"
    most_s = longest_allowed_s(figures)
    if figures["longest_wait_s"] > most_s:
        return f"a client waited {figures['longest_wait_s']:.2f} s for a success, {most_s:.2f} s is the most"
    return None


def table(result: dict[str, Any], style: str = "simple") -> str:
    """A row for each number of hot accounts."""
    heads = ["hot accounts", "transactions/s", "refusals per success", "p50 ms", "p99 ms"]
    heads += ["least share of a client", "longest wait, s", "mean wait, s"]
    rows = [
        [
            f"{row['accounts']:,}",
            f"{row['goodput_per_s']:,.0f}",
            f"{row['refusals_per_success']:.2f}",
            f"{row['p50_ms']:.1f}",
            f"{row['p99_ms']:.1f}",
            f"{row['least_share']:.2f}",
            f"{row['longest_wait_s']:.3f}",
            f"{row['mean_wait_s']:.3f}",
        ]
        for row in result["rows"]
    ]
    return text_table(rows, heads, style)
