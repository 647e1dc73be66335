"""A log group whose leadership a test tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class FakeConfirming:
    """Says whether a leadership lasts when a test does."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[bool]] = []

    def confirm_leadership(self) -> asyncio.Future[bool]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


class FakeGroup:
    """A log group that leads, and has committed, when told so."""

    group_id = 1
    time_ms = 0

    def __init__(self) -> None:
        self.on_leading: list[Callable[[bool], None]] = []
        self.is_leader = self.has_lease = False
        self.read_index = FakeConfirming()
        self.waiters: list[Callable[[BaseException | None], None]] = []

    def when_committed(self, waiter: Callable[[BaseException | None], None]) -> None:
        self.waiters.append(waiter)

    def lead(self, leading: bool) -> None:
        self.is_leader = self.has_lease = leading
        for listener in self.on_leading:
            listener(leading)

    def commit(self, error: BaseException | None = None) -> None:
        self.waiters.pop(0)(error)
