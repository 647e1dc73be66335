"""Which fault of a player, a target or a stream when. The group's own faults are the world's nemesis's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.player.targets import TargetProcess
    from tests.sim.workloads.player import PlayerWorkload

DOWN_S = 1.0
LOST_ONE_IN = 10
"""Retention that takes what a target still needs."""


class Faults:
    """See the module."""

    def __init__(self, workload: PlayerWorkload) -> None:
        self.workload = workload
        self.world = workload.world
        self.random = self.world.random("player faults")
        self.every_s = self.random.choice((0.1, 0.3, 1.0))
        kinds: list[tuple[str, Callable[[], object]]] = [
            ("player killed", self._kill_player),
            ("player dies halfway", self._kill_player_halfway),
            ("player replaced", self._replace_player),
            ("player paused", self._pause_player),
            ("target killed", self._kill_target),
            ("target replaced", self._replace_target),
            ("target paused", self._pause_target),
            ("target slow", self._slow_target),
            ("target hangs", self._hang_target),
            ("stream cut", self._cut),
            ("stream stalled", self._stall),
            ("log trimmed", self._trim),
            ("target removed", self._remove),
            ("target added", self._add),
        ]
        self.kinds = [each for each in kinds if self.random.random() < 0.7]

    async def hunt(self) -> None:
        """Fault after fault."""
        while self.world.working and self.kinds:
            await asyncio.sleep(self.random.expovariate(1 / self.every_s))
            name, fault = self.random.choice(self.kinds)
            if self.world.working and fault():
                self.world.nemesis.counts[name] += 1
                self.world.note("fault", name)

    def _while_s(self, mean_s: float = 1.0) -> int:
        return int(min(10.0, self.random.expovariate(1 / mean_s)) * 1e6) + 1000

    # --- the player ---------------------------------------------------------------------------------------

    def _kill_player(self) -> bool:
        return self.workload.player_dies("killed", self._while_s(DOWN_S))

    def _kill_player_halfway(self) -> bool:
        player = self.workload.player
        if not player.alive:
            return False
        player.ends_after = self.random.randrange(6)
        return True

    def _replace_player(self) -> bool:
        """The old one does not know, and may be paused until long after."""
        if self.random.random() < 0.5:
            self._pause_player()
        self.workload.new_player()
        return True

    def _pause_player(self) -> bool:
        self.workload.player.pause(self._while_s())
        return True

    # --- targets ------------------------------------------------------------------------------------------

    def _target(self) -> TargetProcess | None:
        living = [each for each in self.workload.processes.values() if each.alive]
        return self.random.choice(living) if living else None

    def _kill_target(self) -> bool:
        target = self._target()
        if target is not None:
            self.workload.target_dies(target, self._while_s(DOWN_S))
        return target is not None

    def _replace_target(self) -> bool:
        """A new process, the old one goes on with the streams that it has."""
        target = self._target()
        if target is not None:
            if self.random.random() < 0.5:
                target.pause(self._while_s())
            self.workload.start_target(target.store)
        return target is not None

    def _pause_target(self) -> bool:
        target = self._target()
        if target is not None:
            target.pause(self._while_s(2.0))
        return target is not None

    def _slow_target(self) -> bool:
        target = self._target()
        if target is not None:
            target.slow_until_us = self.world.now_us + self._while_s(3.0)
        return target is not None

    def _hang_target(self) -> bool:
        target = self._target()
        if target is not None:
            target.hangs_until_us = self.world.now_us + self._while_s(3.0)
        return target is not None

    # --- streams and the log ------------------------------------------------------------------------------

    def _cut(self) -> bool:
        streams = self.workload.open_streams()
        if streams:
            stall, silently = self.random.random() < 0.5, self.random.random() < 0.3
            self.random.choice(streams).cut(stall=stall, silently=silently)
        return bool(streams)

    def _stall(self) -> bool:
        streams = self.workload.open_streams()
        if streams:
            self.random.choice(streams).stall()
        return bool(streams)

    def _trim(self) -> bool:
        """Retention: mostly what everybody has, at times what somebody lacks."""
        rules = self.workload.rules
        lacking = [store.position + 1 for store in self.workload.stores.values()]
        first = min(lacking)
        if self.random.randrange(LOST_ONE_IN) == 0 and not self.workload.has_lost:
            first = sorted(lacking)[1]  # one target at most
            self.workload.has_lost = first > min(lacking)
        if first <= rules.first_position:
            return False
        rules.first_position = first
        return True

    # --- who plays ----------------------------------------------------------------------------------------

    def _remove(self) -> bool:
        names = list(self.workload.playing)
        if len(names) > 1:
            self.workload.remove(self.random.choice(names))
        return len(names) > 1

    def _add(self) -> bool:
        names = [name for name in self.workload.stores if name not in self.workload.playing]
        if names:
            self.workload.add(self.random.choice(names))
        return bool(names)
