"""Pictures of kept results: the options of whoever draws one, and how a figure is the same file each time.

Does not: know what is in a picture; each benchmark's `plots` module has a `draw(result, path)`.
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import Any

from bench import argument_types
from bench.kept import read
from bench.progress import log_progress


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--plot` and `--picture`."""
    parser.add_argument(
        "--plot", type=Path, metavar="RESULT.json", help="draw a kept result, measure nothing"
    )
    parser.add_argument(
        "--picture", type=argument_types.picture, help="where the picture goes (default: beside the result)"
    )


def draw(plots: str, options: argparse.Namespace, result: Path) -> None:
    """Draw a kept result. Args: plots: the module that does, by name, as it is slow to import."""
    path = options.picture or result.with_suffix(".svg")
    importlib.import_module(plots).draw(read(result), path)
    log_progress(f"drawn: {os.path.relpath(path)}")


def canvas(salt: str, rows: int, columns: int, inches: tuple[float, float]) -> tuple[Any, list[Any]]:
    """A figure and its panels, in reading order. Args: salt: the same result is the same file."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = salt
    figure, grid = pyplot.subplots(rows, columns, figsize=inches, squeeze=False)
    return figure, list(grid.flat)


def save(figure: Any, panels: list[Any], path: Path) -> None:
    """Finish the panels and write the file; its ending says its format."""
    from matplotlib import pyplot

    for panel in panels:
        panel.grid(visible=True, linewidth=0.3)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
