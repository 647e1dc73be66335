"""The micro-benchmarks' history: a line for each recorded commit, and which commit a step became slower with.

Owns: the file's format (JSON lines, oldest first; one line is one commit on one machine), what may be
compared (the same processor, Python and kind of disk), and the judgement. A step is slower where it takes
SLOWER times the median of the records before, and stays so in every record after: one slow run is no
regression; it is faster where that is so the other way round. A virtual machine is itself slower in some
hours: what is compared is a step's time divided by that of the references, steps that are not the project's.
They are not compared themselves, nor are steps that wait for the disk, which no processor's speed explains.
Measures nothing.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.figures.tables import number, text_table
from bench.kept import Unreadable, write
from compat_tests.targets import ROOT

HISTORY: Final = ROOT / "bench" / "results" / "micro" / "history.jsonl"
SLOWER: Final = 1.25
"""More than medians of one step differ by on one quiet machine; a step is faster by 1 / SLOWER."""
WINDOW: Final = 5
"""Records before a commit that its figures are compared with."""

REFERENCE: Final = "reference: "
_REFERENCES: Final = (REFERENCE, "CRC-32C of ")
"""How their names begin. The CRC is a C library's."""
_WAITS: Final = ", flush"
"""In the names of steps that wait for the disk."""

Record = dict[str, Any]
KIND: Final = "micro"
_NAMES: Final = frozenset({"commit", "started", "machine", "steps"})
"""What each line of a history has."""
_SAME: Final = ("processor", "cpus", "python", "file_system")


class Regression(NamedTuple):
    """A step that became slower, with the first record that shows it and the last one before.

    Both times are what the step takes at the speed that the machine had in the newest record.
    """

    step: str
    before_us: float
    after_us: float
    commit: str
    last_good: str

    def __str__(self) -> str:
        return (
            f"{self.step}: {self.after_us:.2f} us with {self.commit[:12]}, {self.before_us:.2f} us before, "
            f"at the machine's speed of now (git log {self.last_good[:12]}..{self.commit[:12]})"
        )


class Change(NamedTuple):
    """A record from which on a step was slower or faster."""

    factor: float
    """The time since over the time before, at one speed of the machine."""
    commit: str
    last_before: str
    """The commit of the record before: what changed it is one of those between."""
    records: int
    """How many show it; a single one may not stay."""


class Course(NamedTuple):
    """A step from its first record to the newest. Microseconds are as they were measured."""

    step: str
    records: int
    """How many have it."""
    first_us: float
    newest_us: float
    grown: float
    """The newest time over the first, at one speed of the machine."""
    largest: Change | None
    """None where it never changed by more than the machine, or is not judged."""


def record(steps: dict[str, float], machine: dict[str, Any], code: dict[str, Any], started: str) -> Record:
    """One line. Args: steps: microseconds by step; the others: as an `Origin` has them."""
    return {
        "commit": code["commit"],
        "dirty": code["dirty"],
        "started": started,
        "machine": {name: machine[name] for name in (*_SAME, "kernel")},
        "steps": {name: round(value, 3) for name, value in steps.items()},
    }


def append(path: Path, entry: Record) -> None:
    """Add a line; another of the same commit and machine is replaced, so that a step can be repeated."""
    kept = [each for each in read(path) if each["commit"] != entry["commit"] or not comparable(each, entry)]
    lines = [json.dumps(each, sort_keys=True) for each in (*kept, entry)]
    write(path, "\n".join(lines) + "\n")


def read(path: Path) -> list[Record]:
    """All records, oldest first; none where there is no file. Unreadable, OSError."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line]
    except ValueError as error:
        raise Unreadable(f"{path} is no history: {error}") from error


def comparable(one: Record, other: Record) -> bool:
    """True if both are of one kind of machine."""
    return all(one["machine"][name] == other["machine"][name] for name in _SAME)


def is_comparable_over_time(step: str) -> bool:
    """True if a step can become slower by a change of ours, and by little else."""
    return not step.startswith(_REFERENCES) and _WAITS not in step


def machine_factor(now: Record, before: Record) -> float | None:
    """The factor of the references' time between two records; None where they have none in common."""
    common = [step for step in now["steps"] if step.startswith(_REFERENCES) and step in before["steps"]]
    if not common:
        return None
    return statistics.geometric_mean(now["steps"][step] / before["steps"][step] for step in common)


def newest_factor(records: Sequence[Record]) -> float | None:
    """The factor of the references' time in the newest record over the usual one; None where it is unknown.

    Args:
        records: of one kind of machine, oldest first.
    """
    factors = [machine_factor(records[-1], each) for each in records[-1 - WINDOW : -1]]
    known = [factor for factor in factors if factor is not None]
    return statistics.median(known) if known else None


