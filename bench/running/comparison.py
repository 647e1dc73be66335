"""One comparison as a command: what all of them have in common, from the options to the exit status.

Owns: the common options, the sessions one after the other, what a result holds, and what the exit status
says: 0; 1 when a round failed or a durability was not proven; 3 when a required ratio was missed. Does not
know what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from bench import argument_types
from bench.exit_status import EXIT_FAILED, EXIT_GOAL_MISSED, report_failures
from bench.figures.intervals import with_intervals
from bench.figures.ratios import BadRequirement, Goal, Ratio, compare, parse_requirement
from bench.figures.tables import reservations, table
from bench.kept import LOCAL_RESULTS, keep
from bench.machine import memory
from bench.machine.device import NoBlockDevice
from bench.machine.facts import Origin
from bench.progress import log_progress
from bench.raw import RawSamples
from bench.sessions.cluster import NODE_HEAP
from bench.sessions.failures import FAILURES
from bench.sessions.session import Session
from bench.settings import PRODUCER_PROPERTIES, Sizes
from compat_tests.kafka_jars import ToolchainMissing
from lockstep.native import VARIABLE

P = TypeVar("P")
S = TypeVar("S", bound=Session)
Outcomes = tuple[list[dict[str, Any]], list[str]]
"""What each session measured, what failed."""


# --- the command line ---------------------------------------------------------------------------------------


def add_run_options(parser: argparse.ArgumentParser, *, quick: str) -> None:
    """The options of every measurement in sessions. Args: quick: the help of `--quick`."""
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--rounds", type=argument_types.rounds, help="sessions of each kind (an even number is balanced)"
    )
    parser.add_argument("--seconds", type=argument_types.positive, help="length of each timed block")
    parser.add_argument("--json", action="store_true", help="the comparison on stdout as JSON")
    argument_types.add_directories(parser, LOCAL_RESULTS, "for the kept result")


def add_options(parser: argparse.ArgumentParser, *, quick: str) -> None:
    """The options of every comparison. Args: quick: the help of `--quick`."""
    parser.add_argument(
        "--vs", choices=["kafka", "self"], default="kafka", help="'self' shows the noise floor"
    )
    parser.add_argument("--subject", choices=["lockstep", "kafka"], default="lockstep")
    add_run_options(parser, quick=quick)
    parser.add_argument(
        "--require", action="append", default=[], metavar="RATIO>=X", help="or RATIO<=X, or 'goals'"
    )


def add_baseline_tree(parser: argparse.ArgumentParser) -> None:
    """For those that can start a broker from other sources."""
    parser.add_argument(
        "--baseline-tree",
        type=argument_types.tree,
        help="with --vs self: the baseline is Lockstep from this source tree, never compiled",
    )


def check_baseline_tree(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends the command with a word where it does not fit."""
    if options.baseline_tree and (options.vs, options.subject) != ("self", "lockstep"):
        parser.error("--baseline-tree goes with --vs self and --subject lockstep")


def add_heap(parser: argparse.ArgumentParser) -> None:
    """For those that start several Kafka nodes."""
    words = f"of each Kafka node (default {NODE_HEAP})"
    parser.add_argument("--heap", type=argument_types.heap, default=NODE_HEAP, help=words)


def heap_words(options: argparse.Namespace) -> list[str]:
    """`--heap` as it stands on a command line, where it is another than the default."""
    heap = getattr(options, "heap", NODE_HEAP)
    return ["--heap", heap] if heap != NODE_HEAP else []


def required_goals(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    ratios: Mapping[str, Ratio],
    goals: Iterable[Goal],
) -> list[Goal]:
    """The ratios that `--require` names; ends the command with a word where one is unknown, or two bounds of
    one ratio."""
    found: list[Goal] = []
    try:
        for text in options.require:
            found += parse_requirement(text, ratios, goals)
    except BadRequirement as error:
        parser.error(str(error))
    for ratio, count in Counter(goal.ratio for goal in set(found)).items():
        if count > 1:
            parser.error(f"--require has {count} bounds of {ratio}: one can be judged")
    return found


def apply_sizes(sizes: Sizes, options: argparse.Namespace) -> Sizes:
    """The sizes with what the command line changes."""
    if options.rounds:
        sizes = replace(sizes, rounds=options.rounds)
    if options.seconds:
        sizes = replace(sizes, latency_s=options.seconds)
    return sizes


def baseline_of(options: argparse.Namespace) -> str:
    """The kind of broker that the subject is compared with."""
    return str(options.subject if options.vs == "self" else options.vs)


def command_line(words: Sequence[str], options: argparse.Namespace) -> str:
    """The run's own words without paths. Args: words: how it begins."""
    found = [f"{VARIABLE}=1"] if os.environ.get(VARIABLE) == "1" else []
    found += [*words, *argument_types.words(options, ("subject", "vs", "quick"))]
    found += ["--baseline-tree", "BEFORE"] if getattr(options, "baseline_tree", None) else []
    found += argument_types.words(options, ("rounds", "seconds", "policy", "groups", "require"))
    return " ".join([*found, *heap_words(options)])


