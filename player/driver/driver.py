"""Delivery of one log to its targets: the asyncio shell around one `lockstep.player.core.player.Player`.

Owns: the streams, the tasks, and the order of the core's events. Invariants: a call into the core and its
actions are one step, without an await; an event from within a step (a transport may do that) is queued until
its end; a read of the main stream and the writes that follow from it are one iteration of the loop. Does not:
choose targets (the router), parse entries, keep anything on a disk, take a player_term, close the source or
the transport.
Source: LogPlayer paper; the duties of a shell are in `player/core/__init__.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from random import randrange
from typing import Any

from lockstep.player.core.messages import NOTHING, Batch, Hello
from lockstep.player.core.player import Player
from lockstep.player.core.ready import PlayerReady, RangeRead
from lockstep.player.core.router import Router
from lockstep.player.core.settings import PlayerSettings
from lockstep.player.driver.alarm import Alarm
from lockstep.player.driver.counters import TargetCounters
from lockstep.player.driver.errors import Deposed, PlayerStopped, stop_reason
from lockstep.player.driver.interface import StreamOfTarget
from lockstep.player.driver.main_stream import MainStream
from lockstep.player.driver.status import PlayerStatus, target_status
from lockstep.player.driver.target_record import TargetEndpoint, TargetRecord
from lockstep.player.driver.target_stream import TargetStream
from lockstep.player.source.interface import LogBounds, Source, log_name
from lockstep.player.transport.interface import Handshake, Streams

log = logging.getLogger("lockstep.player")


class PlayerDriver:
    """See the module. Make it on the running loop; then `run` it.

    Args:
        source: of the log; several reads are under way at once.
        streams: the transport; other drivers may share it.
        route: as the core's; its errors stop the driver.
        player_term: of a committed record, higher than that of every player before.
        targets: the targets at the start. The main stream starts when all of them have responded, or at the
            timeout.
        poll_s: the longest wait of a read of the main stream at the source for new entries.
    """

    def __init__(
        self,
        source: Source,
        streams: Streams,
        route: Router,
        settings: PlayerSettings,
        player_term: int,
        targets: Iterable[TargetEndpoint],
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
        self._targets: dict[str, TargetRecord] = {}
        self._pending_events: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_stepping = False
        self._is_running = False
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_deadline_stale = False
        """The core's deadline may be earlier than before this step."""
        self._newest_player_term = player_term
        for each in targets:
            self.add(*each)

    # --- for its owner ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled. Raises PlayerStopped: deposed, the log was deleted, the router failed."""
        self._is_running = True
        try:
            self._tick()
            await self._stopped
        finally:
            self._is_running = False
            await self._shut_down()

    def add(self, name: str, address: str, first_position: int = 0, from_earliest: bool = False) -> None:
        """Adds a target, at any time; without a stored position it begins where its `TargetEndpoint` defines.

        Raises ValueError: it exists.
        """
        if name in self._targets:
            raise ValueError(f"there is a target {name!r} already")
        self._targets[name] = TargetRecord(address, from_earliest)
        self._step_and_reschedule(self.core.add, name, first_position)
        if self._is_running:
            self._tick()

    def remove(self, name: str) -> None:
        """Close a target's stream, and forget it; it keeps its position. KeyError: there is none."""
        self._step_target(name, self._remove_target)

    def stop(self, name: str, reason: str) -> None:
        """Send nothing to a target until it is resumed. KeyError: there is none."""
        self._step_target(name, self.core.stop, reason)

    def resume(self, name: str) -> None:
        """Try a stopped target again, at once. KeyError: there is none."""
        self._step_target(name, self.core.resume)
        if self._is_running:
            self._tick()

    def target_counters(self, name: str) -> TargetCounters:
        """KeyError: there is no such target."""
        return self._targets[name].counters

    def status(self) -> PlayerStatus:
        """The current status."""
        core, source = self.core, self.source
        ended = self._stopped.exception() if self._stopped.done() and not self._stopped.cancelled() else None
        return PlayerStatus(
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
                target_status(target, record.address, record.closed_because, core, self.settings)
                for name, record in self._targets.items()
                if (target := core.targets.get(name)) is not None
            ],
        )

    # --- one step -----------------------------------------------------------------------------------------

    def step(self, call: Callable[..., object], *args: Any) -> None:
        """Report an event to the core, and execute its actions; within a step, after that step."""
        if self._stopped.done():
            return
        self._pending_events.append((call, args))
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._pending_events and not self._stopped.done():
                call, args = self._pending_events.popleft()
                call(*args, self._alarm.now_ms)
                self._execute(self.core.ready())
        except Exception as error:  # most likely the router's: the core cannot continue
            self._stop_with(stop_reason(error))
        finally:
            self._is_stepping = False
        self.main.on_step()
        if self._is_deadline_stale and self._is_running and not self._stopped.done():
            self._is_deadline_stale = False
            self._alarm.set(self.core.deadline_ms)

    def _step_and_reschedule(self, call: Callable[..., object], *args: Any) -> None:
        """A step after which the core's deadline may be earlier than before."""
        self._is_deadline_stale = True
        self.step(call, *args)

    def _step_target(self, name: str, call: Callable[..., object], *args: Any) -> None:
        """KeyError: there is no such target."""
        if name not in self._targets:
            raise KeyError(name)
        self._step_and_reschedule(call, name, *args)

    def _tick(self) -> None:
        self._step_and_reschedule(self.core.tick)

    def _execute(self, ready: PlayerReady) -> None:
        """Executes the actions of a step, in the order of the attributes."""
        for name, target_term, why in ready.closes:
            self._close(name, target_term, why)
            self._is_deadline_stale = True  # a backoff has begun
        for name, hello in ready.hellos:
            self._open_stream(name, hello)
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
            self._stop_with(Deposed(self._newest_player_term))

    # --- streams ------------------------------------------------------------------------------------------

    def _stream(self, name: str, target_term: int) -> TargetStream | None:
        record = self._targets.get(name)
        stream = None if record is None else record.stream
        return stream if stream is not None and stream.target_term == target_term else None

    def _close(self, name: str, target_term: int, why: str) -> None:
        if (stream := self._stream(name, target_term)) is not None:
            self._record_close(name, why, "is closed")
            stream.close()

    def _open_stream(self, name: str, hello: Hello) -> None:
        record = self._targets[name]
        record.counters.streams += 1
        record.stream = TargetStream(self, name, hello.target_term)
        handshake = Handshake(hello, self.source.topic, self.source.partition)
        if self.core.targets[name].last_ack == NOTHING:
            record.stream.open_new(record.address, handshake, record.from_earliest)
        else:
            record.stream.open(record.address, handshake)

    def _write(self, name: str, target_term: int, batch: Batch) -> None:
        if (stream := self._stream(name, target_term)) is not None:
            self._targets[name].counters.count_batch(batch)
            stream.stream.write(batch)

    def _fetch(self, fetch: RangeRead) -> None:
        if (stream := self._stream(fetch.target, fetch.target_term)) is not None:
            counters = self._targets[fetch.target].counters
            counters.fetches += 1
            counters.recoveries += stream.fetch(fetch)

    # --- events of streams --------------------------------------------------------------------------------

    def on_connected(self, stream: StreamOfTarget, position: int, bounds: LogBounds) -> None:
        record = self._targets.get(stream.name)
        if record is not None and record.stream is stream and record.logged:
            record.logged = ""
            log.info("%s: target %s is connected again, at %d", self.log_name, stream.name, position)
        self._step_and_reschedule(self.core.on_connected, stream.name, stream.target_term, position, *bounds)

    def on_disconnected(self, stream: StreamOfTarget, reason: str) -> None:
        self._step_and_reschedule(self._disconnect, stream, reason)

    def on_misplaced(self, stream: StreamOfTarget, reason: str) -> None:
        """The target has no stored position, and its first position is outside of the log."""
        self._step_and_reschedule(self._stop_misplaced, stream, reason)

    def on_stale(self, stream: StreamOfTarget, player_term: int) -> None:
        self._newest_player_term = max(player_term, self._newest_player_term)
        self._step_and_reschedule(self.core.on_stale, stream.name, stream.target_term, player_term)

    def on_acknowledged(self, stream: StreamOfTarget, position: int) -> None:
        if (record := self._targets.get(stream.name)) is not None:
            record.counters.acknowledgements += 1
        self.step(self.core.on_acknowledged, stream.name, stream.target_term, position)

    def on_written(self, stream: StreamOfTarget) -> None:
        self.step(self.core.on_written, stream.name, stream.target_term)

    def _disconnect(self, stream: StreamOfTarget, reason: str, now_ms: int) -> None:
        record = self._targets.get(stream.name)
        if record is not None and record.stream is stream:
            self._record_close(stream.name, reason, "ended")
        self.core.on_disconnected(stream.name, stream.target_term, now_ms)

    def _stop_misplaced(self, stream: StreamOfTarget, reason: str, now_ms: int) -> None:
        if (record := self._targets.get(stream.name)) is not None and record.stream is stream:
            self.core.stop(stream.name, reason, now_ms)

    def _record_close(self, name: str, reason: str, how: str) -> None:
        """Record the end of the newest stream to this target."""
        record = self._targets[name]
        record.stream = None
        record.closed_because = reason
        if reason and reason != record.logged and record.is_warning_due(reason, self._loop.time()):
            record.logged = reason
            log.warning("%s: the stream to target %s %s: %s", self.log_name, name, how, reason)

    def _remove_target(self, name: str, now_ms: int) -> None:
        self.core.remove(name, now_ms)
        # this step's actions close its stream, and find it by its name
        self._pending_events.append((lambda _: self._targets.pop(name, None), ()))

    # --- the end ------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task of this driver, which ends with it; the task's error stops the driver."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._stop_with(stop_reason(error))

    def _stop_with(self, error: PlayerStopped) -> None:
        if not self._stopped.done():
            self._stopped.set_exception(error)

    async def _shut_down(self) -> None:
        """Close all streams, and cancel all tasks."""
        self._alarm.clear()
        self._stopped.cancel()
        for record in self._targets.values():
            if record.stream is not None:
                record.stream.close()
                record.stream = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
