"""An application whose state shows what was applied twice, half or not at all; and a process of it."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lockstep.sql import SqlApplication
from lockstep.transactions.model import Committed, Record

STAGES = ("after the mark", "between effects", "before the commit", "after the commit")


def feed(partition: int, length: int) -> list[Committed]:
    """The same for everybody, with gaps between the offsets."""
    drawn = random.Random(partition)
    made, previous = [], -1
    for _ in range(length):
        offset = previous + drawn.randint(1, 3)
        value = str(drawn.randint(1, 1000)).encode()
        made.append(Committed(partition, offset, (Record(value),), previous=previous))
        previous = offset
    return made


class Ledger(SqlApplication):
    """Two effects each: a row, which would be there twice, and a sum, which is read and written back."""

    def __init__(
        self, database: str, *, topic: str = "ledger", options: dict[str, Any] | None = None, **more: Any
    ):
        super().__init__(sa.create_engine(database, **(options or {})), topic, metadata=sa.MetaData(), **more)
        self.effects = sa.Table(
            "effects",
            self.metadata,
            sa.Column("partition", sa.Integer),
            sa.Column("offset", sa.Integer),
            sa.Column("value", sa.Integer),
        )
        self.totals = sa.Table(
            "totals",
            self.metadata,
            sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("total", sa.Integer),
        )
        self.calls = 0
        """Of `apply_in`."""
        self.in_callback: Callable[[Connection], object] = lambda connection: None
        """What a test does between the effects."""

    def apply_in(self, connection: Connection, committed: Committed) -> None:
        self.calls += 1
        value, partition = int(committed.value or b""), committed.partition
        effect = {"partition": partition, "offset": committed.offset, "value": value}
        connection.execute(sa.insert(self.effects).values(effect))
        self.in_callback(connection)
        row = self.totals.c.partition == partition
        total = connection.scalar(sa.select(self.totals.c.total).where(row))
        if total is None:
            connection.execute(sa.insert(self.totals).values(partition=partition, total=value))
        else:
            connection.execute(sa.update(self.totals).where(row).values(total=total + value))

    def mark(self, partition: int = 0) -> int:
        found = self.high_water_mark(partition)
        assert isinstance(found, int)
        return found

    def applied(self, partition: int = 0) -> list[int]:
        """The offsets whose effects are there, one for each time."""
        query = sa.select(self.effects.c.offset).where(self.effects.c.partition == partition)
        with self.engine.connect() as connection:
            return sorted(connection.scalars(query))

    def check(self, partition: int, length: int) -> None:
        """All of the feed, each exactly once."""
        wanted = feed(partition, length)
        assert self.applied(partition) == [committed.offset for committed in wanted]
        query = sa.select(self.totals.c.total).where(self.totals.c.partition == partition)
        with self.engine.connect() as connection:
            assert connection.scalar(query) == sum(int(committed.value or b"") for committed in wanted)
        assert self.mark(partition) == wanted[-1].offset

    def follow(self, partition: int, length: int) -> None:
        mark = self.mark(partition)
        for committed in feed(partition, length):
            if committed.offset > mark:
                self.apply(committed)


class Doomed(Ledger):
    """Is killed at a stage of the N-th transaction that it applies itself."""

    def __init__(self, database: str, stage: str, die_at: int) -> None:
        super().__init__(database)
        self._numbers = itertools.count(1)
        self._of_thread = threading.local()
        self._death = (stage, die_at)
        self.in_callback = lambda connection: self._reached("between effects")
        sa.event.listen(self.engine, "commit", lambda connection: self._reached("before the commit"))

    def apply(self, committed: Committed) -> None:
        super().apply(committed)
        self._reached("after the commit")

    def apply_in(self, connection: Connection, committed: Committed) -> None:
        self._of_thread.number = next(self._numbers)
        self._reached("after the mark")
        super().apply_in(connection, committed)

    def _reached(self, stage: str) -> None:
        if (stage, getattr(self._of_thread, "number", 0)) == self._death:
            os.kill(os.getpid(), signal.SIGKILL)


def follow(database: str, partitions: int, length: int, stage: str = "", die_at: int = 0) -> None:
    """A process: each partition in a thread of its own, up to the end of its feed or to the stage named."""
    ledger = Doomed(database, stage, die_at)
    ledger.create_tables()
    with ThreadPoolExecutor(partitions) as threads:
        for done in [threads.submit(ledger.follow, number, length) for number in range(partitions)]:
            done.result()
