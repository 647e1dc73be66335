"""Calls to the application's own functions: plain or async, on the event loop or in threads.

Owns what their exceptions may do: a callback's goes to the application's `on_exception` and changes nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextvars import ContextVar, copy_context
from typing import Any

from lockstep.transactions.model import Application

Function = Callable[..., Any]

IN_APPLICATION: ContextVar[bool] = ContextVar("in_application", default=False)
"""Whether the caller is an application's function, on the loop or in a thread. A subscription waits for
them."""

DEADLOCK_TEXT = "execute in a callback: the subscription waits for the callback; use submit"

_log = logging.getLogger("lockstep.transactions")


class Calls:
    """Calls of one application's functions. `executor`: runs plain functions, if they block."""

    def __init__(self, application: Application, executor: Executor | None) -> None:
        self.application = application
        self._executor = executor

    async def call(self, function: Function, *arguments: object) -> Any:
        """The result of the function. Raises its errors."""
        before = IN_APPLICATION.set(True)
        try:
            if self._executor is not None and not inspect.iscoroutinefunction(function):
                loop = asyncio.get_running_loop()
                run = copy_context().run
                result = await loop.run_in_executor(self._executor, run, function, *arguments)
            else:
                result = function(*arguments)
            return await result if isinstance(result, Awaitable) else result
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The application's own: a subscription that takes it for an end would stall, and no one
            # knew.
            raise RuntimeError(f"{function!r} was cancelled") from error
        finally:
            IN_APPLICATION.reset(before)

    async def call_whole(self, function: Function, *arguments: object) -> Any:
        """For subscriptions: a thread cannot be stopped, and nothing may be applied beside what it
        applies."""
        if self._executor is None or inspect.iscoroutinefunction(function):
            return await self.call(function, *arguments)
        calling = asyncio.ensure_future(self.call(function, *arguments))
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            await asyncio.gather(calling, return_exceptions=True)
            raise

    async def notify(self, function: Function, *arguments: object) -> None:
        """A transaction's callback."""
        try:
            await self.call(function, *arguments)
        except Exception as error:
            error.add_note(f"in {function!r}")
            await self.report(-1, -1, error)

    async def report(self, partition: int, offset: int, error: BaseException) -> None:
        """To the application's `on_exception`, which may fail, too."""
        try:
            await self.call(self.application.on_exception, partition, offset, error)
        except Exception:
            _log.exception("on_exception failed, too")
