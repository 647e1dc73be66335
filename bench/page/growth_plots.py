"""The picture of a growth result: a panel for each axis, logarithmic both ways. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures.pictures import canvas, save
from bench.growth.axes import AXES


def draw(result: dict[str, Any], path: Path) -> None:
    """Each fitted figure over the axis, as a share of its first step's: slope 0 is a level line."""
    figure, panels = canvas("growth", 2, 2, (10.0, 7.0))
    for panel, axis in zip(panels, AXES, strict=True):
        steps = result["steps"].get(axis.name, [])
        for fitted in axis.fitted:
            points = [(step["value"], step["figures"].get(fitted.figure, 0.0)) for step in steps]
            points = [(x, y) for x, y in points if y > 0]
            if points:
                xs, ys = zip(*points, strict=True)
                panel.plot(xs, [y / ys[0] for y in ys], marker="o", markersize=3, label=fitted.unit)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel(axis.words, fontsize=8)
        panel.set_ylabel("times the first step's", fontsize=8)
    save(figure, panels, path)