# --- the run ------------------------------------------------------------------------------------------------


def run_sessions(plan: Sequence[P], make: Callable[[P], S], measure: Callable[[P, S], None]) -> Outcomes:
    """Run every session in turn. Args: measure: opens the session and measures."""
    sessions: list[dict[str, Any]] = []
    failures: list[str] = []
    began = time.monotonic()
    for number, planned in enumerate(plan, 1):
        log_progress(f"[{time.monotonic() - began:4.0f} s] session {number} of {len(plan)}: {planned}")
        session = make(planned)
        try:
            measure(planned, session)
        except FAILURES as error:
            failures.append(f"session {number} ({planned}): {error}")
            log_progress(f"  FAILED: {error}\n{session.log_tail()}")
        finally:
            session.close()
        failures += [f"session {number}: {problem}" for problem in session.unproven_blocks()]
        sessions.append(session.outcome())
    log_progress(f"[{time.monotonic() - began:4.0f} s] done")
    return sessions, failures


def perform(
    options: argparse.Namespace, run: Callable[[Path], tuple[object, list[str]]]
) -> dict[str, Any] | None:
    """The facts of an `Origin`, memory kept, failures and `sessions`; None where nothing can be measured.

    Args:
        run: as `run_comparison`'s; what it measured need not be sessions.
    """
    parent = argument_types.directory_of(options)
    if options.quick:
        log_progress("QUICK: short blocks show whether it works; how fast it is, only a whole run says")
    try:
        origin = Origin(parent)
        memory_kept = {} if options.quick else memory.kept(parent)
        sessions, failures = run(parent)
    except (NoBlockDevice, ToolchainMissing) as error:
        log_progress(f"cannot measure here: {error}")
        return None
    failures = [*failures, *origin.problems()]
    return {**origin.facts, "memory_kept": memory_kept, "failures": failures, "sessions": sessions}


def run_comparison(
    name: str,
    words: Sequence[str],
    options: argparse.Namespace,
    sizes: Sizes | dict[str, Any],
    run: Callable[[Path], Outcomes],
    required: list[Goal],
    goals: tuple[Goal, ...],
    ratios: Mapping[str, Ratio],
    *,
    intervals: bool = False,
    raw: RawSamples | None = None,
    **more: Any,
) -> int:
    """Run, compare, keep and print; the exit status.

    Args:
        name: of the kept file, before the two sides.
        words: how the command line begins.
        sizes: those of the sessions; of each kind by name where there are several.
        run: runs the plan; given the directory in which data directories are made.
        intervals: whether sessions carry their `round`, and ratios are of pairs of them.
        raw: what the sessions' blocks name, written beside the result once that is there.
        goals: shown beside their ratios, unless a broker is compared with itself.
        more: what else is kept.
    """
    found = perform(options, run)
    if found is None:
        return EXIT_FAILED
    baseline = baseline_of(options)
    shown = goals if options.subject != baseline else ()
    rows = compare(found["sessions"], required, shown, ratios)
    if intervals:
        judged = {goal.ratio: goal for goal in (*shown, *required)}
        rows = with_intervals(rows, found["sessions"], ratios, judged)
    result = {
        "format": 1,
        **more,
        "command": command_line(words, options),
        "subject": options.subject,
        "baseline": baseline,
        "sizes": sizes if isinstance(sizes, dict) else vars(sizes),
        "producer_properties": PRODUCER_PROPERTIES,
        "comparison": rows,
        **found,
    }
    path = keep(result, options.out, f"{name}-{result['subject']}-vs-{result['baseline']}")
    status = _finish(result, options, frozenset(goal.ratio for goal in required))
    if raw is not None:
        raw.write(path)  # last: a disk that it fills costs nothing else
    return status


def _finish(result: dict[str, Any], options: argparse.Namespace, required: frozenset[str]) -> int:
    if options.json:
        print(json.dumps({key: result[key] for key in ("command", "comparison", "failures")}, indent=1))
    else:
        print(table(result))
        if noted := reservations(result):
            log_progress(noted)
    return exit_status(result, required)


def exit_status(result: dict[str, Any], required: frozenset[str]) -> int:
    """The exit status of the command; prints the failures and the missed goals. Args: required: names of
    ratios."""
    if status := report_failures(result["failures"]):
        return status
    missed = [row for row in result["comparison"] if row["ratio"] in required and not row["met"]]
    for row in missed:
        value = "no figures" if row["value"] is None else f"{row['value']:.2f}"
        log_progress(f"MISSED: {row['ratio']} is {value}, wanted {row.get('goal', 'a figure')}")
    return EXIT_GOAL_MISSED if missed else 0
