"""A stream between a player and a target: in order each way, each thing once, until it is cut.

What was sent before the cut arrives, perhaps seconds later, when another stream has long taken its place;
what is sent afterwards is lost. Either end hears of the cut behind all that still arrives, or never.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.player.targets import TargetProcess
    from tests.sim.world import World

MEAN_US = 2000
LONGEST_STALL_S = 8.0


class Broken:
    """What an end that hears of the cut gets instead of a message."""


class Pipe:
    """One direction."""

    def __init__(self, world: World, random: Random, arrive: Callable[[object], object]) -> None:
        self._world = world
        self._random = random
        self._arrive = arrive
        self._under_way: deque[object] = deque()
        self._stalled_until_us = 0
        self._newest_us = 0
        self.is_cut = False

    def send(self, message: object) -> None:
        if self.is_cut:
            return
        self._under_way.append(message)
        delay_us = int(self._random.expovariate(1 / MEAN_US)) + 1
        self._newest_us = max(self._newest_us, self._world.now_us + delay_us, self._stalled_until_us)
        self._world.push(self._newest_us, self._next, None)

    def stall(self, for_us: int) -> None:
        """Nothing arrives for a while."""
        self._stalled_until_us = max(self._stalled_until_us, self._world.now_us + for_us)

    def _next(self, _: object) -> None:
        if self._world.now_us < self._stalled_until_us:
            self._world.push(self._stalled_until_us, self._next, None)
        else:
            self._arrive(self._under_way.popleft())


class Stream:
    """Both directions. `down` is to the target."""

    def __init__(
        self,
        world: World,
        to_target: Callable[[Stream, object], object],
        to_player: Callable[[object], object],
    ) -> None:
        self._random = world.random("streams")
        self.server: TargetProcess | None = None
        """Whom the first thing that came down has reached."""
        self.down = Pipe(world, self._random, lambda message: to_target(self, message))
        self.up = Pipe(world, self._random, to_player)

    def stall(self) -> None:
        for_us = int(min(LONGEST_STALL_S, self._random.expovariate(0.7)) * 1e6)
        for pipe in self._random.choice(((self.down,), (self.up,), (self.down, self.up))):
            pipe.stall(for_us)

    def cut(self, *, stall: bool = False, silently: bool = False) -> None:
        """Nothing sent from now on arrives."""
        if stall:
            self.stall()
        for pipe in (self.down, self.up):
            if not silently:
                pipe.send(Broken())
            pipe.is_cut = True
