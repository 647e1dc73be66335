"""Pictures of kept results: how a figure is begun, finished, and the same file each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def canvas(salt: str, rows: int, columns: int, inches: tuple[float, float]) -> tuple[Any, list[Any]]:
    """A figure and its panels, in reading order. Args: salt: the same result is the same file."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = salt
    figure, grid = pyplot.subplots(rows, columns, figsize=inches, squeeze=False)
    return figure, list(grid.flat)


def save(figure: Any, panels: list[Any], path: Path) -> None:
    """Finish the panels and write the file; its suffix is its format."""
    from matplotlib import pyplot

    for panel in panels:
        panel.grid(visible=True, linewidth=0.3)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
