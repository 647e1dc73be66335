"""Rows of several runs as one result: may they stand side by side, of which sources are they? Pure.

Owns: what makes two machines one: all of `machine_facts` but the load. Rows of another machine,
kernel or version are never in one table; rows of other commits are, and are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

PASSING = frozenset({"load_average_before"})
"""Of a machine's facts: what is another one each time."""


class MixedMachines(ValueError):
    """Rows that were measured on different machines, or with different versions."""


def differing_facts(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names of the facts in which two machines differ."""
    return sorted(name for name in (one.keys() | other.keys()) - PASSING if one.get(name) != other.get(name))


def check_machine(rows: Iterable[tuple[str, dict[str, Any]]], machine: dict[str, Any]) -> None:
    """Raises MixedMachines where a row, by name, was not measured on this machine."""
    for name, row in rows:
        if found := differing_facts(row["machine"], machine):
            raise MixedMachines(
                f"{name} was measured elsewhere: {', '.join(found)} differ; use another --out"
            )


def commits_of(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """The number of rows by commit, newest first; a tree with changes is named so."""
    ordered = sorted(rows, key=lambda row: str(row["started"]), reverse=True)
    names = (
        row["code"]["commit"][:12]
        + (" with changes" if row["code"]["dirty"] else "")
        + (", compiled" if row["code"].get("native") else "")
        for row in ordered
    )
    return dict(Counter(names))
