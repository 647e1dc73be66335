"""A process: what happens to it waits while it is paused, and is nothing to it any more when it is dead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.world import World


class Process:
    """See the module."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        self.paused_until_us = 0
        self._held: deque[Callable[[], object]] = deque()

    @property
    def is_paused(self) -> bool:
        return self.world.now_us < self.paused_until_us or bool(self._held)

    def pause(self, for_us: int) -> None:
        """It does nothing for a while, and then all at once."""
        self.paused_until_us = max(self.paused_until_us, self.world.now_us + for_us)
        self.world.push(self.paused_until_us, self._wake, None)

    def happens(self, what: Callable[[], object]) -> None:
        """Something reaches the process, in the order of these calls."""
        if not self.alive:
            return
        if self.is_paused:
            self._held.append(what)
        else:
            what()

    def later(self, after_us: int, what: Callable[[], object]) -> None:
        """Something of its own, in a while."""
        self.world.push(self.world.now_us + after_us, lambda _: self.happens(what), None)

    def _wake(self, _: object) -> None:
        while self._held and self.alive and self.world.now_us >= self.paused_until_us:
            self._held.popleft()()
