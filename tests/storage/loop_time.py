"""A monotonic clock for the groups of a test: on a busy machine nobody is taken for silent.

It goes on only as the loop turns, by as much as was slept: who did not come to run has not missed anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from storage.group import LogGroup

STEP_SECONDS = 0.005


class LoopTime:
    """Seconds, as `time.monotonic`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def run(self) -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            self.now += STEP_SECONDS


@asynccontextmanager
async def nobody_is_silent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Groups that are opened in the block go by such a clock."""
    async with loop_time() as clock:
        monkeypatch.setattr(LogGroup, "open", partial(LogGroup.open, seconds=clock))
        yield


@asynccontextmanager
async def loop_time() -> AsyncIterator[LoopTime]:
    """One that goes on until the block ends."""
    clock = LoopTime()
    going_on = asyncio.ensure_future(clock.run())
    try:
        yield clock
    finally:
        going_on.cancel()
