"""Seconds from the kill of a leader to the next acknowledgement: what is shown of several kills. Pure.

Owns: that a time of 0 or less is no time: another node led already when the old leader was killed. Rows of
before `lose_leader` rejected such rounds have them; they are counted, and in no median.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def observed_times(values: Sequence[float]) -> list[float]:
    """The times of the kills that the client saw."""
    return [value for value in values if value > 0]


def words(values: Sequence[float]) -> str:
    """Median, worst and number of kills, and how many of them were not seen; empty for none."""
    found = observed_times(values)
    if not found:
        return f"none of {len(values)} kills was seen" if values else ""
    text = f"{statistics.median(found):.3g} s, at most {max(found):.3g} s, {len(values)} kills"
    missed = len(values) - len(found)
    return (
        f"{text}; {missed} of {len(values)} rounds did not see the kill, another node led already"
        if missed
        else text
    )
