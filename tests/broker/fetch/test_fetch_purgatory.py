"""Waiting fetches: woken once per commit, finished exactly once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory


class Tries:
    """An attempt that always answers, and remembers whether it had expired."""

    def __init__(self) -> None:
        self.tried: list[bool] = []

    def __call__(self, expired: bool) -> bool:
        self.tried.append(expired)
        return True


class Growing:
    """Stands for a partition: all that waiting needs of one."""

    def __init__(self) -> None:
        self.delayed_fetches: dict[Any, None] = {}


async def test_woken_once_for_several_partitions_of_one_commit() -> None:
    waiting = FetchPurgatory(asyncio.get_running_loop())
    one, two = Growing(), Growing()
    tried: list[bool] = []

    def attempt(expired: bool) -> bool:
        tried.append(expired)
        return len(tried) == 2

    waiting.wait(attempt, [one, two], 10_000)
    assert waiting.count == 1
    waiting.wake(one)
    waiting.wake(two)
    assert tried == []
    await asyncio.sleep(0.01)
    assert tried == [False]
    waiting.wake(two)
    await asyncio.sleep(0.01)
    assert tried == [False, False]
    assert waiting.count == 0
    assert not one.delayed_fetches
    assert not two.delayed_fetches
    waiting.wake(one)
    await asyncio.sleep(0.01)
    assert len(tried) == 2


async def test_expires_and_is_then_forgotten() -> None:
    waiting = FetchPurgatory(asyncio.get_running_loop())
    partition = Growing()
    attempt = Tries()
    waiting.wait(attempt, [partition], 5)
    await asyncio.sleep(0.05)
    assert attempt.tried == [True]
    assert not partition.delayed_fetches
    assert waiting.count == 0


async def test_abandoned_while_woken_is_not_tried() -> None:
    waiting = FetchPurgatory(asyncio.get_running_loop())
    partition = Growing()
    attempt = Tries()
    fetch = waiting.wait(attempt, [partition], 20)
    waiting.wake(partition)
    waiting.cancel(fetch)
    waiting.cancel(fetch)
    await asyncio.sleep(0.05)
    assert attempt.tried == []
    assert waiting.count == 0


async def test_an_attempt_that_raises_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """KAFKA-17240: those behind it were woken already, so that no later commit woke them."""
    waiting = FetchPurgatory(asyncio.get_running_loop())
    partition = Growing()
    attempt = Tries()

    def raising(expired: bool) -> bool:
        raise RuntimeError("a request was answered twice")

    waiting.wait(raising, [partition], 60_000)
    waiting.wait(attempt, [partition], 60_000)
    waiting.wake(partition)
    await asyncio.sleep(0.01)
    assert attempt.tried == [False]
    assert waiting.count == 0
    assert not partition.delayed_fetches
    assert "a waiting fetch failed" in caplog.text
