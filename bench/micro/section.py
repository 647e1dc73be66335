"""The history of single steps in docs/benchmarks/. Owns the wording; `bench.micro.history` judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tabulate import tabulate

from bench.figures.tables import join_parts, number
from bench.kept import Unreadable
from bench.micro import history

KIND = "micro"
NAMES = frozenset({"commit", "started", "machine", "steps"})
"""What each line of a history has."""
HEADS = ["", "first, us", "newest, us", "newest over first", "largest step", "with", "last without"]


def collect_records(path: Path) -> dict[str, Any]:
    """The newest record and those that may be compared with it, oldest first, as one result for the page.

    Raises Unreadable for what is no history, or an empty one.
    """
    records = history.read(path)
    if not records or not all(isinstance(each, dict) and each.keys() >= NAMES for each in records):
        raise Unreadable(f"{path} is no history of results: python -m bench micro --record")
    newest = records[-1]
    same = [each for each in records if history.comparable(each, newest)]
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


def _rows(records: list[dict[str, Any]]) -> list[list[str]]:
    """A line for each benchmark of the newest record."""
    lines = []
    for course in history.courses(records):
        grown = f"{course.grown:.2f}" if course.records > 1 else ""
        line = [course.step, number(course.first_us), number(course.newest_us), grown]
        change = course.largest
        if course.records == 1:
            line += ["one record", "", ""]
        elif not history.is_comparable_over_time(course.step):
            line += ["not judged", "", ""]
        elif change is None:
            line += ["none", "", ""]
        else:
            doubt = "?" if change.records == 1 else ""
            line += [f"{change.factor:.2f}{doubt}", change.commit[:12], change.last_before[:12]]
        lines.append(line)
    return lines


def _facts(result: dict[str, Any]) -> str:
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


def section(result: dict[str, Any]) -> str:
    """The cost of single steps, and the commits that changed it."""
    records = result["records"]
    factor = history.machine_factor(records[-1], records[0])
    speed = f": {factor:.2f} times as long in the newest record as in the first" if factor else ""
    slower = [str(each) for each in history.regressions(records)]
    parts = [
        "## Single steps, commit by commit",
        "What one call of a piece of codec, log or Raft takes, for looking at changes: no broker is "
        "compared, and the commits are those at which somebody recorded, not all. Records are compared only "
        "where processor, number of CPUs, Python and file system are the same. The machine is slower at some "
        "hours all the same; what the references take, plain Python and a C library's checksum, tells by how "
        f"much{speed}. *Newest over first* and *largest step* have that taken out, the microseconds have "
        f"not. A *step* is a time above {history.SLOWER:g} times the median of the (at most "
        f"{history.WINDOW}) records before, or below {1 / history.SLOWER:g} times, that stays so in every "
        "record after. *With* is the first commit that has it, *last without* the recorded one before; a "
        "question mark: the newest record alone shows it. References are not judged, nor is what waits for "
        "the disk.",
        _facts(result),
        tabulate(_rows(records), headers=HEADS, tablefmt="github", disable_numparse=True),
        f"Slower now: {'; '.join(slower)}." if slower else "Nothing is slower now.",
    ]
    return join_parts(parts)
