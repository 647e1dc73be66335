"""One log played to its targets: the asyncio shell around one `player.core.player.Player`.

Owns: the streams, the tasks, and the order in which things are told to the core. Invariants: a call into the
core and everything that it wants done is one step, without an await; what is told from within a step (a
transport may do that) waits for its end; between a read of the main stream and the writes that follow from it
the loop does not turn. Does not: choose targets (the router), know what is in an entry, keep anything on a
disk, take a player_term, close the source or the transport.
Source: seed 000; what a shell must do is in `player/core/__init__.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from random import randrange
from typing import Any

from player.core.messages import NOTHING, Batch, Hello
from player.core.player import Player
from player.core.ready import Fetch, PlayerReady
from player.core.router import Router
from player.core.settings import PlayerSettings
from player.playing.alarm import Alarm
from player.playing.counters import TargetCounters
from player.playing.ended import Deposed, PlayingEnded, ended_by
from player.playing.main_stream import MainStream
from player.playing.played_target import KnownTarget, PlayedTarget
from player.playing.status import PlayingStatus, target_status
from player.playing.target_stream import TargetStream
from player.source.interface import Bounds, Source, log_name
from player.transport.interface import Handshake, Streams

log = logging.getLogger("lockstep.player")


class Playing:
    """See the module. Make it on the running loop; then `run` it.

    Args:
        source: of the log; several reads are under way at once.
        streams: the transport; other playings may share it.
        route: as the core's; what it raises ends the playing.
        player_term: of a committed record, higher than that of every player before.
        targets: who is there at the start. The main stream begins when all of them have answered, or the
            time for it is up.
        poll_s: how long a read of the main stream waits at the source where there is nothing.
    """

    def __init__(
        self,
        source: Source,
        streams: Streams,
        route: Router,
        settings: PlayerSettings,
        player_term: int,
        targets: Iterable[PlayedTarget],
        *,
        poll_s: float = 1.0,
        random: Callable[[int], int] = randrange,
    ) -> None:
        self.source = source
        self.log_name = log_name(source)
        self.streams = streams
        self.settings = settings
        self.poll_s = poll_s
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._tick)
        self.core = Player(source.log_id, player_term, route, settings, self._alarm.now_ms, random)
        self.main = MainStream(self)
        self._known: dict[str, KnownTarget] = {}
        self._told: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_stepping = False
        self._is_running = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_be_due = False
        """Earlier than before this step."""
        self._newest_player_term = player_term
        for each in targets:
            self.add(*each)

    # --- for who runs it ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Play until cancelled. Raises PlayingEnded: deposed, no log any more, a router that failed."""
        self._is_running = True
        try:
            self._tick()
            await self._ended
        finally:
            self._is_running = False
            await self._leave()

    def add(self, name: str, address: str, first_position: int = 0, from_earliest: bool = False) -> None:
        """One more target, at any time; without a mark it begins as `PlayedTarget` says.

        Raises ValueError: it is there.
        """
        if name in self._known:
            raise ValueError(f"there is a target {name!r} already")
        self._known[name] = KnownTarget(address, from_earliest)
        self._tell(self.core.add, name, first_position)
        if self._is_running:
            self._tick()

    def remove(self, name: str) -> None:
        """Close its stream, and forget it; its mark stays with it. KeyError: there is none."""
        self._tell_of(name, self._removed)

    def stop(self, name: str, reason: str) -> None:
        """Send nothing to a target until it is resumed. KeyError: there is none."""
        self._tell_of(name, self.core.stop, reason)

    def resume(self, name: str) -> None:
        """Try a stopped target again, at once. KeyError: there is none."""
        self._tell_of(name, self.core.resume)
        if self._is_running:
            self._tick()

    def target_counters(self, name: str) -> TargetCounters:
        """KeyError: there is no such target."""
        return self._known[name].counters

    def status(self) -> PlayingStatus:
        """As things stand now."""
        core, source = self.core, self.source
        ended = self._ended.exception() if self._ended.done() and not self._ended.cancelled() else None
        return PlayingStatus(
            log_id=core.log_id,
            topic=source.topic,
            partition=source.partition,
            log_group=source.log_group,
            player_term=core.player_term,
            started=core.started,
            current_position=core.current_position,
            unrouted=core.unrouted,
            ended_because="" if ended is None else str(ended),
            targets=[
                target_status(target, known.address, known.closed_because, core, self.settings)
                for name, known in self._known.items()
                if (target := core.targets.get(name)) is not None
            ],
        )

    # --- one step -----------------------------------------------------------------------------------------

    def step(self, call: Callable[..., object], *args: Any) -> None:
        """Tell the core something, and do everything that it wants done; within a step, after it."""
        if self._ended.done():
            return
        self._told.append((call, args))
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._told and not self._ended.done():
                call, args = self._told.popleft()
                call(*args, self._alarm.now_ms)
                self._do(self.core.ready())
        except Exception as error:  # of a router, most likely: there is no going on
            self._end(ended_by(error))
        finally:
            self._is_stepping = False
        self.main.stepped()
        if self._may_be_due and self._is_running and not self._ended.done():
            self._may_be_due = False
            self._alarm.set(self.core.deadline_ms)

    def _tell(self, call: Callable[..., object], *args: Any) -> None:
        """A step after which something may be due earlier than before."""
        self._may_be_due = True
        self.step(call, *args)

    def _tell_of(self, name: str, call: Callable[..., object], *args: Any) -> None:
        """KeyError: there is no such target."""
        if name not in self._known:
            raise KeyError(name)
        self._tell(call, name, *args)

    def _tick(self) -> None:
        self._tell(self.core.tick)

    def _do(self, ready: PlayerReady) -> None:
        """In the order of its attributes."""
        for name, target_term, why in ready.closes:
            self._close(name, target_term, why)
            self._may_be_due = True  # a backoff has begun
        for name, hello in ready.hellos:
            self._greet(name, hello)
        for name, target_term, batch in ready.batches:
            self._write(name, target_term, batch)
        for name, target_term in ready.heartbeats:
            if (stream := self._stream(name, target_term)) is not None:
                stream.stream.heartbeat()
        for fetch in ready.fetches:
            self._fetch(fetch)
        if ready.start_position is not None:
            self.spawn(self.main.read_from(ready.start_position))
        for name, reason in ready.stopped:
            log.warning("%s: target %s is stopped: %s", self.log_name, name, reason)
        if ready.unrouted is not None:
            text = (
                "%s: a record is for target %.200r, which is not there: such records are dropped and counted"
            )
            log.warning(text, self.log_name, ready.unrouted)
        if ready.deposed:
            self._end(Deposed(self._newest_player_term))

    # --- streams ------------------------------------------------------------------------------------------

    def _stream(self, name: str, target_term: int) -> TargetStream | None:
        known = self._known.get(name)
        stream = None if known is None else known.stream
        return stream if stream is not None and stream.target_term == target_term else None

    def _close(self, name: str, target_term: int, why: str) -> None:
        if (stream := self._stream(name, target_term)) is not None:
            self._over(name, why, "is given up")
            stream.close()

    def _greet(self, name: str, hello: Hello) -> None:
        known = self._known[name]
        known.counters.streams += 1
        known.stream = TargetStream(self, name, hello.target_term)
        handshake = Handshake(hello, self.source.topic, self.source.partition)
        if self.core.targets[name].last_ack == NOTHING:
            known.stream.open_new(known.address, handshake, known.from_earliest)
        else:
            known.stream.open(known.address, handshake)

    def _write(self, name: str, target_term: int, batch: Batch) -> None:
        if (stream := self._stream(name, target_term)) is not None:
            self._known[name].counters.sent(batch)
            stream.stream.write(batch)

    def _fetch(self, fetch: Fetch) -> None:
        if (stream := self._stream(fetch.target, fetch.target_term)) is not None:
            counters = self._known[fetch.target].counters
            counters.fetches += 1
            counters.recoveries += stream.fetch(fetch)

    # --- what streams tell --------------------------------------------------------------------------------

    def on_connected(self, stream: TargetStream, position: int, bounds: Bounds) -> None:
        known = self._known.get(stream.name)
        if known is not None and known.stream is stream and known.logged:
            known.logged = ""
            log.info("%s: target %s is connected again, at %d", self.log_name, stream.name, position)
        self._tell(self.core.on_connected, stream.name, stream.target_term, position, *bounds)

    def on_disconnected(self, stream: TargetStream, reason: str) -> None:
        self._tell(self._disconnected, stream, reason)

    def on_misplaced(self, stream: TargetStream, reason: str) -> None:
        """It has no mark, and is to begin where the log is not."""
        self._tell(self._misplaced, stream, reason)

    def on_stale(self, stream: TargetStream, player_term: int) -> None:
        self._newest_player_term = max(player_term, self._newest_player_term)
        self._tell(self.core.on_stale, stream.name, stream.target_term, player_term)

    def on_acknowledged(self, stream: TargetStream, position: int) -> None:
        if (known := self._known.get(stream.name)) is not None:
            known.counters.acknowledgements += 1
        self.step(self.core.on_acknowledged, stream.name, stream.target_term, position)

    def on_written(self, stream: TargetStream) -> None:
        self.step(self.core.on_written, stream.name, stream.target_term)

    def _disconnected(self, stream: TargetStream, reason: str, now_ms: int) -> None:
        known = self._known.get(stream.name)
        if known is not None and known.stream is stream:
            self._over(stream.name, reason, "ended")
        self.core.on_disconnected(stream.name, stream.target_term, now_ms)

    def _misplaced(self, stream: TargetStream, reason: str, now_ms: int) -> None:
        if (known := self._known.get(stream.name)) is not None and known.stream is stream:
            self.core.stop(stream.name, reason, now_ms)

    def _over(self, name: str, reason: str, how: str) -> None:
        """The newest stream to this target is no more."""
        known = self._known[name]
        known.stream = None
        known.closed_because = reason
        if reason and reason != known.logged and known.is_warning_due(reason, self._loop.time()):
            known.logged = reason
            log.warning("%s: the stream to target %s %s: %s", self.log_name, name, how, reason)

    def _removed(self, name: str, now_ms: int) -> None:
        self.core.remove(name, now_ms)
        # its stream is closed by this very step, which knows it by its name
        self._told.append((lambda _: self._known.pop(name, None), ()))

    # --- the end ------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task of this playing, which ends with it; what it raises ends the playing."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._end(ended_by(error))

    def _end(self, error: PlayingEnded) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    async def _leave(self) -> None:
        """Nothing goes out any more, and nothing is read."""
        self._alarm.clear()
        self._ended.cancel()
        for known in self._known.values():
            if known.stream is not None:
                known.stream.close()
                known.stream = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
