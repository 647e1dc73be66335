"""A logstore result in numbers: series for the pictures, tables for readers. Pure.

Owns: which figure of a run is on the seed's axis. Failed runs are left out and counted by the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.figures.tables import text_table

KeptRun = dict[str, Any]
Series = dict[str, list[tuple[float, float]]]

SEEDS_HEADLINES = {
    "7a": "disk writes and space about 0.5 of the naive store's",
    "7b": "throughput does not depend on the batch size",
    "7c": "proportional, then it saturates; 67 MB/s at 4 KB",
    "7d": "throughput at 1 KB does not depend on the number of replicas",
    "pipeline": "two stages per follower; no figures",
}


def runs_of(result: dict[str, Any], experiment: str, flush: bool) -> list[KeptRun]:
    """The good runs of one experiment under one policy."""
    return [
        run
        for run in result["runs"]
        if run["experiment"] == experiment
        and run["store"]["flush"] == flush
        and "error" not in run["figures"]
    ]


def series(runs: list[KeptRun], label: Callable[[KeptRun], str], x: Callable[[KeptRun], float]) -> Series:
    """Throughput in MB/s over `x`, by label."""
    found: Series = {}
    for run in runs:
        found.setdefault(label(run), []).append((x(run), run["figures"]["mb_per_s"]))
    return {name: sorted(points) for name, points in found.items()}


def size_label(run: KeptRun) -> str:
    size = run["load"]["payload_bytes"]
    return f"{size} B" if size < 1024 else f"{size // 1024} KB"


def relative_to_naive(runs: list[KeptRun]) -> dict[int, dict[str, float]]:
    """7a: payload size to ours over naive's, for each measure."""
    measures: dict[str, Callable[[dict[str, Any]], float]] = {
        "written": lambda f: sum(sum(each["bytes_per_payload_byte"].values()) for each in f["replicas"]),
        "log bytes": lambda f: f["log_bytes"],
        "device": lambda f: f["device"]["write_bytes"],
        "space": lambda f: f["allocated_bytes"],
    }
    by_size: dict[int, dict[bool, dict[str, Any]]] = {}
    for run in runs:
        by_size.setdefault(run["load"]["payload_bytes"], {})[run["store"]["naive"]] = run["figures"]
    return {
        size: {name: of(both[False]) / of(both[True]) for name, of in measures.items()}
        for size, both in sorted(by_size.items())
        if len(both) == 2
    }


def _naive_rows(runs: list[KeptRun]) -> list[list[str]]:
    return [
        ["7a", f"{size} B", ", ".join(f"{name} {value:.2f}" for name, value in found.items()), ""]
        for size, found in relative_to_naive(runs).items()
    ]


def _x_of(run: KeptRun) -> str:
    store, load = run["store"], run["load"]
    return {
        "7b": f"{size_label(run)}, batch {load['batch']}",
        "7c": f"{size_label(run)}, offered {load['rate']:,.0f}/s",
        "7d": f"{size_label(run)}, {store['replicas']} replicas",
        "pipeline": f"depth {store['depth'] or 'none'}, loss {store['loss']:.1%}",
    }[run["experiment"]]


def busiest(figures: dict[str, Any]) -> str:
    """The largest user of a CPU, and the use of all together."""
    shares = {"leader": figures["cpu_share"]["leader"], "client": figures["cpu_share"]["client"]}
    followers = figures["cpu_share"]["followers"]
    if followers:
        shares["follower"] = max(followers)
    name = max(shares, key=lambda each: shares[each])
    total = shares["leader"] + shares["client"] + sum(followers)
    return f"{name} {shares[name]:.0%}, all {total:.0%}"


def _throughput_rows(runs: list[KeptRun]) -> list[list[str]]:
    rows = []
    for run in runs:
        figures = run["figures"]
        offered = run["load"]["rate"]
        late = f", p50 {figures['p50_ms']:.2f}, p99 {figures['p99_ms']:.2f} ms" if "p50_ms" in figures else ""
        text = f"{figures['mb_per_s']:.1f} MB/s, {figures['payloads_per_s'] / offered:.0%} of offered{late}"
        rows.append([run["experiment"], _x_of(run), text, busiest(figures)])
    return rows


def written_rows(runs: list[KeptRun]) -> list[list[str]]:
    """Bytes per payload byte by purpose and flushes per commit, of every replica together; device beside."""
    rows = []
    for run in runs:
        replicas = run["figures"]["replicas"]
        purposes = replicas[0]["bytes_per_payload_byte"]
        mean = {
            name: sum(each["bytes_per_payload_byte"][name] for each in replicas) / len(replicas)
            for name in purposes
        }
        commits = sum(each["commits"] for each in replicas)
        flushes = sum(each["flushes"] for each in replicas) / commits if commits else 0.0
        rows.append(
            [
                _x_of(run),
                f"{run['figures']['device_bytes_per_payload_byte_and_replica']:.2f}",
                *(f"{mean[name]:.3f}" for name in purposes),
                f"{flushes:.2f}",
            ]
        )
    return rows


def summary(result: dict[str, Any], style: str = "simple") -> str:
    """Everything that was measured, as tables by flush policy."""
    parts = []
    for flush, words in ((True, "flushed before it is acknowledged"), (False, "not flushed")):
        rows = _naive_rows(runs_of(result, "7a", flush))
        for experiment in ("7b", "7c", "7d", "pipeline"):
            rows += _throughput_rows(runs_of(result, experiment, flush))
        if rows:
            head = ["figure", "", words, "most CPU"]
            parts.append(text_table(rows, head, style))
        steady = runs_of(result, "7c", flush)
        if steady:
            purposes = list(steady[0]["figures"]["replicas"][0]["bytes_per_payload_byte"])
            head = ["per payload byte and replica", "device", *purposes, "flushes/commit"]
            parts.append(text_table(written_rows(steady), head, style))
    return "\n\n".join(parts)
