"""Waiting for what a broker does by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Look every few milliseconds. AssertionError where it does not hold in time."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while not holds():
        assert clock() < deadline, f"not within {seconds:g} s"
        await asyncio.sleep(0.01)
