"""A context manager of asyncio in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from lockstep.player.target.threads import in_thread
from tests.support.cases import each_case


class Noted:
    """Where it ran, and what became of it."""

    def __init__(self, *, fails: str = "") -> None:
        self.fails = fails
        self.events: list[str] = []
        self.thread: threading.Thread | None = None

    @contextlib.asynccontextmanager
    async def made(self) -> AsyncIterator[str]:
        self.thread = threading.current_thread()
        self.events.append("entered")
        if self.fails == "entering":
            raise LookupError("entering")
        task = asyncio.ensure_future(asyncio.sleep(0, "it runs"))
        try:
            yield await task
        finally:
            await asyncio.to_thread(self.events.append, "left")
            if self.fails == "leaving":
                raise LookupError("leaving")


def test_it_is_entered_in_a_thread_and_left() -> None:
    noted = Noted()
    with in_thread(noted.made) as entered:
        assert entered == "it runs"
        assert noted.events == ["entered"]
    assert noted.events == ["entered", "left"]
    assert noted.thread is not None
    assert noted.thread is not threading.current_thread()
    assert not noted.thread.is_alive()


def test_it_is_left_after_an_error() -> None:
    noted = Noted()
    with pytest.raises(ZeroDivisionError), in_thread(noted.made):
        raise ZeroDivisionError
    assert noted.events == ["entered", "left"]
    assert noted.thread is not None
    assert not noted.thread.is_alive()


@each_case("fails", ["entering", "leaving"])
def test_its_errors_are_raised(fails: str) -> None:
    noted = Noted(fails=fails)
    with pytest.raises(LookupError, match=fails), in_thread(noted.made):
        pass
    assert noted.thread is not None
    assert not noted.thread.is_alive()
