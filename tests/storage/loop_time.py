"""A monotonic clock for the groups of a test: on a busy machine nobody is taken for silent.

It goes on only as the loop turns, by as much as was slept: who did not come to run has not missed anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from lockstep.storage.log_group import LogGroup

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
        monkeypatch.setattr(LogGroup, "open", partial(LogGroup.open, monotonic=clock))
        yield


class Timer:
    """One of a `PatientLoop`."""

    def __init__(
        self, loop: PatientLoop, at: float, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._loop = loop
        self._at = at
        self._callback = callback
        self._args = args
        self._handle = self._wait()

    def cancel(self) -> None:
        self._handle.cancel()

    def _wait(self) -> asyncio.TimerHandle:
        return self._loop.real.call_later(self._at - self._loop.time(), self._look)

    def _look(self) -> None:
        if self._loop.time() < self._at:
            self._handle = self._wait()
        else:
            self._callback(*self._args)


class PatientLoop:
    """The running loop, but for its time and its timers."""

    def __init__(self, clock: LoopTime) -> None:
        self.real = asyncio.get_running_loop()
        self.time = clock

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        return Timer(self, when, callback, args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        return Timer(self, self.time() + delay, callback, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@asynccontextmanager
async def loop_time() -> AsyncIterator[LoopTime]:
    """One that goes on until the block ends."""
    clock = LoopTime()
    going_on = asyncio.ensure_future(clock.run())
    try:
        yield clock
    finally:
        going_on.cancel()
