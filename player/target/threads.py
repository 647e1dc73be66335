"""An asyncio context manager for those without asyncio: entered on an event loop of its own, in a thread.

    with in_thread(lambda: serve(store, "localhost:7100")) as serving:
        ...

Does not: share the loop, or outlive the block: what was entered is left when it ends, whatever ended it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def in_thread(
    make: Callable[[], AbstractAsyncContextManager[T]], name: str = "lockstep-target-loop"
) -> Iterator[T]:
    """The context manager that `make` returns, entered; it is called on the loop. Raises what entering and
    leaving raise."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()

    async def enter() -> tuple[AbstractAsyncContextManager[T], T]:
        manager = make()
        return manager, await manager.__aenter__()

    async def leave(manager: AbstractAsyncContextManager[T]) -> None:
        await manager.__aexit__(None, None, None)

    try:
        manager, entered = asyncio.run_coroutine_threadsafe(enter(), loop).result()
        try:
            yield entered
        finally:
            asyncio.run_coroutine_threadsafe(leave(manager), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
