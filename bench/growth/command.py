"""`python -m bench growth`: how what Lockstep costs grows, with the slopes named.

Owns: the command line, the files (one a step, so that a run that was ended goes on where it was), and the
table. Each step is measured on fresh nodes, `--repeats` times; figures are medians. Exit status: 0; 1 when
a step failed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bench import argument_types, memory, origins
from bench.alone import LockstepSession
from bench.device import NoBlockDevice
from bench.facts import code_facts, machine_facts
from bench.growth import work
from bench.growth.axes import AXES, BY_NAME, FLAT, FULL, QUICK, RATE, Axis, Lengths
from bench.growth.slopes import fit
from bench.kept import LOCAL_RESULTS, Unreadable, read, write
from bench.progress import say
from bench.session import FAILURES, RoundFailed
from bench.settings import QUICK as SIZES
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.targets import ROOT

RESULTS = ROOT / "bench" / "results" / "growth"
KIND = "growth"
EXIT_FAILED = 1
DISTURBED = 0.25
"""Of a processor: figures beside so much other work are named."""
FAR = 10.0
"""Rounds that differ by more than this factor have no figure in common."""

Step = dict[str, Any]


def path_of(directory: Path, axis: Axis, value: int) -> Path:
    return directory / f"{axis.name}-{value}.json"


def step_of(directory: Path, axis: Axis, value: int, lengths: Lengths) -> Step | None:
    """The step's file; None where it is not there, or was measured with other lengths. Unreadable."""
    path = path_of(directory, axis, value)
    if not path.exists():
        return None
    found = read(path, "axis", "value", "lengths", "figures", "started", "code", "machine")
    return found if found["lengths"] == asdict(lengths) else None


def measured(axis: Axis, value: int, lengths: Lengths, repeats: int, parent: Path) -> Step:
    """One step, as it is kept. RoundFailed, TargetFailed, NoBlockDevice."""
    rounds: list[dict[str, float]] = []
    for number in range(repeats):
        say(f"[{time.strftime('%H:%M:%S')}] {value:,} {axis.words}, {number + 1} of {repeats}")
        session = LockstepSession(SIZES, parent)
        try:
            rounds.append(work.step(session, axis, value, lengths))
        finally:
            session.close()
        if unproven := session.unproven():
            raise RoundFailed("; ".join(unproven))
        say("  " + ", ".join(f"{name} {figure:,.3g}" for name, figure in rounds[-1].items()))
    return {
        "format": 1,
        "axis": axis.name,
        "value": value,
        "rate": RATE,
        "lengths": asdict(lengths),
        "figures": {name: statistics.median(each[name] for each in rounds) for name in rounds[0]},
        "rounds": rounds,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "code": code_facts(),
        "machine": machine_facts(parent),
    }


def gathered(directory: Path, lengths: Lengths = FULL) -> dict[str, Any]:
    """All steps that are there, as one result for the page: `steps` by axis, and the newest step's facts.

    Raises MixedMachines where they are of several machines, Unreadable.
    """
    steps = {
        axis.name: [step for value in axis.values if (step := step_of(directory, axis, value, lengths))]
        for axis in AXES
    }
    found = [step for each in steps.values() for step in each]
    if not found:
        raise Unreadable(f"{directory} has no step of `python -m bench growth`")
    newest = max(found, key=lambda step: str(step["started"]))
    origins.check_machine(_named(found), newest["machine"])
    shared = {name: newest[name] for name in ("started", "code", "machine")}
    shared["commits"] = origins.commits_of(found)
    return {"kind": KIND, "command": "python -m bench growth", "failures": [], "steps": steps, **shared}


