"""The time of day as the broker reads it."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
