"""One request of an id after the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.transactions import request_queue as module
from lockstep.broker.transactions.request_queue import MAX_QUEUED, KeyedQueue, PendingResult
from lockstep.protocol.errors import ErrorCode


class Desk:
    """Work that waits until it is let through, and notes when it was done."""

    def __init__(self) -> None:
        self.lines = KeyedQueue(asyncio.get_running_loop())
        self.began: list[str] = []
        self.done: list[str] = []
        self.open = asyncio.Event()

    def work(self, name: str, *, early: bool = False, fails: Exception | None = None) -> module.Work:
        async def serve(answer: PendingResult) -> None:
            self.began.append(name)
            if early:
                answer.set_result(name)
            await self.open.wait()
            if fails is not None:
                raise fails
            self.done.append(name)
            if not answer.done():
                answer.set_result(name)

        return serve

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def ask(desk: Desk, key: str, name: str, **more: Any) -> Any:
    return await desk.lines.run(key, desk.work(name, **more))


async def test_requests_of_one_id_run_in_order_and_others_do_not_wait() -> None:
    desk = Desk()
    asked = [asyncio.ensure_future(ask(desk, key, key + name)) for name in "12" for key in "ab"]
    await desk.turn()
    assert desk.began == ["a1", "b1"]
    assert not desk.lines.is_free("a")
    desk.open.set()
    assert await asyncio.gather(*asked) == ["a1", "b1", "a2", "b2"]
    await desk.turn()
    assert desk.lines.is_free("a")


async def test_an_answer_may_come_before_the_work_is_done() -> None:
    desk = Desk()
    assert await ask(desk, "a", "first", early=True) == "first"
    assert not desk.done
    second = asyncio.ensure_future(ask(desk, "a", "second"))
    await desk.turn()
    assert desk.began == ["first"]
    desk.open.set()
    assert await second == "second"


async def test_a_failure_is_reported_and_the_next_request_runs(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.open.set()
    with pytest.raises(RequestError):
        await ask(desk, "a", "refused", fails=RequestError(ErrorCode.PRODUCER_FENCED, "no"))
    assert not caplog.records
    with pytest.raises(ZeroDivisionError):
        await ask(desk, "a", "wrong", fails=ZeroDivisionError())
    assert "a request failed" in caplog.text
    assert await ask(desk, "a", "right") == "right"


async def test_a_request_that_waits_too_long_is_to_be_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_TIMEOUT_SECONDS", 0.01)
    desk = Desk()
    for name in ("begun", "in line"):
        with pytest.raises(RequestError) as refused:
            await ask(desk, "a", name)
        assert refused.value.error is ErrorCode.CONCURRENT_TRANSACTIONS
    desk.open.set()
    assert await ask(desk, "a", "last") == "last"
    assert desk.done == ["begun", "last"]  # what had begun went on, what had not was left out


async def test_a_line_is_bounded() -> None:
    desk = Desk()
    asked = [asyncio.ensure_future(ask(desk, "a", str(number))) for number in range(MAX_QUEUED)]
    await desk.turn()
    with pytest.raises(RequestError) as refused:
        await ask(desk, "a", "one more")
    assert refused.value.error is ErrorCode.CONCURRENT_TRANSACTIONS
    desk.open.set()
    await asyncio.gather(*asked)


async def test_a_close_fails_all_requests() -> None:
    desk = Desk()
    early = await ask(desk, "a", "0", early=True)
    asked = [asyncio.ensure_future(ask(desk, key, key)) for key in "aab"]
    await desk.turn()
    desk.lines.close(lambda: RequestError(ErrorCode.NOT_COORDINATOR, "gone"))
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert [each.error for each in told if isinstance(each, RequestError)] == [ErrorCode.NOT_COORDINATOR] * 3
    desk.open.set()
    await desk.turn()
    assert early == "0"
    assert not desk.done
    assert desk.lines.is_free("a")
    assert await ask(desk, "a", "afterwards") == "afterwards"
