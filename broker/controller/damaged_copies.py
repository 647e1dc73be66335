"""The nodes that have an intact copy of a damaged range, by the reports of all replicas. Pure.

Invariant: a node counts as missing records only by its own report; a node without a report, or
with a truncated one, may have them. Does not: send requests (`damage_reports.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from lockstep.broker.maintenance.damage import MAX_REPORTED_RANGES, Document

Interval = tuple[int, int]
"""The first and the last offset."""


class Copies(NamedTuple):
    """Other nodes with a replica of a damaged range."""

    intact_on: list[int]
    """The nodes that have the records; with more than one, a part of them may be damaged on each."""
    unknown_on: list[int]
    """The nodes that may have the records: they did not report."""


def copies_of(damage: Document, replicas: Set[int], reports: Mapping[int, Sequence[Document]]) -> Copies:
    """Returns the other nodes that have, or may have, the records of a damaged range.

    Args:
        damage: a range with its `node`.
        replicas: the nodes with a replica of its log group.
        reports: node -> its damaged ranges, of the nodes that responded.
    """
    whole: list[Interval] = [(damage["first_offset"], damage["last_offset"])]
    lost, intact_on, unknown_on = whole, [], []
    for node_id in sorted(replicas - {damage["node"]}):
        report = reports.get(node_id)
        lacking = _overlaps(whole, damage, report or ())
        lacks_all = _length(lacking) == _length(whole)
        if report is None or (len(report) >= MAX_REPORTED_RANGES and not lacks_all):
            unknown_on.append(node_id)
            continue
        lost = _overlaps(lost, damage, report)
        if not lacks_all:
            intact_on.append(node_id)
    return Copies([] if lost else intact_on, unknown_on)


def _overlaps(intervals: Sequence[Interval], damage: Document, report: Sequence[Document]) -> list[Interval]:
    """Returns the parts of these intervals that a node reports as damaged, in order, without overlaps."""
    partition = damage["group"], damage["topic"], damage["partition"]
    same = [each for each in report if (each["group"], each["topic"], each["partition"]) == partition]
    same.sort(key=lambda each: int(each["first_offset"]))
    found: list[Interval] = []
    for first, last in intervals:
        begin = first
        for each in same:
            part = max(begin, each["first_offset"]), min(last, each["last_offset"])
            if part[0] <= part[1]:
                found.append(part)
                begin = part[1] + 1
    return found


def _length(intervals: Sequence[Interval]) -> int:
    return sum(last - first + 1 for first, last in intervals)
