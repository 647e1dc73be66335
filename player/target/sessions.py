"""A target over a store: received batches go into transactions, and stored positions are acknowledged.

Owns: the streams of each log; the queue of received batches; the threads. For each log one thing is done at a
time, in its thread: a handshake, or a transaction. So a handshake gets its response when the running
transaction of an older stream is over, and that stream's queue is dropped. Batches that come while a
transaction runs are stored together in the next one, and only the last position is acknowledged; once a
transaction has failed, each of its entries gets one of its own, so that all before the bad one are stored and
the error names it.
Invariants: those of `target_position`. Any failure ends the stream, in words, and is logged here, with a
traceback if it is not the failure of last time; nothing is skipped, and the next stream begins with the store
reopened.
Does not: retry (the player does), or stop an application that never returns: the player finds that no
acknowledgement comes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from traceback import walk_tb
from typing import Final, TypeVar

from lockstep.player.core.messages import NOTHING, Batch, Part
from lockstep.player.target.records import Delivered, LogName, open_parts
from lockstep.player.target.store import StoredLog, TargetStore
from lockstep.player.target.target_position import Accepted, Mark, StaleTerms, StreamRejected, TargetPosition
from lockstep.player.transport.interface import Handshake, Responder
from lockstep.protocol.records.batch import MalformedBatch
from lockstep.protocol.records.record import Record

T = TypeVar("T")

MAX_REASON_CHARS: Final = 500
"""The most characters of an error's text that is sent to the player."""

SHUTTING_DOWN: Final = "the target is shutting down"