def _named(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    return [(f"{step['axis']} {step['value']:,}", step) for step in steps]


def fits(result: dict[str, Any]) -> list[list[str]]:
    """A row for each figure of each axis: first and last step, slope and its name, promise kept or MISSED."""
    rows = []
    for axis in AXES:
        steps = result["steps"].get(axis.name, [])
        for fitted in axis.fitted:
            figure = fitted.figure
            has = [each for each in steps if fitted.stays_flat or figure in each["figures"]]
            points = [(each["value"], each["figures"][figure]) for each in has]
            line = fit(points)
            if line is None:
                if fitted.stays_flat and steps:  # a promise is not dropped for want of figures
                    rows.append([axis.words, fitted.unit, "", "", "", "", "", "too few steps"])
                continue
            first, last = points[0], points[-1]
            verdict = ""
            if fitted.stays_flat:
                verdict = "met" if line.slope <= FLAT else "MISSED"
            rows.append(
                [
                    axis.words,
                    fitted.unit,
                    f"{first[1]:,.3g} at {first[0]:,}",
                    f"{last[1]:,.3g} at {last[0]:,}",
                    f"{line.slope:+.2f}",
                    line.word,
                    f"{line.r_squared:.2f}",
                    verdict,
                ]
            )
    return rows


def promised(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What is to stay flat, as rows with a goal: the value is the slope."""
    return [
        {
            "title": f"{unit}, over {words}",
            "value": float(slope) if slope else None,
            "goal": "flat",
            "met": verdict == "met",
        }
        for words, unit, _, _, slope, _, _, verdict in fits(result)
        if verdict
    ]


HEADS = ["over", "", "first", "last", "slope", "", "R²", "stays flat"]


def table(result: dict[str, Any], style: str = "simple") -> str:
    return tabulate(fits(result), headers=HEADS, tablefmt=style, disable_numparse=True)


def disturbed(result: dict[str, Any]) -> list[str]:
    """The steps beside which other work used more of a processor than `DISTURBED`."""
    return [
        f"{step['value']:,} {axis.words} ({step['figures']['foreign_cpu_share']:.0%})"
        for axis in AXES
        for step in result["steps"].get(axis.name, [])
        if step["figures"].get("foreign_cpu_share", 0.0) > DISTURBED
    ]


def far_apart(result: dict[str, Any]) -> list[str]:
    """The figures whose rounds differ by more than `FAR`, with the lowest and the highest."""
    found = []
    for axis in AXES:
        for step in result["steps"].get(axis.name, []):
            for fitted in axis.fitted:
                values = [each[fitted.figure] for each in step.get("rounds", ()) if fitted.figure in each]
                if values and min(values) > 0 and max(values) > FAR * min(values):
                    ends = f"{min(values):.3g} and {max(values):.3g}"
                    found.append(f"{fitted.unit} at {step['value']:,} {axis.words}: {ends}")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench growth", description=__doc__)
    parser.add_argument("--axis", choices=BY_NAME, action="append", help="default: all")
    parser.add_argument("--limit", type=argument_types.limit, help="end after so many steps")
    parser.add_argument("--most", type=argument_types.count, help="no steps above this value")
    parser.add_argument("--repeats", type=argument_types.rounds, default=2)
    parser.add_argument("--quick", action="store_true", help="short blocks, small logs: whether it works")
    parser.add_argument("--list", action="store_true", help="what is there and what remains")
    argument_types.add_directories(parser, None, "of the steps; quick runs have one of their own")
    parser.add_argument(
        "--picture", type=argument_types.picture, help="draw the steps that are there into this file"
    )
    return parser


def _run(options: argparse.Namespace, lengths: Lengths, wanted: Sequence[tuple[Axis, int]]) -> list[str]:
    """Measure what is missing; what failed."""
    failures = []
    parent = options.directory or Path(tempfile.gettempdir())
    there = [step_of(options.out, axis, value, lengths) for axis in AXES for value in axis.values]
    origins.check_machine(_named([step for step in there if step]), machine_facts(parent))
    chosen = wanted[: options.limit]
    if chosen and not options.quick:
        memory.touched()
    for axis, value in chosen:
        try:
            step = measured(axis, value, lengths, options.repeats, parent)
        except FAILURES as error:
            say(f"  FAILED: {error}")
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
    missing = [each for each in steps if step_of(options.out, *each, lengths) is None]
    failures: list[str] = []
    if not options.list:
        try:
            failures = _run(options, lengths, missing)
        except (NoBlockDevice, ToolchainMissing, origins.MixedMachines) as error:
            say(f"cannot measure here: {error}")
            return EXIT_FAILED
        missing = [each for each in steps if step_of(options.out, *each, lengths) is None]
    if len(missing) < len(steps):
        result = gathered(options.out, lengths)
        print(table(result))
        if options.picture:
            from bench.growth import plots

            plots.draw(result, options.picture)
            say(f"drawn: {os.path.relpath(options.picture)}")
    names = ", ".join(f"{axis.name} {value:,}" for axis, value in missing)
    remaining = f"; remaining: {names}" if names else ""
    say(f"{len(steps) - len(missing)} of {len(steps)} steps are there{remaining}")
    for failure in failures:
        say(f"FAILED: {failure}")
    return EXIT_FAILED if failures else 0
