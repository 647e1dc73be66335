"""Waiting for what brokers come to know a little later: metadata, followers' ends, leaders that move."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(wanted: object, ask: Callable[[], object], wait_s: float = 30.0) -> None:
    """Ask again and again until the answer is as wanted; AssertionError with the last one."""
    deadline = time.monotonic() + wait_s
    while (found := ask()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found == wanted