POSITION_INTERVAL_S: Final = 0.5
"""While a stream is not read, its heartbeats are not seen: the target then sends its
position without a heartbeat."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """Bounds; a batch counts as it came, and one alone may be larger."""

    transaction_entries: int = 1000
    transaction_bytes: int = 4 << 20
    """The most waiting entries in one transaction: while it runs, other logs wait for the store."""
    waiting_entries: int = 4000
    waiting_bytes: int = 8 << 20
    """The bytes waiting of one log from which its stream is not read."""
    logs: int = 1000
    """Each has a thread and a connection of the store."""
    idle_s: float = 300.0
    """A log without a stream for so long has neither any more once another log comes: topics are deleted and
    re-created. Its mark is in the store."""


class StoreSessions:
    """The `Sessions` of a transport, over a store. See the module.

    Args:
        inline: apply on the event loop, and not in a thread for each log: less delay where applying is always
            short; everything else waits meanwhile, heartbeats and other logs too.
    """

    def __init__(
        self, store: TargetStore, settings: TargetSettings | None = None, *, inline: bool = False
    ) -> None:
        self._store = store
        self._settings = settings or TargetSettings()
        self._is_inline = inline
        self._logs: dict[str, _TargetLog] = {}
        self._closing: set[asyncio.Task[None]] = set()
        """The tasks of logs that were closed."""
        self._is_closed = False

    def open_session(self, handshake: Handshake, responder: Responder) -> StoreSession:
        """A stream has begun. Call it on the loop that all of this runs on."""
        hello = handshake.hello
        if hello.log_id not in self._logs and not self._is_closed:
            self._close_idle_logs()
        log = self._logs.get(hello.log_id) or _TargetLog(self._store, self._settings, self._is_inline)
        session = StoreSession(log, handshake, responder)
        if self._is_closed:
            session.end(SHUTTING_DOWN)
        elif not hello.log_id or hello.first_position < 0:
            session.end(f"a Hello for log {hello.log_id!r} from {hello.first_position} on")
        elif hello.log_id not in self._logs and len(self._logs) >= self._settings.logs:
            session.end(f"this target has {len(self._logs)} logs already")
        else:
            self._logs[hello.log_id] = log
            log.add_session(session)
        return session

    async def close(self) -> None:
        """Ends all streams; running transactions finish, waiting entries are dropped and sent again later."""
        self._is_closed = True
        self._store.stop()
        await asyncio.gather(*[log.close(SHUTTING_DOWN) for log in self._logs.values()], *self._closing)
        self._logs.clear()

    def _close_idle_logs(self) -> None:
        before_s = asyncio.get_running_loop().time() - self._settings.idle_s
        for log_id in [log_id for log_id, log in self._logs.items() if log.is_idle_since(before_s)]:
            closing = asyncio.get_running_loop().create_task(self._logs.pop(log_id).close(""))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


class StoreSession:
    """One stream. A transport may call its methods from within the responder's."""

    __slots__ = ("_log", "_responder", "handshake", "is_answered", "is_closed", "terms")

    def __init__(self, log: _TargetLog, handshake: Handshake, responder: Responder) -> None:
        self._log = log
        self._responder = responder
        self.handshake = handshake
        self.terms = handshake.hello.player_term, handshake.hello.target_term
        self.is_answered = False
        self.is_closed = False

    # --- Session ----------------------------------------------------------------------------------------

    def receive(self, batch: Batch) -> None:
        if not self.is_closed:
            self._log.receive(self, batch)

    def heartbeat(self) -> None:
        if not self.is_closed and self.is_answered:
            self._responder.acknowledge(self._log.stored_position)

    def on_closed(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._log.drop(self)

    @property
    def has_room(self) -> bool:
        return self.is_closed or self._log.has_room

    async def wait_for_room(self) -> None:
        while not self.has_room:
            try:
                async with asyncio.timeout(POSITION_INTERVAL_S):
                    await self._log.wait_for_room()
            except TimeoutError:
                self.heartbeat()

    # --- responses --------------------------------------------------------------------------------------

    def accept(self, position: int) -> None:
        if not self.is_closed:
            self.is_answered = True
            self._responder.accept(position)

    def acknowledge(self, position: int) -> None:
        if not self.is_closed:
            self._responder.acknowledge(position)

    def reject(self, mark: Mark) -> None:
        """A newer stream has been opened."""
        if not self.is_closed:
            self.is_closed = True
            self._log.drop(self)
            self._responder.reject(mark.player_term, mark.target_term)

    def end(self, reason: str) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._log.drop(self)
            self._responder.end(" ".join(reason.split())[:MAX_REASON_CHARS])


class _Failures:
    """Failures of one log in a row. The player sends the same records again every few seconds: the traceback
    is logged once, and then a line with a count."""

    __slots__ = ("_count", "_raised_at")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Resets the failures: something was stored."""
        self._raised_at: object = None
        self._count = 0

    def log(self, log_id: str, error: Exception, records_text: str, words: str) -> None:
        frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
        raised_at = (type(error), frames[-1:])
        self._count = self._count + 1 if raised_at == self._raised_at else 1
        self._raised_at = raised_at
        if self._count == 1:
            at = f" at {records_text}" if records_text else ""
            _log.error("%s: the stream ends%s", log_id, at, exc_info=error)
        else:
            times = f"{self._count} times in a row"
            _log.error(
                "%s: the stream ends, %s: %s", log_id, times, " ".join(words.split())[:MAX_REASON_CHARS]
            )


class _TargetLog:
    """One log: its store, its mark, the current stream, and that stream's queue."""

    def __init__(self, store: TargetStore, settings: TargetSettings, is_inline: bool) -> None:
        self._store = store
        self._settings = settings
        self._thread = None if is_inline else ThreadPoolExecutor(1, thread_name_prefix="lockstep-target")
        self._stored: StoredLog | None = None
        self._position: TargetPosition | None = None
        """Set while the store is open."""
        self._current: StoreSession | None = None
        """The open stream whose Hello was accepted last."""
        self._handshakes: deque[StoreSession] = deque()
        self._waiting: deque[tuple[Accepted, Batch]] = deque()
        """Entries received from the current stream that are not being stored."""
        self._waiting_entries = 0
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._failures = _Failures()
        self._failed_position = NOTHING
        """The position up to which each entry has a transaction of its own: one of them has failed."""
        self._last_stream_s = 0.0
        """The loop time at which a stream last began or ended."""

    # --- from the streams -------------------------------------------------------------------------------

    def add_session(self, session: StoreSession) -> None:
        self._last_stream_s = asyncio.get_running_loop().time()
        self._handshakes.append(session)
        self._start_work()

    def receive(self, session: StoreSession, batch: Batch) -> None:
        if session is not self._current or not session.is_answered or self._position is None:
            return session.end("a batch came before the response to the Hello")
        if not batch.parts or any(one.position >= next.position for one, next in pairwise(batch.parts)):
            return session.end("a batch whose positions do not ascend")
        try:
            accepted = self._position.receive(session.terms, batch)
        except StaleTerms as stale:
            return session.reject(stale.mark)
        except StreamRejected as rejected:
            _log.warning("%s: rejected: %s", session.handshake.hello.log_id, rejected)
            return session.end(str(rejected))
        self._waiting.append((accepted, batch))
        self._waiting_entries += len(batch.parts)
        self._waiting_bytes += batch.size_bytes
        self._start_work()

    def drop(self, session: StoreSession) -> None:
        """The stream has ended: its waiting entries will be sent again."""
        if session is self._current:
            self._current = None
            self._waiting.clear()
            self._waiting_entries = self._waiting_bytes = 0
        self._last_stream_s = asyncio.get_running_loop().time()
        self._room.set()

    def is_idle_since(self, before_s: float) -> bool:
        """True if it has no stream, nothing to do, and has had none since then."""
        is_idle = self._current is None and self._work is None and not self._handshakes
        return is_idle and self._last_stream_s <= before_s

    @property
    def stored_position(self) -> int:
        """Called for a stream whose handshake had a response."""
        assert self._position is not None
        return self._position.stored_position

    @property
    def has_room(self) -> bool:
        settings = self._settings
        return (
            self._waiting_bytes < settings.waiting_bytes and self._waiting_entries < settings.waiting_entries
        )

    async def wait_for_room(self) -> None:
        self._room.clear()
        await self._room.wait()

    async def close(self, reason: str) -> None:
        for session in (*self._handshakes, self._current):
            if session is not None:
                session.end(reason)
        while self._work is not None:
            await asyncio.wait([self._work])
        await self._close_store()
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    # --- one thing after the other ----------------------------------------------------------------------

    def _start_work(self) -> None:
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._process())

    async def _process(self) -> None:
        try:
            while True:
                if self._handshakes:
                    await self._handle_handshake(self._handshakes.popleft())
                elif self._waiting and self._current is not None:
                    await self._store_waiting(self._current)
                else:
                    return
        finally:
            self._work = None

    async def _handle_handshake(self, session: StoreSession) -> None:
        if session.is_closed:
            return
        hello = session.handshake.hello
        try:
            if self._position is None:
                self._position = TargetPosition(
                    hello.log_id, await self._run(partial(self._open, session.handshake))
                )
            try:
                mark = self._position.hello(hello)
            except StaleTerms as stale:
                return session.reject(stale.mark)
            if self._current is not None:
                self._current.reject(mark)
            if not session.is_closed:
                self._current = session
            position = await self._run(lambda: self._require_store.fence(mark))
        except Exception as error:
            return await self._fail(session, error)
        session.accept(self._position.complete_handshake(position))

    async def _store_waiting(self, session: StoreSession) -> None:
        assert self._position is not None
        parts, mark = self._next_transaction()
        previous = self._position.stored_position
        try:
            if mark.position > previous:
                await self._run(lambda: self._apply(session.handshake, previous, parts, mark))
        except Exception as error:
            self._failed_position = mark.position
            return await self._fail(session, error, _records_text(session.handshake, parts, error))
        except BaseException:
            session.end("what was received could not be stored")  # or what follows would be, without it
            raise
        self._failures.clear()
        session.acknowledge(self._position.on_stored(Accepted(parts, mark)))

    def _next_transaction(self) -> tuple[Sequence[Part], Mark]:
        """The parts of the next transaction, from the queue, and the mark after it."""
        accepted, batch = self._waiting.popleft()
        if len(accepted.parts) > 1 and accepted.parts[0].position <= self._failed_position:
            first, *others = accepted.parts
            self._waiting.appendleft((Accepted(others, accepted.mark), batch))
            return [first], replace(accepted.mark, position=first.position)
        parts, mark = list(accepted.parts), accepted.mark
        entries, size_bytes = len(batch.parts), batch.size_bytes
        while self._waiting and mark.position > self._failed_position:
            accepted, batch = self._waiting[0]
            if (
                entries + len(batch.parts) > self._settings.transaction_entries
                or size_bytes + batch.size_bytes > self._settings.transaction_bytes
            ):
                break
            self._waiting.popleft()
            entries += len(batch.parts)
            size_bytes += batch.size_bytes
            parts += accepted.parts
            mark = accepted.mark
        self._waiting_entries -= entries
        self._waiting_bytes -= size_bytes
        self._room.set()
        return parts, mark

    async def _fail(self, session: StoreSession, error: Exception, records_text: str = "") -> None:
        """Ends the stream, and forgets the store's state.

        Args:
            records_text: the records that could not be stored, in words.
        """
        if isinstance(error, StaleTerms):
            _log.info("%s: %s", session.handshake.hello.log_id, error)
            session.reject(error.mark)
        else:
            words = f"{records_text}{': ' if records_text else ''}{type(error).__name__}: {error}"
            self._failures.log(session.handshake.hello.log_id, error, records_text, words)
            session.end(words)
        await self._close_store()

    async def _close_store(self) -> None:
        stored, self._stored, self._position = self._stored, None, None
        if stored is not None:
            with contextlib.suppress(Exception):  # it may be why the store is closed
                await self._run(stored.close)

    # --- in the log's thread ----------------------------------------------------------------------------

    async def _run(self, call: Callable[[], T]) -> T:
        if self._thread is None:
            return _run_call(call)
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(_run_call, call))

    def _open(self, handshake: Handshake) -> Mark | None:
        self._stored = self._store.open(_name(handshake))
        return self._stored.load()

    @property
    def _require_store(self) -> StoredLog:
        assert self._stored is not None
        return self._stored

    def _apply(self, handshake: Handshake, previous: int, parts: Sequence[Part], mark: Mark) -> None:
        entries = open_parts(parts, handshake.partition)
        self._require_store.store(Delivered(_name(handshake), previous, mark.position, entries), mark)