def regressions(records: Sequence[Record]) -> list[Regression]:
    """Every step that is slower now than it was, with the commit that it became so with.

    Args:
        records: of one kind of machine, oldest first.
    """
    found = []
    for step in filter(is_comparable_over_time, records[-1]["steps"] if records else ()):
        measured = [each for each in records if step in each["steps"]]
        place = _first_slower(measured, step)
        if place is None:
            continue
        before = _usual(measured[max(0, place - WINDOW) : place], step, records[-1])
        after = _usual(measured[place:], step, records[-1])
        found.append(
            Regression(step, before, after, measured[place]["commit"], measured[place - 1]["commit"])
        )
    return found


def courses(records: Sequence[Record]) -> list[Course]:
    """Every step of the newest record, in its order.

    Args:
        records: of one kind of machine, oldest first.
    """
    found = []
    for step in records[-1]["steps"] if records else ():
        measured = [each for each in records if step in each["steps"]]
        first, newest = measured[0], measured[-1]
        grown = newest["steps"][step] / _usual([first], step, newest)
        changes = _changes(measured, step) if is_comparable_over_time(step) else []
        largest = max(changes, key=lambda change: abs(math.log(change.factor)), default=None)
        ends = first["steps"][step], newest["steps"][step]
        found.append(Course(step, len(measured), *ends, grown, largest))
    return found


def _changes(measured: Sequence[Record], step: str) -> list[Change]:
    """Every change that stayed, each at the first record that shows it, oldest first."""
    found = []
    factors = [_lasting_factor(measured, step, place) for place in range(1, len(measured))]
    for place, (before, factor) in enumerate(itertools.pairwise([None, *factors]), 1):
        if factor is None or (before is not None and (before > 1) == (factor > 1)):
            continue  # the same change is beyond what was usual until that is in the window
        commits = measured[place]["commit"], measured[place - 1]["commit"]
        found.append(Change(factor, *commits, len(measured) - place))
    return found


def _first_slower(measured: Sequence[Record], step: str) -> int | None:
    """The first place from which on all are slower than what was usual before it."""
    for place in range(1, len(measured)):
        if (_lasting_factor(measured, step, place) or 0.0) > SLOWER:
            return place
    return None


def _lasting_factor(measured: Sequence[Record], step: str, place: int) -> float | None:
    """The factor of a step's time from this record on over the usual one before, in the median; None
    where not all records since are slower than that, nor all faster."""
    before = measured[max(0, place - WINDOW) : place]
    factors = [each["steps"][step] / _usual(before, step, each) for each in measured[place:]]
    stays = min(factors) > SLOWER or max(factors) < 1 / SLOWER
    return statistics.median(factors) if stays else None


def _usual(records: Sequence[Record], step: str, then: Record) -> float:
    """The usual time of a step in these, at the speed that the machine had in the record `then`."""
    took = [float(each["steps"][step]) * (machine_factor(then, each) or 1.0) for each in records]
    return statistics.median(took)


def collect_records(path: Path) -> dict[str, Any]:
    """The newest record and those that may be compared with it, oldest first, as one result for the page.

    Raises Unreadable for what is no history, or an empty one.
    """
    records = read(path)
    if not records or not all(isinstance(each, dict) and each.keys() >= _NAMES for each in records):
        raise Unreadable(f"{path} is no history of results: python -m bench micro --record")
    newest = records[-1]
    same = [each for each in records if comparable(each, newest)]
    return {
        "kind": KIND,
        "command": "python -m bench micro --record",
        "failures": [],
        "records": same,
        "elsewhere": len(records) - len(same),
        "kept_in": f"{path.parent.name}/{path.name}",
        "started": newest["started"],
        "machine": newest["machine"],
    }


def table(records: list[Record]) -> str:
    """A line for each benchmark of the newest record."""
    lines = []
    for course in courses(records):
        grown = f"{course.grown:.2f}" if course.records > 1 else ""
        line = [course.step, number(course.first_us), number(course.newest_us), grown]
        change = course.largest
        if course.records == 1:
            line += ["one record", "", ""]
        elif not is_comparable_over_time(course.step):
            line += ["not judged", "", ""]
        elif change is None:
            line += ["none", "", ""]
        else:
            doubt = "?" if change.records == 1 else ""
            line += [f"{change.factor:.2f}{doubt}", change.commit[:12], change.last_before[:12]]
        lines.append(line)
    heads = ["", "first, us", "newest, us", "newest over first", "largest step", "with", "last without"]
    return text_table(lines, heads)


def facts(result: dict[str, Any]) -> str:
    """The machine and the commits of the records."""
    machine, records = result["machine"], result["records"]
    elsewhere = result["elsewhere"]
    lines = [
        f"- {machine['processor']}, {machine['cpus']} CPUs, Python {machine['python']}, "
        f"{machine['file_system']}, kernel {machine['kernel']}",
        f"- {len(records)} commits on this kind of machine, from {records[0]['commit'][:12]} "
        f"({records[0]['started']}) to {records[-1]['commit'][:12]} ({records[-1]['started']})",
        f"- records of other kinds of machine, which are not compared with these: {elsewhere}"
        if elsewhere
        else "",
        f"- `{result['command']}`",
    ]
    return "\n".join(line for line in lines if line)
