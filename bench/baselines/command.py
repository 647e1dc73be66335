"""`python -m bench baselines`: what Lockstep can be measured beside here, and what is missing for the others.

Owns: the table and `--build`. Exit status: 0, or 1 when a build failed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from tabulate import tabulate

from bench.baselines import tuned
from bench.baselines.memory import build_tansu, kfake_program
from bench.baselines.targets import TARGETS, WORDS
from bench.exit_status import EXIT_FAILED, log_progress
from compat_tests.kafka_jars import ToolchainMissing

BUILDS: dict[str, Callable[[], Path]] = {"tansu": build_tansu, "kfake": kfake_program}


def main(arguments: Sequence[str]) -> int:
    """Build the requested programs, then print the table; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench baselines", description=__doc__)
    parser.add_argument("--build", choices=BUILDS, action="append", default=[], help="tansu takes long")
    parser.add_argument("--tuned", action="store_true", help="the settings of kafka-tuned, with reasons")
    options = parser.parse_args(arguments)
    status = 0
    for name in options.build:
        try:
            BUILDS[name]()
        except ToolchainMissing as error:
            log_progress(f"FAILED: {name}: {error}")
            status = EXIT_FAILED
    if options.tuned:
        print(tabulate(tuned.settings(), headers=["setting", "value", "why"], disable_numparse=True))
        return status
    rows = [[name, WORDS[name], TARGETS[name].missing() or "here"] for name in TARGETS]
    print(tabulate(rows, headers=["target", "an acknowledged write", ""], disable_numparse=True))
    return status
