"""A measurement of Lockstep alone as a command: what those have in common that compare no brokers.

Owns: the result's shape, keeping and printing it, and the exit status: 0, or 1 when a round failed, a
durability was not proven, or the measurement has a problem with its own figures. Does not know what is
measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import argument_types
from bench.exit_status import EXIT_FAILED, report_failures
from bench.kept import keep
from bench.running import comparison
from bench.settings import Sizes

Row = dict[str, Any]


def command_line(words: Sequence[str], options: argparse.Namespace) -> str:
    """The run's own words without paths. Args: words: how it begins."""
    return " ".join([*words, *argument_types.words(options, ("quick", "rounds", "seconds"))])


def run_alone(
    name: str,
    words: Sequence[str],
    options: argparse.Namespace,
    sizes: Sizes,
    run: Callable[[Path], comparison.Outcomes],
    judged: Callable[[list[dict[str, Any]]], tuple[list[Row], list[str]]],
    shown: Callable[[dict[str, Any]], str],
) -> tuple[int, Path | None]:
    """Run, judge, keep and print; the exit status, and where the result is.

    Args:
        name: of the kind of result and the kept file.
        words: how the command line begins.
        run: as `comparison.perform` takes it.
        judged: from sessions to rows, and what is wrong with them.
        shown: the result as a table.
    """
    found = comparison.perform(options, run)
    if found is None:
        return EXIT_FAILED, None
    rows, problems = judged(found["sessions"])
    result = {
        "format": 1,
        "kind": name,
        "command": command_line(words, options),
        "sizes": vars(sizes),
        "rows": rows,
        **found,
        "failures": [*found["failures"], *problems],
    }
    path = keep(result, options.out, name)
    if options.json:
        print(json.dumps({key: result[key] for key in ("command", "rows", "failures")}, indent=1))
    else:
        print(shown(result))
    return report_failures(result["failures"]), path
