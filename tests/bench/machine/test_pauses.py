"""Pauses of the whole machine, with clocks of our own."""

from __future__ import annotations

import time

import pytest

from bench.machine.pauses import PAUSE_MS, SLEEP_S, Pauses, await_calm


class Machine:
    """A clock whose sleeps take longer where the machine stands still."""

    def __init__(self, patch: pytest.MonkeyPatch, *stops: tuple[float, float]) -> None:
        self.now = 0.0
        self._stops = list(stops)
        patch.setattr(time, "sleep", self.sleep)
        patch.setattr(time, "monotonic", lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self._stops and self.now >= self._stops[0][0]:
            self.now += self._stops.pop(0)[1]


def test_a_run_begins_once_the_machine_has_been_still_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch)
    assert await_calm(10.0, 60.0) == pytest.approx(10.0, abs=0.1)
    Machine(monkeypatch, (4.0, 0.3), (9.0, 0.02))
    assert await_calm(10.0, 60.0) == pytest.approx(14.3, abs=0.1), "20 ms are no pause"
    Machine(monkeypatch, *((float(at), 0.4) for at in range(1, 99, 5)))
    assert await_calm(10.0, 60.0) == pytest.approx(60.0, abs=1.0), "it does not wait for ever"


def test_what_a_thread_oversleeps_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pauses() as still:
        time.sleep(4 * SLEEP_S)
    assert not still._thread.is_alive()
    found = Pauses()
    waits = iter([SLEEP_S, SLEEP_S + 0.2, SLEEP_S])
    now = [0.0]

    def wait(seconds: float) -> bool:
        took = next(waits, None)
        now[0] += took or 0.0
        return took is None

    monkeypatch.setattr(found._over, "wait", wait)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    found._run()
    assert found.longest_ms == pytest.approx(200.0) and found.longest_ms >= PAUSE_MS
