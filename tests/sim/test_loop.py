"""asyncio on virtual time: order, time that operations take, pauses, crashes, executors."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.sim.faces import Violation
from tests.sim.loop import SimLoop, new_loop
from tests.sim.options import Options
from tests.sim.plain import PlainWorkload
from tests.sim.world import World


class Bench:
    """A loop on a world that has nothing else to do."""

    def __init__(self, rate_ppm: int = 1_000_000) -> None:
        self.world = World(1, Options(nodes=1), PlainWorkload, lambda _: [])
        self.loop: SimLoop = new_loop(self.world, rate_ppm)
        self.seen: list[Any] = []

    def note(self, what: object) -> None:
        self.seen.append((what, self.world.now_us))

    def run(self, until_us: int = 1 << 60) -> list[Any]:
        world = self.world
        while world._heap and world._heap[0][0] <= until_us:
            world.now_us, _, handler, argument = world._heap[0]
            __import__("heapq").heappop(world._heap)
            handler(argument)
        return self.seen


def test_timers_and_tasks_run_in_order_of_time() -> None:
    bench = Bench()

    async def nap(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        bench.note(name)

    for name, seconds in (("late", 2.0), ("early", 1.0)):
        bench.loop.create_task(nap(name, seconds))
    bench.loop.call_later(1.5, bench.note, "between")
    bench.loop.call_later(1.6, bench.note, "never").cancel()
    assert [what for what, _ in bench.run()] == ["early", "between", "late"]
    assert bench.seen[-1][1] == pytest.approx(2_000_000, abs=5)


def test_a_fast_clock_is_fast() -> None:
    bench = Bench(rate_ppm=1_100_000)
    bench.loop.call_later(1.1, bench.note, "one true second")
    assert bench.run() == [("one true second", pytest.approx(1_000_000, abs=5))]


def test_what_takes_time_makes_the_rest_wait() -> None:
    bench = Bench()
    bench.loop.call_soon(bench.loop.charge, 700)
    bench.loop.call_soon(bench.note, "after")
    bench.loop.call_later(0.0001, bench.note, "timer")
    assert bench.run() == [("after", 700), ("timer", 700)]


def test_a_callback_knows_when_it_began() -> None:
    bench = Bench(rate_ppm=1_100_000)

    def slow() -> None:
        bench.loop.charge(1_000_000)
        bench.seen.append((bench.loop.began_us(), bench.loop.local_us()))

    bench.loop.call_later(1.1, slow)
    assert bench.run() == [(pytest.approx(1_100_000, abs=5), pytest.approx(2_200_000, abs=5))]


def test_a_pause_defers_and_a_crash_drops() -> None:
    bench = Bench()
    bench.loop.paused_until_us = 1_000_000
    bench.loop.call_later(0.5, bench.note, "first")
    bench.loop.call_later(0.6, bench.note, "second")
    bench.loop.call_later(3, bench.note, "never")
    bench.run(2_000_000)
    bench.loop.close()
    bench.loop.call_soon(bench.note, "never")
    assert bench.run() == [("first", 1_000_000), ("second", 1_000_000)]


def test_a_job_runs_later_and_ends_later_still_and_one_worker_keeps_the_order() -> None:
    bench = Bench()
    threads = ThreadPoolExecutor(1)

    def job(name: str, duration_us: int) -> str:
        bench.note(f"{name} runs")
        bench.loop.charge(duration_us)
        return name

    for name, duration_us in (("slow", 5000), ("quick", 10)):
        future = bench.loop.run_in_executor(threads, job, name, duration_us)
        future.add_done_callback(lambda done: bench.note(f"{done.result()} done"))
    bench.loop.call_soon(bench.note, "the loop goes on")
    what = [each for each, _ in bench.run()]
    assert what == ["the loop goes on", "slow runs", "slow done", "quick runs", "quick done"] or what == [
        "the loop goes on", "slow runs", "quick runs", "slow done", "quick done",
    ]  # fmt: skip
    times = dict(bench.seen)
    assert times["quick runs"] >= times["slow runs"] + 5000
    assert times["slow done"] > times["slow runs"] + 5000


def test_an_exception_that_escapes_is_a_violation() -> None:
    bench = Bench()

    def fail() -> None:
        raise KeyError("oh")

    bench.world.clients.call_soon(fail)
    with pytest.raises(Violation, match="KeyError"):
        bench.run()
