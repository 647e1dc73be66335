"""Turns of the loop: over when their time is, and what is left is gone on with where it stopped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker import turns
from broker.turns import TURN_SECONDS, Turn, done_in_turn


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 5.0
        monkeypatch.setattr(turns, "clock", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_turn(clock: Clock) -> None:
    turn = Turn()
    assert not turn.is_over
    clock.now += TURN_SECONDS
    assert turn.is_over
    turn.begin()
    assert not turn.is_over
    clock.now += TURN_SECONDS
    assert turn.is_over
    longer = Turn(1.0)
    clock.now += 0.9
    assert not longer.is_over


def test_steps(clock: Clock) -> None:
    taken: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(7):
            yield
            taken.append(number)
            clock.now += TURN_SECONDS * 0.4

    left = steps()
    assert not done_in_turn(left)
    assert taken == [0, 1, 2]
    assert not done_in_turn(left)
    assert taken == [0, 1, 2, 3, 4, 5], "the one it stopped before comes first"
    assert done_in_turn(left)
    assert taken == list(range(7))


def test_there_is_something_left_wherever_it_stops(clock: Clock) -> None:
    """One that took long and was the last needs no turn more."""

    def steps() -> Iterator[None]:
        yield
        clock.now += 9.0

    assert done_in_turn(steps())
    assert done_in_turn(iter(()))