def _run_call(call: Callable[[], T]) -> T:
    """Raises what it raises, as something that is the application's alone: not StopIteration, which no future
    can carry, nor errors that would cancel the waiting task, or end the loop (`sys.exit`). Ctrl-C reaches the
    main thread alone, and stays what it is there."""
    try:
        return call()
    except (StopIteration, concurrent.futures.CancelledError) as error:
        leaked: BaseException = error
    except Exception:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        leaked = error
    raise RuntimeError(f"{type(leaked).__name__}, which was not caught") from leaked


def _records_text(handshake: Handshake, parts: Sequence[Part], error: Exception) -> str:
    """The topic, partition and offsets of the records of some parts, in words; of several records also the
    one that `apply` had in hand when it raised, as far as its variables show."""
    if not parts:
        return ""
    try:
        first, *_, last = open_parts([parts[0], parts[-1]], handshake.partition)
        ends = (first.partition, first.records[0].offset), (last.partition, last.records[-1].offset)
    except (MalformedBatch, IndexError):
        ends = (handshake.partition, parts[0].position), (handshake.partition, parts[-1].position)
    (partition, first_offset), (last_partition, last_offset) = ends
    name = f"{handshake.topic}-{partition}"
    if partition != last_partition:
        return f"{name} offset {first_offset} to {handshake.topic}-{last_partition} offset {last_offset}"
    if first_offset == last_offset:
        return f"{name} offset {first_offset}"
    current = _current_offset(error)
    if current is not None and first_offset <= current <= last_offset:
        return f"{name} offset {current} (of {first_offset} to {last_offset})"
    return f"{name} offset {first_offset} to {last_offset}"


def _current_offset(error: Exception) -> int | None:
    """The offset of the record that the innermost frame with a record in a variable has there."""
    offset = None
    for frame, _ in walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, Record):
                offset = value.offset
    return offset


def _name(handshake: Handshake) -> LogName:
    return LogName(handshake.hello.log_id, handshake.topic, handshake.partition)
