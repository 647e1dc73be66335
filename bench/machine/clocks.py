"""The time of one call, in a loop: for steps too short to time alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

REPEATS = 7
LOOP_S = 0.08


def microseconds(step: Callable[[], object]) -> float:
    """Median over repeats of the mean time of one call."""
    step()
    began = time.perf_counter()
    step()
    count = max(1, int(LOOP_S / max(time.perf_counter() - began, 1e-7)))
    means = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(count):
            step()
        means.append((time.perf_counter() - began) / count)
    return statistics.median(means) * 1e6
