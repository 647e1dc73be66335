"""A record that an application cannot apply: the error names it, and everything before it is stored."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lockstep.player.core.messages import Batch, Part
from lockstep.player.target.records import Delivered
from lockstep.player.target.sessions import StoreSessions
from lockstep.player.target.sqlite import SqliteStore
from tests.player.target.streams import Streams, batch, part, payload


class Application:
    """Notes the offsets of each call that is committed; some records are bad."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.bad: set[int] = set()
        self.names_none = False

    def apply(self, connection: sqlite3.Connection, delivered: Delivered) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS calls (offsets TEXT)")
        offsets = [record.offset for record in delivered.records]
        connection.execute("INSERT INTO calls VALUES (?)", (repr(offsets),))
        if self.names_none and self.bad & {*offsets}:
            raise ValueError("one of them is bad")
        for record in delivered.records:
            if record.offset in self.bad:
                raise ValueError("the record is bad")

    @property
    def stored(self) -> list[str]:
        with sqlite3.connect(self._file) as connection:
            return [row[0] for row in connection.execute("SELECT offsets FROM calls ORDER BY rowid")]


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return Application(tmp_path / "target.db")


@pytest.fixture
async def streams(application: Application, tmp_path: Path) -> AsyncIterator[Streams]:
    sessions = StoreSessions(SqliteStore(tmp_path / "target.db", application.apply))
    yield Streams(sessions)
    await sessions.close()


async def test_the_error_names_the_record_and_all_before_it_are_stored(
    streams: Streams, application: Application
) -> None:
    application.bad = {3}
    session, answered = await streams.greeted(-1)
    session.receive(batch(-1, 0, 1, 2, 3, 4, dummies=(1,)))
    await answered.until("ended", "topic-0 offset 3 (of 0 to 4): ValueError: the record is bad")
    session, answered = await streams.greeted(-1)
    session.receive(batch(-1, 0, 1, 2, 3, 4, dummies=(1,)))
    await answered.until("ended", "topic-0 offset 3: ValueError: the record is bad")
    assert application.stored == ["[0]", "[2]"]
    application.bad = set()
    session, answered = await streams.greeted(2)
    session.receive(batch(2, 3, 4, 5))
    await answered.until("acknowledged", 5)
    assert application.stored[2:] == ["[3]", "[4, 5]"], "together again after the one that failed"


async def test_a_failed_transaction_over_partitions_names_both(
    streams: Streams, application: Application
) -> None:
    application.bad = {1}
    session, answered = await streams.greeted(-1)
    parts = [Part(at, part(at).payload, part(at).size_bytes, at + 1) for at in (0, 1)]
    session.receive(Batch(-1, parts, sum(each.size_bytes for each in parts)))
    await answered.until("ended", "topic-1 offset 0 to topic-2 offset 1: ValueError: the record is bad")


async def test_a_record_within_a_batch_is_named_where_apply_had_it_in_hand(
    streams: Streams, application: Application
) -> None:
    application.bad = {12}
    parts = [Part(14, payload(10, 5), 100)]
    session, answered = await streams.greeted(9, first_position=10)
    session.receive(Batch(9, parts, 100))
    await answered.until("ended", "topic-0 offset 12 (of 10 to 14): ValueError: the record is bad")
    application.names_none = True
    session, answered = await streams.greeted(9, first_position=10)
    session.receive(Batch(9, parts, 100))
    await answered.until("ended", "topic-0 offset 10 to 14: ValueError: one of them is bad")


async def test_a_part_that_is_no_batch_is_named_by_its_position(streams: Streams) -> None:
    session, answered = await streams.greeted(-1)
    session.receive(Batch(-1, [Part(7, b"nonsense", 8)], 8))
    assert (await answered.ended()).startswith("topic-0 offset 7: MalformedBatch: ")


async def test_a_store_that_another_process_changed_reports_what_is_missing(
    streams: Streams, tmp_path: Path
) -> None:
    session, answered = await streams.greeted(-1)
    session.receive(batch(-1, 0))
    await answered.until("acknowledged", 0)
    with sqlite3.connect(tmp_path / "target.db") as connection:
        connection.execute("DELETE FROM lockstep_player_marks")
    session.receive(batch(0, 1))
    words = await answered.ended()
    assert words.startswith(
        "topic-0 offset 1: MarkMismatch: the mark of cluster/topic/0 is gone: another process"
    )
    assert words.endswith("each target needs a store of its own (docs/targets.md)")
