"""A player's process: does what the core's `PlayerReady` says, in order, and may die after any part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lockstep.player.core.messages import Hello
from lockstep.player.core.player import Player
from lockstep.player.core.ready import PlayerReady, RangeRead
from lockstep.player.core.settings import NEVER_MS, PlayerSettings
from tests.sim.player.log import Piece
from tests.sim.player.processes import Process
from tests.sim.player.streams import Broken, Stream
from tests.sim.player.targets import LOG_ID, Acknowledgement, Answer, Heartbeat, Refusal

if TYPE_CHECKING:
    from tests.sim.workloads.player import PlayerWorkload

POLL_S = 0.02
WRITE_US = 1000
READ_BYTES = 2000
WHOLE = 1 << 60


class PlayerProcess(Process):
    """One process in one player_term."""

    def __init__(self, workload: PlayerWorkload, player_term: int, settings: PlayerSettings) -> None:
        super().__init__(workload.world)
        self.workload = workload
        self.log = workload.kind(self.world, f"player {player_term}")
        self.streams: dict[tuple[str, int], Stream] = {}
        self.player_term = player_term
        self.ends_after = -1
        """It dies when it has done so many more things."""
        self._random = self.world.random("players")
        self._tick_due_ms = NEVER_MS
        self._run_entries = 0
        self.core = Player(
            LOG_ID,
            player_term,
            workload.kind.route,
            settings,
            self.world.now_ms,
            lambda n: self._random.randrange(n),
        )
        for name, first_position in workload.playing.items():
            self.core.add(name, first_position, self.world.now_ms)
        self.step(self.core.tick)

    # --- one step -----------------------------------------------------------------------------------------

    def step(self, call: Callable[[int], object]) -> None:
        """Something is told to the core; then everything it wants is done."""
        if not self.alive:
            return
        call(self.world.now_ms)
        self.workload.rules.stepped(self.core, self.workload.stores, self._run_entries)
        self._do(self.core.ready())
        self._arm()

    def _do(self, ready: PlayerReady) -> None:
        things: list[Callable[[], object]] = []
        things += [partial(self._close, name, term) for name, term, _ in ready.closes]
        things += [partial(self._greet, *each) for each in ready.hellos]
        things += [partial(self._write, *each) for each in ready.batches]
        things += [partial(self._send, name, term, Heartbeat()) for name, term in ready.heartbeats]
        things += [partial(self._fetch, each) for each in ready.fetches]
        if ready.start_position is not None:
            things.append(partial(self._play, ready.start_position))
        things += [partial(self._stopped, *each) for each in ready.stopped]
        if ready.deposed:
            things.append(partial(self.end, "deposed"))
        for thing in things:
            if self.ends_after == 0:
                self.end("ends halfway")
            if not self.alive:
                return
            self.ends_after -= 1
            thing()

    def _arm(self) -> None:
        due_ms = self.core.deadline_ms
        if self.alive and due_ms < self._tick_due_ms:
            self._tick_due_ms = due_ms
            self.later(max(0, due_ms * 1000 - self.world.now_us) + 1, lambda: self._tick(due_ms))

    def _tick(self, due_ms: int) -> None:
        if due_ms == self._tick_due_ms:
            self._tick_due_ms = NEVER_MS
            self.step(self.core.tick)

    # --- streams ------------------------------------------------------------------------------------------

    def _greet(self, name: str, hello: Hello) -> None:
        term = hello.target_term
        stream = Stream(
            self.world,
            lambda stream, message: self.workload.reaches(name, stream, message),
            lambda message: self.happens(lambda: self._arrived(name, term, message)),
        )
        self.streams[name, term] = stream
        self.workload.streams.append(stream)
        stream.down.send(hello)

    def _send(self, name: str, term: int, message: object) -> None:
        stream = self.streams.get((name, term))
        if stream is None:
            self.world.violate("nothing is written to a closed stream", f"{name} in term {term}: {message}")
        stream.down.send(message)

    def _write(self, name: str, term: int, batch: object) -> None:
        self._send(name, term, batch)
        wait_us = int(self._random.expovariate(1 / WRITE_US))
        self.later(wait_us, partial(self.step, partial(self.core.on_written, name, term)))

    def _close(self, name: str, term: int) -> None:
        """What the target has sent by now still comes, and so does to it what was sent before."""
        stream = self.streams.pop((name, term), None)
        if stream is not None:
            stream.cut(stall=self._random.random() < 0.3, silently=self._random.random() < 0.3)

    def _arrived(self, name: str, term: int, message: object) -> None:
        match message:
            case Answer():
                self.world.spawn(self._answered(name, term, message.position), f"bounds for {name}")
            case Acknowledgement():
                self.step(partial(self.core.on_acknowledged, name, term, message.position))
            case Refusal():
                self.step(partial(self.core.on_stale, name, term, message.player_term))
            case Broken():
                self.step(partial(self.core.on_disconnected, name, term))

    async def _answered(self, name: str, term: int, position: int) -> None:
        piece = await self.log.read(WHOLE, WHOLE, 1)
        first = self.workload.rules.first_position

        def tell(now_ms: int) -> None:
            if piece is None:
                self.core.on_disconnected(name, term, now_ms)  # the log cannot be asked: try again
            else:
                self.core.on_connected(name, term, position, first, piece.next_position, now_ms)

        self.happens(partial(self.step, tell))

    # --- the log ------------------------------------------------------------------------------------------

    def _play(self, position: int) -> None:
        self.world.spawn(self._main(position), f"main stream {self.player_term}")

    async def _main(self, position: int) -> None:
        while self.alive:
            await asyncio.sleep(self._random.expovariate(1 / POLL_S))
            if self.core.has_room and not self.is_paused:
                piece = await self.log.read(position, WHOLE, READ_BYTES)
                first = self.workload.rules.first_position
                if position < first:
                    self.happens(partial(self.step, partial(self.core.feed_lost, first)))
                    position = first
                elif piece is not None and piece.through_position >= position:
                    self._seen(piece)
                    feed = partial(self.core.feed, piece.entries, piece.through_position)
                    self.happens(partial(self.step, feed))
                    position = piece.through_position + 1

    def _seen(self, piece: Piece) -> None:
        """So much may come on top of what a queue's bound says."""
        self._run_entries = max(self._run_entries, len(piece.entries))

    def _fetch(self, fetch: RangeRead) -> None:
        self.world.spawn(self._fetched(fetch), f"fetch for {fetch.target}")

    async def _fetched(self, fetch: RangeRead) -> None:
        name, term = fetch.target, fetch.target_term
        piece = await self.log.read(fetch.first_position, fetch.last_position, READ_BYTES)
        first = self.workload.rules.first_position
        if self.world.working and self._random.random() < self.workload.late_fetches:
            await asyncio.sleep(self._random.expovariate(2.0))  # the answer takes its time

        def tell(now_ms: int) -> None:
            if fetch.first_position < first:
                self.core.on_range_lost(name, term, now_ms)
            elif piece is None or piece.through_position < fetch.first_position:
                self.core.on_fetch_failed(name, term, now_ms)
            else:
                self._seen(piece)
                self.core.on_fetched(name, term, piece.entries, piece.through_position, now_ms)

        self.happens(partial(self.step, tell))

    # --- its end ------------------------------------------------------------------------------------------

    def _stopped(self, name: str, reason: str) -> None:
        if self is self.workload.player:  # an older one does not know what was stored since
            self.workload.rules.stopped(self.workload.stores[name], reason)
        self.world.note("stopped", f"{name}: {reason}")

    def end(self, why: str) -> None:
        """The process is gone; its streams are not, for a while."""
        if not self.alive:
            return
        self.alive = False
        self.world.note("player", f"{self.player_term} {why}")
        for stream in self.streams.values():
            stream.cut(stall=self._random.random() < 0.3, silently=self._random.random() < 0.3)
        self.streams.clear()
