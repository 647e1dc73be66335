"""The timer of a deadline that moves: at the earliest one that it was given, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from lockstep.storage.deadline_timer import DeadlineTimer


class Handle:
    """A callback at a time in milliseconds."""

    def __init__(self, at_ms: int, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """Time in milliseconds, and a loop that has nothing but timers."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.handles: list[Handle] = []
        self.fired: list[int] = []
        loop = cast(asyncio.AbstractEventLoop, self)
        self.timer = DeadlineTimer(loop, lambda: self.now_ms, lambda: self.fired.append(self.now_ms))

    def call_later(self, delay: float, callback: Callable[[], None]) -> Handle:
        handle = Handle(self.now_ms + round(delay * 1000), callback)
        self.handles.append(handle)
        return handle

    def run(self, until_ms: int) -> list[int]:
        """Returns when the timer called back."""
        for now_ms in range(self.now_ms, until_ms + 1):
            self.now_ms = now_ms
            for handle in self.handles:
                if handle.at_ms == now_ms and not handle.is_cancelled:
                    handle.callback()
        return self.fired


def test_an_earlier_deadline_takes_the_place_of_a_later_one() -> None:
    clock = Clock()
    clock.timer.arm(50)
    clock.timer.arm(20)
    assert clock.run(100) == [20]


def test_a_later_deadline_changes_nothing() -> None:
    clock = Clock()
    clock.timer.arm(20)
    clock.timer.arm(50)
    assert clock.timer.is_armed
    assert clock.run(100) == [20]
    assert not clock.timer.is_armed


def test_a_deadline_that_has_passed_calls_back_at_once() -> None:
    clock = Clock()
    clock.run(30)
    clock.timer.arm(10)
    assert clock.handles[0].at_ms == 30


def test_a_cancelled_timer_does_not_call_back_until_it_is_armed_again() -> None:
    clock = Clock()
    clock.timer.arm(20)
    clock.timer.cancel()
    assert not clock.timer.is_armed
    assert clock.run(30) == []
    clock.timer.arm(40)
    assert clock.run(100) == [40]
