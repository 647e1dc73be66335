"""Turns of the loop: over when their time is, and what is left is gone on with where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lockstep.broker.requests import time_slices
from lockstep.broker.requests.time_slices import TIME_SLICE_SECONDS, TimeSlice, TimeSlicer, run_slice


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 5.0
        monkeypatch.setattr(time_slices, "clock", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_turn(clock: Clock) -> None:
    time_slice = TimeSlice()
    assert not time_slice.is_over
    clock.now += TIME_SLICE_SECONDS
    assert time_slice.is_over
    time_slice = TimeSlice()
    assert not time_slice.is_over
    clock.now += TIME_SLICE_SECONDS
    assert time_slice.is_over
    longer = TimeSlice(1.0)
    clock.now += 0.9
    assert not longer.is_over


def test_steps(clock: Clock) -> None:
    taken: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(7):
            yield
            taken.append(number)
            clock.now += TIME_SLICE_SECONDS * 0.4

    left = steps()
    assert not run_slice(left)
    assert taken == [0, 1, 2]
    assert not run_slice(left)
    assert taken == [0, 1, 2, 3, 4, 5], "the one it stopped before comes first"
    assert run_slice(left)
    assert taken == list(range(7))


def test_there_is_something_left_wherever_it_stops(clock: Clock) -> None:
    """One that took long and was the last needs no turn more."""

    def steps() -> Iterator[None]:
        yield
        clock.now += 9.0

    assert run_slice(steps())
    assert run_slice(iter(()))


class Loop:
    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []

    def run_turn(self) -> None:
        ready, self.ready = self.ready, []
        for each in ready:
            each()


def test_all_that_goes_on_has_one_turn(clock: Clock) -> None:
    loop, taken = Loop(), list[int]()
    shared = TimeSlicer(lambda work: loop.ready.append(work))

    def work(number: int, times: int) -> Callable[[], None]:
        def do() -> None:
            taken.append(number)
            clock.now += TIME_SLICE_SECONDS * 0.6
            if times > 1:
                shared.schedule(work(number, times - 1))

        return do

    for number in range(3):
        shared.schedule(work(number, 2))
    loop.run_turn()
    assert taken == [0, 1], "and each its share"
    loop.run_turn()
    assert taken == [0, 1, 2, 0]
    loop.run_turn()
    loop.run_turn()
    assert taken == [0, 1, 2, 0, 1, 2]
    assert not loop.ready


def test_one_that_fails_does_not_hold_up_the_others(clock: Clock) -> None:
    loop, taken = Loop(), list[str]()
    shared = TimeSlicer(lambda work: loop.ready.append(work))

    def fail() -> None:
        raise ZeroDivisionError("planted")

    shared.schedule(fail)
    shared.schedule(lambda: taken.append("next"))
    with pytest.raises(ZeroDivisionError):
        loop.run_turn()
    loop.run_turn()
    assert taken == ["next"] and not loop.ready


def test_short_work_runs_once_an_iteration(clock: Clock) -> None:
    loop, taken = Loop(), list[int]()
    shared = TimeSlicer(lambda work: loop.ready.append(work))

    def again() -> None:
        taken.append(len(taken))
        if len(taken) < 3:
            shared.schedule(again)

    shared.schedule(again)
    for count in (1, 2, 3, 3):
        loop.run_turn()
        assert len(taken) == count
