"""Kept results as the pages show them: titles of today, and kills that were not seen left out. Pure.

A kept row has the title of the day that measured it. What it is of is its ratio's name, so that the page
takes today's words for it; a name that is known no more keeps its own.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.figures import kills
from bench.figures.ratios import Goal
from bench.headline.goals import RATIOS as HEADLINE
from bench.nodes3.goals import NODES_RATIOS
from bench.one_node.goals import RATIOS as ONE

ONE_NODE = "one"
"""The kind of results that say none."""
TITLES = {
    kind: {name: ratio.title for name, ratio in ratios.items()}
    for kind, ratios in (("headline", HEADLINE), (ONE_NODE, ONE), ("nodes3", NODES_RATIOS))
}
KILLS = ("loss.", "resume.")
"""Ratios of seconds after a leader's loss begin so."""


def prepared(result: dict[str, Any]) -> dict[str, Any]:
    """The result with its comparison's rows so; the same one where it has none."""
    if not isinstance(result.get("comparison"), list):
        return result
    titles = TITLES.get(result.get("kind", ONE_NODE), {})
    rows = [_of_seen_kills(row) for row in result["comparison"]]
    return {
        **result,
        "comparison": [{**row, "title": titles.get(row.get("ratio", ""), row.get("title"))} for row in rows],
    }


def _of_seen_kills(row: dict[str, Any]) -> dict[str, Any]:
    """The row with medians of the kills that were seen; others as they are."""
    ours, theirs = row.get("subject_values", []), row.get("baseline_values", [])
    is_changed = kills.seen(ours) != list(ours) or kills.seen(theirs) != list(theirs)
    if not str(row.get("ratio", "")).startswith(KILLS) or not is_changed:
        return row
    if not kills.seen(ours) or not kills.seen(theirs):
        return {**row, "value": None}
    subject, baseline = statistics.median(kills.seen(ours)), statistics.median(kills.seen(theirs))
    changed = {**row, "subject": subject, "baseline": baseline, "value": subject / baseline}
    if "goal" in row:
        relation, bound = row["goal"].split()
        changed["met"] = Goal(row["ratio"], relation, float(bound)).met_by(changed["value"])
    return changed
