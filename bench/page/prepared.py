"""Kept results as the pages show them: titles of today, like beside like, kills that were not seen left out.

A kept row has the title of the day that measured it. What it is of is its ratio's name, so that the page
takes today's words for it; a name that is known no more keeps its own. Memory is that of sessions that served
every row, as all of Kafka's do; runs of before 2026-11-28 kept it of the others, too. Pure.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.figures import kills
from bench.figures.ratios import BASELINE, SUBJECT, Goal
from bench.kinds.headline import RATIOS as HEADLINE
from bench.kinds.nodes3 import RATIOS as NODES3
from bench.kinds.one_node import RATIOS as ONE
from bench.kinds.secured import RATIOS as SECURED

ONE_NODE = "one node"
"""The kind of older results without one."""
TITLES = {
    kind: {name: ratio.title for name, ratio in ratios.items()}
    for kind, ratios in (("headline", HEADLINE), (ONE_NODE, ONE), ("nodes3", NODES3), ("secured", SECURED))
}
MEMORY = {"memory.max": "rss_max_mb", "memory.median": "rss_median_mb"}
"""Ratio of one node -> the figure of a session's memory."""
RESTART = "restart"
"""A block that not all sessions have to have."""
KILLS = ("loss.", "resume.")
"""Ratios of seconds after a leader's loss begin so."""


def prepare(result: dict[str, Any]) -> dict[str, Any]:
    """The result with its comparison's rows so; the same one where it has none."""
    if not isinstance(result.get("comparison"), list):
        return result
    titles = TITLES.get(result.get("kind", ONE_NODE), {})
    rows = [_of_whole_sessions(result, _of_seen_kills(row)) for row in result["comparison"]]
    return {
        **result,
        "comparison": [{**row, "title": titles.get(row.get("ratio", ""), row.get("title"))} for row in rows],
    }


def _of_seen_kills(row: dict[str, Any]) -> dict[str, Any]:
    """The row with medians of the kills that were seen; others as they are."""
    ours, theirs = row.get("subject_values", []), row.get("baseline_values", [])
    is_changed = kills.observed_times(ours) != list(ours) or kills.observed_times(theirs) != list(theirs)
    if not str(row.get("ratio", "")).startswith(KILLS) or not is_changed:
        return row
    if not kills.observed_times(ours) or not kills.observed_times(theirs):
        return {**row, "value": None}
    return _divide(row, kills.observed_times(ours), kills.observed_times(theirs))


def _of_whole_sessions(result: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The row of one node's memory, of sessions that have every block of their side's; others as they are."""
    figure = MEMORY.get(row.get("ratio", "")) if result.get("kind", ONE_NODE) == ONE_NODE else None
    if figure is None or row.get("value") is None:
        return row
    found = {}
    for side in (SUBJECT, BASELINE):
        sessions = [each for each in result["sessions"] if each["side"] == side and each["memory"]]
        served = [{block["name"] for block in session["blocks"]} - {RESTART} for session in sessions]
        every = set().union(*served)
        whole = [each for each, names in zip(sessions, served, strict=True) if names == every]
        found[side] = [float(session["memory"][figure]) for session in whole]
    ours, theirs = found[SUBJECT], found[BASELINE]
    if not ours or not theirs:
        return row
    return {**_divide(row, ours, theirs), "subject_values": ours, "baseline_values": theirs}


def _divide(row: dict[str, Any], ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """The row with these values, their medians, and whether its goal is met by those."""
    subject, baseline = statistics.median(ours), statistics.median(theirs)
    changed = {**row, "subject": subject, "baseline": baseline, "value": subject / baseline}
    if "goal" in row:
        relation, bound = row["goal"].split()
        changed["met"] = Goal(row["ratio"], relation, float(bound)).met_by(changed["value"])
    return changed
