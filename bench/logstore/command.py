"""`python -m bench logstore`: seed 001's figures 7a to 7d, and pipeline depths, measured here.

Owns: the command line and what is kept of a run. The kept JSON has every run's figures; `--plot RESULT.json`
draws them again without measuring. Exit status: 0, or 1 when a run failed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench import argument_types
from bench.exit_status import EXIT_FAILED, report_failures
from bench.figures import pictures
from bench.kept import LOCAL_RESULTS, keep
from bench.logstore.experiments import FULL, NAMES, QUICK, Axes, perform, plan
from bench.logstore.replicas import STREAM_BYTES_PER_S
from bench.logstore.tables import summary
from bench.progress import log_progress
from bench.running import comparison
from bench.settings import FLUSH, OS, POLICIES

PLOTS = "bench.logstore.plots"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench logstore", description=__doc__)
    parser.add_argument("experiment", nargs="*", choices=[*NAMES, "all"], default="all", help="default: all")
    parser.add_argument("--quick", action="store_true", help="few points, about a second each")
    parser.add_argument("--seconds", type=argument_types.positive, help="length of each run")
    parser.add_argument("--policy", choices=POLICIES, action="append", help="default: both")
    argument_types.add_directories(parser, LOCAL_RESULTS, "for the kept result")
    pictures.add_options(parser)
    return parser


def _runs(options: argparse.Namespace, axes: Axes, parent: Path) -> comparison.Outcomes:
    chosen = options.experiment if isinstance(options.experiment, list) else [options.experiment]
    names = frozenset(NAMES if "all" in chosen else chosen)
    runs = plan(axes, names, tuple(options.policy or (FLUSH, OS)))
    log_progress(f"{len(runs)} runs")
    measured: list[dict[str, Any]] = [
        {
            "experiment": run.experiment,
            "store": asdict(run.store),
            "load": asdict(run.load),
            "figures": figures,
        }
        for run, figures in perform(runs, parent, axes.prime_bytes)
    ]
    return measured, [str(each["figures"]["error"]) for each in measured if "error" in each["figures"]]


def main(arguments: Sequence[str]) -> int:
    """Measure and draw; the exit status."""
    options = _parser().parse_args(arguments)
    if options.plot:
        pictures.draw(PLOTS, options, options.plot)
        return 0
    axes = QUICK if options.quick else FULL
    if options.seconds:
        axes = replace(axes, seconds=options.seconds)
    chosen = [] if options.experiment == "all" else options.experiment
    words = [*chosen, *argument_types.words(options, ("quick", "seconds", "policy"))]
    found = comparison.perform(options, lambda parent: _runs(options, axes, parent))
    if found is None:
        return EXIT_FAILED
    result = {
        "format": 1,
        "kind": "logstore",
        "command": " ".join(["python -m bench logstore", *words]),
        "axes": asdict(axes),
        "stream_bytes_per_s": STREAM_BYTES_PER_S,
        "runs": found.pop("sessions"),
        **found,
    }
    path = keep(result, options.out, "logstore")
    print(summary(result))
    pictures.draw(PLOTS, options, path)
    return report_failures(result["failures"])
