"""Streams over a store: what is stored together, what is answered, what ends a stream."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lockstep.player.core.messages import Batch, Part
from lockstep.player.target.records import Delivered, LogName
from lockstep.player.target.sessions import StoreSession, StoreSessions, TargetSettings
from lockstep.player.target.sqlite import SqliteStore
from lockstep.player.target.target_position import Mark, StaleTerms
from tests.player.target.streams import LOG_ID, PATIENCE_S, Answered, Streams, batch, hello


class MemoryStore:
    """A store without a disk, which can be held up; each transaction is noted."""

    def __init__(self) -> None:
        self.marks: dict[str, Mark] = {}
        self.transactions: list[tuple[list[int], int]] = []
        self.opened = 0
        self.closed = 0
        self.threads: set[int] = set()
        self.begun = threading.Semaphore(0)
        """Released by each transaction that begins."""
        self.go_on = threading.Semaphore(0)
        """What each waits for, when they wait."""
        self.waits = False
        self.fails: list[BaseException] = []
        """With these the next calls fail."""

    def open(self, name: LogName) -> MemoryLog:
        self.opened += 1
        return MemoryLog(self, name.log_id)

    def stop(self) -> None:
        pass

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=PATIENCE_S)


class MemoryLog:
    def __init__(self, store: MemoryStore, log_id: str) -> None:
        self._store = store
        self._log_id = log_id

    def load(self) -> Mark | None:
        self._store.threads.add(threading.get_ident())
        return self._store.marks.get(self._log_id)

    def fence(self, mark: Mark) -> int:
        if self._store.fails:
            raise self._store.fails.pop()
        stored = self._store.marks.get(self._log_id)
        if stored is not None and stored.terms >= mark.terms:
            raise StaleTerms(stored)
        position = mark.position if stored is None else stored.position
        self._store.marks[self._log_id] = Mark(mark.log_id, *mark.terms, position)
        return position

    def store(self, delivered: Delivered, mark: Mark) -> None:
        self._store.begun.release()
        if self._store.waits:
            assert self._store.go_on.acquire(timeout=PATIENCE_S)
        if self._store.fails:
            raise self._store.fails.pop()
        stored = self._store.marks[self._log_id]
        if stored.terms != mark.terms:
            raise StaleTerms(stored)
        assert stored.position == delivered.previous_position
        offsets = [record.offset for record in delivered.records]
        self._store.transactions.append((offsets, mark.position))
        self._store.marks[self._log_id] = mark

    def close(self) -> None:
        self._store.closed += 1


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest_asyncio.fixture(params=["thread", "inline"])
async def sessions(request: pytest.FixtureRequest, store: MemoryStore) -> AsyncIterator[StoreSessions]:
    made = StoreSessions(store, inline=request.param == "inline")
    yield made
    await made.close()


@pytest_asyncio.fixture
async def threaded(store: MemoryStore) -> AsyncIterator[StoreSessions]:
    made = StoreSessions(store, TargetSettings(waiting_entries=4, transaction_entries=3))
    yield made
    store.waits = False
    for _ in range(100):
        store.go_on.release()
    await made.close()


async def test_batches_are_stored_and_acknowledged(sessions: StoreSessions, store: MemoryStore) -> None:
    session, answered = await Streams(sessions).greeted(9, first_position=10)
    session.receive(batch(9, 10, 11))
    await answered.until("acknowledged", 11)
    session.receive(batch(11, 14, 20, dummies=[20]))
    await answered.until("acknowledged", 20)
    session.receive(batch(20, 30, dummies=[30]))
    await answered.until("acknowledged", 30)
    assert store.transactions == [([10, 11], 11), ([14], 20), ([], 30)]
    assert store.marks[LOG_ID] == Mark(LOG_ID, 1, 1, 30)


async def test_a_target_goes_on_where_its_store_is(sessions: StoreSessions, store: MemoryStore) -> None:
    store.marks[LOG_ID] = Mark(LOG_ID, 1, 0, 50)
    _, answered = await Streams(sessions).greeted(50, first_position=10)
    assert answered.said == [("greeted", 50)]


async def test_what_comes_at_once_is_stored_at_once(sessions: StoreSessions, store: MemoryStore) -> None:
    session, answered = await Streams(sessions).greeted(-1)
    for at in range(5):
        session.receive(batch(at - 1, at))
    await answered.until("acknowledged", 4)
    assert store.transactions == [([0, 1, 2, 3, 4], 4)]


async def test_what_comes_meanwhile_is_stored_together(threaded: StoreSessions, store: MemoryStore) -> None:
    session, answered = await Streams(threaded).greeted(-1)
    store.waits = True
    session.receive(batch(-1, 0))
    await store.has_begun()
    for at in range(1, 5):
        assert session.has_room
        session.receive(batch(at - 1, at))
    session.heartbeat()
    assert answered.said[-1] == ("acknowledged", -1)  # at once, and nothing is stored yet
    assert not session.has_room
    room = asyncio.ensure_future(session.wait_for_room())
    await asyncio.sleep(0)
    assert not room.done()
    for _ in range(3):
        store.go_on.release()
    await answered.until("acknowledged", 4)
    await room
    assert store.transactions == [([0], 0), ([1, 2, 3], 3), ([4], 4)]  # three at most
    assert answered.said[2:] == [("acknowledged", 0), ("acknowledged", 3), ("acknowledged", 4)]


async def test_a_stream_that_is_not_read_shows_that_its_target_lives(
    threaded: StoreSessions, store: MemoryStore
) -> None:
    """A heartbeat is behind what is not read: the player must not take a slow target for one that is gone."""
    session, answered = await Streams(threaded).greeted(-1)
    store.waits = True
    for at in range(5):
        session.receive(batch(at - 1, at))
        if at == 0:
            await store.has_begun()
    assert not session.has_room
    room = asyncio.ensure_future(session.wait_for_room())
    await answered.until("acknowledged", -1)
    assert not room.done()
    store.waits = False
    store.go_on.release()
    await answered.until("acknowledged", 4)
    await room


async def test_bytes_are_bounded_too(store: MemoryStore) -> None:
    sessions = StoreSessions(store, TargetSettings(waiting_bytes=3000, transaction_bytes=2500))
    session, answered = await Streams(sessions).greeted(-1)
    for at in range(3):
        assert session.has_room
        session.receive(batch(at - 1, at, size_bytes=1000))
    assert not session.has_room
    await answered.until("acknowledged", 2)
    assert session.has_room
    assert store.transactions == [([0, 1], 1), ([2], 2)]
    await sessions.close()


async def test_duplicates_are_acknowledged_and_not_applied(
    sessions: StoreSessions, store: MemoryStore
) -> None:
    session, answered = await Streams(sessions).greeted(-1)
    session.receive(batch(-1, 0, 1))
    await answered.until("acknowledged", 1)
    answered.said.clear()
    session.receive(batch(-1, 0, 1))
    await answered.until("acknowledged", 1)
    session.receive(batch(-1, 0, 1, 2))
    await answered.until("acknowledged", 2)
    assert store.transactions == [([0, 1], 1), ([2], 2)]


async def test_a_gap_ends_the_stream(sessions: StoreSessions, store: MemoryStore) -> None:
    streams = Streams(sessions)
    session, answered = await streams.greeted(-1)
    session.receive(batch(1, 2))
    assert await answered.ended() == "after -1 came 2, which follows 1"
    session.receive(batch(-1, 0))  # it may still be on its way
    session.heartbeat()
    assert session.has_room
    session, answered = await streams.greeted(-1)
    session.receive(batch(-1, 0))
    await answered.until("acknowledged", 0)
    assert store.transactions == [([0], 0)]


async def test_what_is_no_batch_ends_the_stream(sessions: StoreSessions, store: MemoryStore) -> None:
    streams = Streams(sessions)
    good = batch(-1, 0, 1)
    wrong = {
        "ascend": Batch(-1, [good.parts[1], good.parts[0]], 1),
        "do not": Batch(-1, [], 0),
        "MalformedBatch": Batch(-1, [Part(0, b"no batch", 8)], 8),
    }
    for words, made in wrong.items():
        session, answered = await streams.greeted(-1)
        session.receive(made)
        assert words in await answered.ended()
    session, answered = streams.open()
    session.receive(good)  # too early
    assert "before the response to the Hello" in await answered.ended()
    assert store.transactions == []


async def test_a_hello_that_cannot_be(sessions: StoreSessions) -> None:
    for handshake in (hello(1, 1, -1), hello(1, 1, log_id="//0")):
        handshake.hello.log_id = handshake.hello.log_id.strip("/0")
        answered = Answered()
        sessions.open_session(handshake, answered)
        assert "a Hello for log" in await answered.ended()


async def test_a_hello_with_old_terms_is_stale(sessions: StoreSessions, store: MemoryStore) -> None:
    session, answered = await Streams(sessions, player_term=5).greeted(-1)
    old = Answered()
    sessions.open_session(hello(4, 99), old)
    await old.until("stale", 5, 1)
    session.receive(batch(-1, 0))  # which ends nothing
    await answered.until("acknowledged", 0)
    store.marks[LOG_ID] = Mark(LOG_ID, 7, 7, 0)  # another process was greeted
    late = Answered()
    sessions.open_session(hello(6, 1), late)
    await late.until("stale", 7, 7)
    assert ("stale", 6, 1) in answered.said


async def test_a_hello_without_terms_reads_the_position_and_stores_nothing(
    sessions: StoreSessions, store: MemoryStore
) -> None:
    asked = Answered()
    sessions.open_session(hello(0, 0, 5), asked)
    await asked.until("stale", 0, 0)
    assert not store.marks
    session, answered = await Streams(sessions).greeted(9, first_position=10)
    asked = Answered()
    sessions.open_session(hello(0, 0, 5), asked)
    await asked.until("stale", 1, 1)
    session.receive(batch(9, 10))  # its stream goes on
    await answered.until("acknowledged", 10)


async def test_a_greeting_awaits_the_running_transaction(threaded: StoreSessions, store: MemoryStore) -> None:
    streams = Streams(threaded)
    old, old_answered = await streams.greeted(-1)
    store.waits = True
    old.receive(batch(-1, 0))
    await store.has_begun()
    old.receive(batch(0, 1))  # waits, and is dropped
    session, answered = streams.open()
    await asyncio.sleep(0.01)
    assert answered.said == []
    store.go_on.release()
    await answered.until("greeted", 0)
    assert old_answered.said[-1] == ("stale", 1, 2)
    old.receive(batch(0, 1))
    store.waits = False
    session.receive(batch(0, 1))
    await answered.until("acknowledged", 1)
    assert store.transactions == [([0], 0), ([1], 1)]


async def test_a_replaced_process_reports_that(sessions: StoreSessions, store: MemoryStore) -> None:
    """Two processes of one target race for one store: the one that was greeted last wins."""
    old_session, old = await Streams(sessions).greeted(-1)
    newer = StoreSessions(store)
    session, answered = await Streams(newer, player_term=2).greeted(-1)
    old_session.receive(batch(-1, 0))
    session.receive(batch(-1, 0, 1))
    await old.until("stale", 2, 1)
    await answered.until("acknowledged", 1)
    assert store.transactions == [([0, 1], 1)]
    await newer.close()


async def test_an_error_ends_the_stream_and_skips_nothing(
    sessions: StoreSessions, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    streams = Streams(sessions)
    session, answered = await streams.greeted(-1)
    store.fails = [LookupError("no such\naccount " + "x" * 1000)]
    session.receive(batch(-1, 0))
    words = await answered.ended()
    assert words.startswith("topic-0 offset 0: LookupError: no such account xxx")
    assert len(words) == 500
    assert "no such" in caplog.text
    assert LOG_ID in caplog.text
    store.fails = [OSError("the disk")]
    _, answered = streams.open()
    assert await answered.ended() == "OSError: the disk"
    session, answered = await streams.greeted(-1)
    session.receive(batch(-1, 0))
    await answered.until("acknowledged", 0)
    assert store.transactions == [([0], 0)]
    assert store.opened == 3  # anew after each error


async def test_a_failure_that_comes_again_is_a_line_with_a_count(
    sessions: StoreSessions, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    streams = Streams(sessions)
    for error in (ValueError("one\ntwo"), ValueError("three"), KeyError("other"), KeyError("other")):
        session, answered = await streams.greeted(9, first_position=10)
        store.fails = [error]
        session.receive(batch(9, 10))
        words = f"topic-0 offset 10: {type(error).__name__}: {' '.join(str(error).split())}"
        await answered.until("ended", words)
    session, answered = await streams.greeted(9, first_position=10)
    session.receive(batch(9, 10))
    await answered.until("acknowledged", 10)
    session, answered = await streams.greeted(10, first_position=10)
    store.fails = [KeyError("other")]
    session.receive(batch(10, 11))
    await answered.until("ended", "topic-0 offset 11: KeyError: 'other'")
    said = [(record.getMessage(), record.exc_info is not None) for record in caplog.records]
    assert said == [
        (f"{LOG_ID}: the stream ends at topic-0 offset 10", True),
        (f"{LOG_ID}: the stream ends, 2 times in a row: topic-0 offset 10: ValueError: three", False),
        (f"{LOG_ID}: the stream ends at topic-0 offset 10", True),
        (f"{LOG_ID}: the stream ends, 2 times in a row: topic-0 offset 10: KeyError: 'other'", False),
        (f"{LOG_ID}: the stream ends at topic-0 offset 11", True),
    ]


@pytest.mark.parametrize(
    "leaked",
    [StopIteration, asyncio.CancelledError, concurrent.futures.CancelledError, SystemExit, GeneratorExit],
)
async def test_what_an_application_leaks_ends_the_stream_and_loses_nothing(
    sessions: StoreSessions, store: MemoryStore, leaked: type[BaseException]
) -> None:
    """Of a cancelled store the next batch would be stored without the one that was not."""
    streams = Streams(sessions)
    session, answered = await streams.greeted(-1)
    store.fails = [leaked()]
    session.receive(batch(-1, 0))
    session.receive(batch(0, 1))
    assert leaked.__name__ in await answered.ended()
    assert store.transactions == []
    session, answered = await streams.greeted(-1)
    session.receive(batch(-1, 0))
    await answered.until("acknowledged", 0)


async def test_an_interrupt_in_a_thread_is_the_applications(
    threaded: StoreSessions, store: MemoryStore
) -> None:
    """A real one only reaches the main thread; this one ended the loop, and nobody knew."""
    streams = Streams(threaded)
    session, answered = await streams.greeted(-1)
    store.fails = [KeyboardInterrupt()]
    session.receive(batch(-1, 0))
    assert "KeyboardInterrupt" in await answered.ended()
    session, answered = await streams.greeted(-1)
    session.receive(batch(-1, 0))
    await answered.until("acknowledged", 0)


async def test_a_greeting_meanwhile_outlives_an_error(threaded: StoreSessions, store: MemoryStore) -> None:
    streams = Streams(threaded)
    session, answered = await streams.greeted(-1)
    store.waits = True
    session.receive(batch(-1, 0))
    await store.has_begun()
    store.fails = [LookupError("no such account")]
    newer, newer_answered = streams.open()
    store.waits = False
    store.go_on.release()
    await newer_answered.until("greeted", -1)
    assert await answered.ended() == "topic-0 offset 0: LookupError: no such account"
    newer.receive(batch(-1, 0))
    await newer_answered.until("acknowledged", 0)


async def test_what_waits_of_a_stream_that_is_gone_is_dropped(
    threaded: StoreSessions, store: MemoryStore
) -> None:
    streams = Streams(threaded)
    session, answered = await streams.greeted(-1)
    store.waits = True
    session.receive(batch(-1, 0))
    await store.has_begun()
    for at in range(1, 5):
        session.receive(batch(at - 1, at))
    room = asyncio.ensure_future(session.wait_for_room())
    session.on_closed()
    await room
    store.waits = False
    store.go_on.release()
    before = list(answered.said)
    session, _ = await streams.greeted(0)
    assert store.transactions == [([0], 0)]
    assert answered.said == before
    assert session.has_room


async def test_a_stream_that_ends_before_its_greeting_leaves_no_terms(
    threaded: StoreSessions, store: MemoryStore
) -> None:
    streams = Streams(threaded)
    session, answered = streams.open()
    session.on_closed()
    await streams.greeted(-1)
    assert answered.said == []
    assert store.marks[LOG_ID].terms == (1, 2)


async def test_logs_do_not_wait_for_each_other(threaded: StoreSessions, store: MemoryStore) -> None:
    session, _ = await Streams(threaded).greeted(-1)
    store.waits = True
    session.receive(batch(-1, 0))
    await store.has_begun()
    store.waits = False
    other = Answered()
    second = threaded.open_session(hello(1, 1, log_id="cluster/topic/1"), other)
    await other.until("greeted", -1)
    second.receive(batch(-1, 5))
    await other.until("acknowledged", 5)
    assert store.transactions == [([5], 5)]
    assert len(store.threads) == 2
    assert threading.get_ident() not in store.threads


async def test_the_number_of_logs_is_bounded(store: MemoryStore) -> None:
    sessions = StoreSessions(store, TargetSettings(logs=1))
    await Streams(sessions).greeted(-1)
    answered = Answered()
    sessions.open_session(hello(1, 1, log_id="cluster/topic/1"), answered)
    assert await answered.ended() == "this target has 1 logs already"
    await sessions.close()


async def test_a_log_that_nobody_plays_any_more_is_let_go(store: MemoryStore) -> None:
    """A topic that is re-created is another log."""
    sessions = StoreSessions(store, TargetSettings(logs=2, idle_s=0))

    async def greeted(number: int, term: int, position: int) -> StoreSession:
        answered = Answered()
        session = sessions.open_session(hello(1, term, log_id=f"cluster/topic/{number}"), answered)
        await answered.until("greeted", position)
        return session

    first, answered = await Streams(sessions).greeted(-1)
    first.receive(batch(-1, 0))
    await answered.until("acknowledged", 0)
    second = await greeted(1, 1, -1)
    refused = Answered()
    sessions.open_session(hello(1, 1, log_id="cluster/topic/2"), refused)
    assert await refused.ended() == "this target has 2 logs already"
    first.on_closed()
    third = await greeted(2, 1, -1)
    async with asyncio.timeout(PATIENCE_S):
        while not store.closed:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    assert (store.opened, store.closed, second.is_closed) == (3, 1, False)
    third.on_closed()
    await greeted(0, 2, 0)
    second.on_closed()
    await sessions.close()
    assert (store.opened, store.closed) == (4, 4)


async def test_a_log_that_was_idle_for_a_moment_stays(store: MemoryStore) -> None:
    sessions = StoreSessions(store)
    session, _ = await Streams(sessions).greeted(-1)
    session.on_closed()
    answered = Answered()
    sessions.open_session(hello(1, 1, log_id="cluster/topic/1"), answered)
    await answered.until("greeted", -1)
    await Streams(sessions, player_term=2).greeted(-1)
    assert store.opened == 2
    await sessions.close()


async def test_closing_finishes_what_runs(threaded: StoreSessions, store: MemoryStore) -> None:
    streams = Streams(threaded)
    session, answered = await streams.greeted(-1)
    store.waits = True
    session.receive(batch(-1, 0))
    await store.has_begun()
    session.receive(batch(0, 1))
    _, waiting = streams.open()
    closing = asyncio.ensure_future(threaded.close())
    await answered.ended()
    await waiting.ended()
    assert not closing.done()
    store.go_on.release()
    await closing
    assert store.transactions == [([0], 0)]
    _, late = streams.open()
    assert await late.ended() == "the target is shutting down"


@pytest.mark.parametrize("inline", [False, True])
async def test_over_a_file(tmp_path: Path, inline: bool) -> None:
    """Several logs, one SQLite file; an application that fails once."""
    path = tmp_path / "state.db"
    failures = [RuntimeError("once")]
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE applied (topic, partition, at, PRIMARY KEY (topic, partition, at))")
    connection.close()

    def apply(connection: sqlite3.Connection, delivered: Delivered) -> None:
        for record in delivered.records:
            row = (delivered.topic, delivered.partition, record.offset)
            connection.execute("INSERT INTO applied VALUES (?, ?, ?)", row)
        if delivered.position == 60 and failures:
            raise failures.pop()

    sessions = StoreSessions(SqliteStore(path, apply), inline=inline)

    async def play(log_id: str) -> None:
        position, term = -1, 0
        while position < 99:
            term += 1
            answered = Answered()
            session = sessions.open_session(hello(1, term, log_id=log_id), answered)
            await answered.until("greeted", position)
            for at in range(position + 1, 100, 10):
                end = min(at + 10, 61 if at <= 60 else 100)
                session.receive(batch(at - 1, *range(at, end)))
                with_answer = asyncio.ensure_future(answered.until("acknowledged", end - 1))
                ended = asyncio.ensure_future(answered.ended())
                await asyncio.wait([with_answer, ended], return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    with_answer.cancel()
                    break
                ended.cancel()
                position = end - 1

    await asyncio.gather(*[play(f"cluster/topic/{partition}") for partition in range(3)])
    await sessions.close()
    with sqlite3.connect(path) as connection:
        for partition in range(3):
            rows = connection.execute("SELECT at FROM applied WHERE partition = ? ORDER BY at", (partition,))
            assert [row[0] for row in rows] == list(range(100))
    connection.close()
    assert not failures
