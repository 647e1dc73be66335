"""Work in a thread ends before its caller goes on, however often that is cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lockstep.storage.threads import in_thread
from tests.support.cases import each_case


async def test_the_result_and_the_error_are_the_works() -> None:
    assert await in_thread(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


@each_case("times", [1, 3])
async def test_a_cancelled_caller_waits_for_the_thread(times: int) -> None:
    may_end, ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(10)
        ended.set()

    caller = asyncio.create_task(in_thread(work))
    for _ in range(times):
        await asyncio.sleep(0.01)
        caller.cancel()
    await asyncio.sleep(0.01)
    assert not caller.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()
