"""`python -m bench growth`: how what Lockstep costs grows, with the slopes named.

Owns: the command line and the order of steps. Each is measured on fresh nodes, `--repeats` times; figures are
medians. Exit status: 0; 1 when a step failed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench import argument_types
from bench.exit_status import EXIT_FAILED, log_progress, report_failures
from bench.figures import origins
from bench.figures.ratios import medians
from bench.growth import work
from bench.growth.axes import AXES, BY_NAME, FULL, QUICK, RATE, Axis, Lengths
from bench.growth.steps import Step, collect_steps, is_whole, named_steps, path_of, step_of, table
from bench.kept import LOCAL_RESULTS, write
from bench.machine import memory
from bench.machine.device import NoBlockDevice
from bench.machine.facts import Origin, machine_facts
from bench.sessions.jobs import FAILURES, RoundFailed
from bench.sessions.session import LockstepSession
from bench.settings import QUICK as SIZES
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.targets import ROOT

RESULTS = ROOT / "bench" / "results" / "growth"


def measure_step(axis: Axis, value: int, lengths: Lengths, repeats: int, parent: Path) -> Step:
    """One step, as it is kept. RoundFailed, TargetFailed, NoBlockDevice."""
    rounds: list[dict[str, float]] = []
    origin = Origin(parent)
    for number in range(repeats):
        log_progress(f"[{time.strftime('%H:%M:%S')}] {value:,} {axis.words}, {number + 1} of {repeats}")
        session = LockstepSession(SIZES, parent)
        try:
            rounds.append(work.step(session, axis, value, lengths))
        finally:
            session.close()
        if unproven_blocks := session.unproven_blocks():
            raise RoundFailed("; ".join(unproven_blocks))
        log_progress("  " + ", ".join(f"{name} {figure:,.3g}" for name, figure in rounds[-1].items()))
    if problems := origin.problems():
        raise RoundFailed("; ".join(problems))
    return {
        "format": 1,
        "axis": axis.name,
        "value": value,
        "rate": RATE,
        "lengths": asdict(lengths),
        "figures": medians(rounds),
        "rounds": rounds,
        **origin.facts,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench growth", description=__doc__)
    parser.add_argument("--axis", choices=BY_NAME, action="append", help="default: all")
    parser.add_argument("--limit", type=argument_types.limit, help="end after so many steps")
    parser.add_argument("--most", type=argument_types.count, help="no steps above this value")
    parser.add_argument("--repeats", type=argument_types.rounds, default=2)
    parser.add_argument("--quick", action="store_true", help="short blocks, small logs: whether it works")
    parser.add_argument("--list", action="store_true", help="what is there and what remains")
    argument_types.add_directories(parser, None, "of the steps; quick runs have one of their own")
    return parser


def _run(options: argparse.Namespace, lengths: Lengths, points: Sequence[tuple[Axis, int]]) -> list[str]:
    """Measure what is missing; what failed."""
    failures = []
    parent = argument_types.directory_of(options)
    there = [step_of(options.out, axis, value, lengths) for axis in AXES for value in axis.values]
    origins.check_machine(named_steps([step for step in there if step]), machine_facts(parent))
    chosen = points[: options.limit]
    if chosen and not options.quick:
        memory.kept(parent)
    for axis, value in chosen:
        try:
            step = measure_step(axis, value, lengths, options.repeats, parent)
        except FAILURES as error:
            log_progress(f"  FAILED: {error}")
            failures.append(f"{axis.name} {value}: {error}")
            continue
        write(path_of(options.out, axis, value), json.dumps(step, indent=1) + "\n")
    return failures


def main(arguments: Sequence[str]) -> int:
    """Measure what is missing, and print what there is; the exit status."""
    options = _parser().parse_args(arguments)
    options.out = options.out or (LOCAL_RESULTS / "growth-quick" if options.quick else RESULTS)
    lengths = QUICK if options.quick else FULL
    chosen = [BY_NAME[name] for name in options.axis] if options.axis else AXES
    steps = [(axis, value) for axis in chosen for value in axis.values if value <= (options.most or value)]
    missing = [each for each in steps if not is_whole(options.out, *each, lengths)]
    failures: list[str] = []
    if not options.list:
        try:
            failures = _run(options, lengths, missing)
        except (NoBlockDevice, ToolchainMissing, origins.MixedMachines) as error:
            log_progress(f"cannot measure here: {error}")
            return EXIT_FAILED
        missing = [each for each in steps if not is_whole(options.out, *each, lengths)]
    if any(step_of(options.out, *each, lengths) for each in steps):
        print(table(collect_steps(options.out, lengths)))
    names = ", ".join(f"{axis.name} {value:,}" for axis, value in missing)
    remaining = f"; remaining: {names}" if names else ""
    log_progress(f"{len(steps) - len(missing)} of {len(steps)} steps are there{remaining}")
    return report_failures(failures)
