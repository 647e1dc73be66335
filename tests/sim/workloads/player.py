"""The `player` workload: the real cores of player and targets, playing what clients append to the group.

Owns: who plays to whom, the processes that come after those that died, and when all is done. There is one
player that is meant to play; older ones may still run and not know it. A player_term stands for the record
that a player commits before it plays. The parts, and the rules, are in `tests/sim/player`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from lockstep.player.core.settings import Bound, PlayerSettings
from lockstep.player.core.target import LinkState
from lockstep.player.core.transitions import QueueState
from lockstep.protocol.records.record import BatchBuilder
from tests.sim.faces import Workload
from tests.sim.player.faults import Faults
from tests.sim.player.group_log import GroupLog
from tests.sim.player.log import Log
from tests.sim.player.rules import Rules
from tests.sim.player.shell import PlayerProcess
from tests.sim.player.streams import Stream
from tests.sim.player.targets import Store, TargetProcess
from tests.sim.workloads.asking import BACKOFF_S, at_rest, until

if TYPE_CHECKING:
    from tests.sim.world import World

NAMES: Final = ("a", "b", "c", "d")
BUSY_ONE_IN: Final = 4
"""Times at which a client appends without a pause."""


class PlayerWorkload(Workload):
    """See the module."""

    name = "player"
    kind: ClassVar[type[Log]] = Log
    overrides: ClassVar[Mapping[str, object]] = {"nodes": 1, "safety_s": 30, "think_ms": 100, "rot": False}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.rules = Rules(world, self.kind)
        self.random = world.random("player workload")
        self.stores = {name: Store(name) for name in NAMES[: self.random.choice((2, 3, 4))]}
        self.playing = {name: self.kind.first_position for name in self.stores}
        """The targets that are played to, and where each begins if it has nothing yet."""
        self.settings = self._drawn()
        world.note("player", repr(self.settings))
        self.processes: dict[str, TargetProcess] = {}
        """The newest of each target."""
        self.late_fetches = self.random.choice((0.0, 0.05, 0.3))
        self.apply_us = self.random.choice((200, 1000, 5000))
        self.streams: list[Stream] = []
        self.has_lost = False
        """Whether a target lacks what the log does not have any more."""
        self.player_term = 0
        for store in self.stores.values():
            self.start_target(store)
        self.player: PlayerProcess
        self._active = 0
        self._numbers = 0

    def _drawn(self) -> PlayerSettings:
        random = self.random
        return PlayerSettings(
            batch=Bound(random.choice((1, 3, 20)), random.choice((50, 1000))),
            window=Bound(random.choice((1, 10, 100)), random.choice((300, 5000))),
            normal=Bound(random.choice((5, 30, 300)), random.choice((1000, 20_000))),
            catchup=Bound(random.choice((1, 10, 100)), random.choice((300, 5000))),
            dummy_every=random.choice((0, 2, 10, 50)),
            quiet_ms=random.choice((0, 300, 10_000)),
            heartbeat_ms=random.choice((50, 200)),
            silent_heartbeats=random.choice((2, 6)),
            stuck_heartbeats=random.choice((2, 20)),
            hello_timeout_ms=random.choice((200, 1000)),
            start_timeout_ms=random.choice((100, 3000)),
            backoff_ms=random.choice((5, 50)),
            longest_backoff_ms=random.choice((50, 1000)),
        )

    # --- processes ----------------------------------------------------------------------------------------

    def new_player(self) -> None:
        """Another one takes over, whether or not the one before it still runs."""
        self.player_term += 1
        self.player = PlayerProcess(self, self.player_term, self.settings)

    def player_dies(self, why: str, down_us: int) -> bool:
        """And another one comes after a while."""
        player = self.player
        if not player.alive:
            return False
        player.end(why)
        self.world.push(self.world.now_us + down_us, lambda _: self._after(player), None)
        return True

    def _after(self, player: PlayerProcess) -> None:
        if self.player is player:
            self.new_player()

    def start_target(self, store: Store) -> None:
        self.processes[store.name] = TargetProcess(self.world, store, self.rules, self.apply_us)

    def target_dies(self, target: TargetProcess, down_us: int) -> None:
        target.alive = False
        for stream in target.streams():
            stream.cut(stall=self.random.random() < 0.3, silently=self.random.random() < 0.5)
        self.world.push(self.world.now_us + down_us, lambda _: self._next(target), None)

    def _next(self, target: TargetProcess) -> None:
        if self.processes[target.store.name] is target:
            self.start_target(target.store)

    def reaches(self, name: str, stream: Stream, message: object) -> None:
        """Something arrives for a target: at the process that has the stream, or at the newest."""
        process = stream.server if stream.server is not None else self.processes[name]
        stream.server = process
        if process.alive:
            process.happens(lambda: process.arrived(stream, message))
        else:
            stream.cut()  # nobody listens

    def open_streams(self) -> list[Stream]:
        """Those that are not cut."""
        self.streams = [each for each in self.streams if not each.down.is_cut]
        return self.streams

    def remove(self, name: str) -> None:
        """The player that is meant to play hears of it; others do not."""
        del self.playing[name]
        self.player.happens(lambda: self.player.step(lambda now_ms: self._remove(name, now_ms)))

    def _remove(self, name: str, now_ms: int) -> None:
        if name in self.player.core.targets and name not in self.playing:
            self.player.core.remove(name, now_ms)

    def add(self, name: str) -> None:
        first = self.random.randint(
            self.rules.first_position, max(self.rules.first_position, self.rules.last_position)
        )
        self.playing[name] = first
        self.player.happens(lambda: self.player.step(lambda now_ms: self._add(name, now_ms)))

    def _add(self, name: str, now_ms: int) -> None:
        if name not in self.player.core.targets and name in self.playing:
            self.player.core.add(name, self.playing[name], now_ms)
            self.player.core.tick(now_ms)

    # --- clients ------------------------------------------------------------------------------------------

    async def client(self, number: int) -> None:
        self._active += 1
        random = self.world.random(f"client {number}")
        log = self.kind(self.world, f"client {number}")
        if number == 0:
            await log.open()
            self.new_player()
            self.world.spawn(Faults(self).hunt(), "player faults")
            self.world.spawn(self._watch(), "player watch")
        while self.world.working:
            if random.randrange(BUSY_ONE_IN):
                await asyncio.sleep(random.expovariate(1.0) * self.world.options.think_ms / 1000)
            if not await log.append(self._batch(random.choice((1, 1, 2, 10)))):
                await asyncio.sleep(BACKOFF_S)
        self._active -= 1

    def _batch(self, count: int) -> bytes:
        builder = BatchBuilder()
        for _ in range(count):
            self._numbers += 1
            names = [name for name in self.stores if self.random.random() < 0.4]
            padding = "x" * self.random.choice((0, 10, 200))
            builder.append(f"{','.join(names)};{self._numbers};{padding}".encode(), timestamp_ms=1)
        return bytes(builder.build())

    async def _watch(self) -> None:
        """Whoever died halfway, or was wrongly deposed, is followed by another."""
        while True:
            await asyncio.sleep(self.world.random("watch").expovariate(1.0))
            if not self.player.alive:
                self._after(self.player)

    async def write_on(self) -> None:
        await self.kind(self.world, "on").append(self._batch(1))

    # --- the end ------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Everybody that lacks nothing has everything, and the player knows it."""
        await until(lambda: self._active == 0)
        for name in [name for name in self.stores if name not in self.playing]:
            self.add(name)
        last = self.kind(self.world, "last")
        await until(lambda: last.append(self._batch(3)))
        await until(self._all_played)
        for store in self.stores.values():
            self.rules.holds(store)

    def _all_played(self) -> bool:
        core = self.player.core
        if not self.player.alive or not core.started or core.current_position < self.rules.last_position:
            return False
        return all(self._has_all(name) for name in self.stores)

    def _has_all(self, name: str) -> bool:
        store = self.stores[name]
        if store.mark is not None and self._lacks(store):
            return True  # until somebody sees to it
        due = self.rules.parts(name, store.position, self.rules.last_position)
        target = self.player.core.targets.get(name)
        if due or target is None or target.link is not LinkState.OPEN:
            return False
        queue = target.queue
        return queue.state is QueueState.NORMAL and not queue.normal and not queue.popped

    def _lacks(self, store: Store) -> bool:
        target = self.player.core.targets.get(store.name)
        return target is not None and target.link is LinkState.STOPPED and self.has_lost


class GroupPlayerWorkload(PlayerWorkload):
    """The same in the order of the log group, on three nodes: who leads, reads."""

    name = "player_group"
    kind = GroupLog
    overrides: ClassVar[Mapping[str, object]] = {**PlayerWorkload.overrides, "nodes": 3}

    async def settle(self) -> None:
        await super().settle()
        await at_rest(self.world)
