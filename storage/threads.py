"""Work that waits for the disk, away from the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run `work` as `asyncio.to_thread` does. On cancellation the caller waits for the thread to finish, and
    only then raises CancelledError: no other task may use the same files earlier."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):  # a second one, as of a timeout
                await asyncio.wait([running])
        raise
