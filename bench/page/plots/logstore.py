"""The figures of a logstore result as one picture, laid out as seed 001's figure 7. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures import pictures
from bench.logstore.tables import KeptRun, Series, relative_to_naive, runs_of, series, size_label

COLUMNS = 3
STYLES = {True: "-", False: "--"}
WORDS = {True: "flush", False: "os"}


def _lines(axes: Any, found: Series, style: str, words: str) -> None:
    for place, (name, points) in enumerate(found.items()):
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, style, color=f"C{place}", marker="o", markersize=3, label=f"{name}, {words}")


def _throughput(axes: Any, result: dict[str, Any], experiment: str, key: str, part: str) -> None:
    for flush in (True, False):
        runs = runs_of(result, experiment, flush)
        _lines(axes, series(runs, size_label, lambda run: run[part][key]), STYLES[flush], WORDS[flush])
    axes.set_ylabel("MB/s")
    axes.set_ylim(bottom=0)


def _relative(axes: Any, result: dict[str, Any]) -> None:
    for flush in (True, False):
        found = relative_to_naive(runs_of(result, "7a", flush))
        for place, name in enumerate(("written", "device", "space")):
            values = [each[name] for each in found.values()]
            if values:
                labels = [str(size) for size in found]
                words = f"{name}, {WORDS[flush]}"
                axes.plot(labels, values, STYLES[flush], color=f"C{place}", marker="o", label=words)
    axes.axhline(0.5, color="gray", linewidth=0.8, linestyle=":", label="the seed: about 0.5")
    axes.set_ylim(0, 1.1)
    axes.set_title("7a. relative to the naive store", fontsize=10)
    axes.set_xlabel("payload bytes")


def _replicas(axes: Any, result: dict[str, Any]) -> None:
    _throughput(axes, result, "7d", "replicas", "store")
    runs = runs_of(result, "7d", True) or runs_of(result, "7d", False)
    total = series(runs, size_label, lambda run: run["store"]["replicas"])
    for place, points in enumerate(total.values()):
        xs = [x for x, _ in points]
        axes.plot(xs, [x * y for x, y in points], ":", color=f"C{place}", linewidth=1)
    axes.set_title("7d. replicas (dotted: the leader's total, N x T)", fontsize=10)
    axes.set_xlabel("replicas")


def _pipeline(axes: Any, result: dict[str, Any]) -> None:
    def loss(run: KeptRun) -> str:
        return f"loss {run['store']['loss']:.1%}"

    for flush in (True, False):
        runs = runs_of(result, "pipeline", flush)
        found = series(runs, loss, lambda run: run["store"]["depth"])
        _lines(axes, found, STYLES[flush], WORDS[flush])
    axes.set_title("pipeline depth, messages lost", fontsize=10)
    axes.set_xlabel("requests in flight per follower (0: no pipeline)")
    axes.set_ylabel("MB/s")
    axes.set_ylim(bottom=0)


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the picture; the file's ending says its format."""
    figure, panels = pictures.canvas("logstore", 2, COLUMNS, (15, 9))
    _relative(panels[0], result)
    _throughput(panels[1], result, "7b", "batch", "load")
    panels[1].set_title(f"7b. batch size at {result['axes']['batch_rate']:,} payloads/s", fontsize=10)
    panels[1].set_xlabel("payloads in a batch")
    panels[1].set_xscale("log", base=2)
    _throughput(panels[2], result, "7c", "rate", "load")
    panels[2].axhline(67, color="gray", linewidth=0.8, linestyle=":", label="the seed: 67 MB/s at 4 KB")
    panels[2].set_title("7c. offered load", fontsize=10)
    panels[2].set_xlabel("payloads/s")
    panels[2].set_xscale("log", base=2)
    panels[2].set_ylim(auto=True)
    panels[2].set_yscale("log")
    panels[2].autoscale(axis="y")
    _replicas(panels[3], result)
    _pipeline(panels[4], result)
    panels[5].axis("off")
    pictures.save(figure, panels[:5], path)
