"""The picture of a Spark result: reads, writes, and what a small epoch takes. Measures nothing."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bench.figures import pictures
from bench.spark.figures import OURS, PARTITIONS, SINK_SHARE, STOCK, TIMED, milliseconds, rates

COLOURS = {"kafka": "tab:gray", "stock": "tab:blue", "ours": "tab:orange"}


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the picture; the file's ending says its format. Bars are medians over rounds, dots the rounds."""
    figure, (sources, sinks, epochs) = pictures.canvas("spark", 1, 3, (13.0, 4.2))
    lines = {
        "Spark's own, Apache Kafka": (f"source.kafka.{STOCK}", COLOURS["kafka"]),
        "Spark's own, Lockstep": (f"source.lockstep.{STOCK}", COLOURS["stock"]),
        "ours, Lockstep": (f"source.lockstep.{OURS}", COLOURS["ours"]),
    }
    for place, (words, (name, colour)) in enumerate(lines.items()):
        found = [rates(result, f"{name}.{count}") for count in PARTITIONS]
        _bars(sources, [number + 0.25 * (place - 1) for number in range(len(found))], found, colour, words)
    sources.set_xticks(range(len(PARTITIONS)), [f"{count} partition(s)" for count in PARTITIONS])
    sources.set_title("read: records/s", fontsize=10)
    found = [rates(result, f"sink.{name}", SINK_SHARE) for name in (STOCK, OURS)]
    for place, (each, colour) in enumerate(zip(found, (COLOURS["stock"], COLOURS["ours"]), strict=True)):
        _bars(sinks, [place], [each], colour, "")
    sinks.set_xticks(range(2), ["Spark's own", "ours, exactly once"])
    sinks.set_title("written into Lockstep: records/s", fontsize=10)
    for name, words, colour in (
        (f"epoch.{STOCK}", "an epoch, Spark's own sink", COLOURS["stock"]),
        (f"epoch.{TIMED}", "an epoch, ours", COLOURS["ours"]),
        ("commit", "of it our commit", "tab:red"),
    ):
        taken = sorted(milliseconds(result, name))
        if taken:
            shares = [(number + 1) / len(taken) for number in range(len(taken))]
            epochs.step(taken, shares, where="post", label=words, color=colour)
    epochs.set_xlabel("ms", fontsize=8)
    epochs.set_xlim(left=0)
    epochs.set_title("share of small epochs done within", fontsize=10)
    pictures.save(figure, [sources, sinks, epochs], path)


def _bars(panel: Any, places: list[float], groups: list[list[float]], colour: str, words: str) -> None:
    """A bar for each group's median, and its values on it; nothing where there are none."""
    there = [(place, each) for place, each in zip(places, groups, strict=True) if each]
    if there:
        heights = [statistics.median(each) for _, each in there]
        panel.bar([place for place, _ in there], heights, 0.22, color=colour, alpha=0.6, label=words)
    for place, each in there:
        panel.plot([place] * len(each), each, ".", color="black", markersize=4)
