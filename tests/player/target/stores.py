"""Applications that note the offset of each record, over each kind of store."""

from __future__ import annotations

import contextlib
import inspect
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import psycopg

from lockstep.player.core.messages import Part
from lockstep.player.target.file import FileStore
from lockstep.player.target.postgres import PostgresStore
from lockstep.player.target.records import Delivered, LogName, open_parts
from lockstep.player.target.sqlite import SqliteStore
from lockstep.player.target.store import TargetStore
from lockstep.player.target.target_position import Mark
from tests.player.target.streams import LOG_ID, payload

NAME = LogName(LOG_ID, "topic", 0)
Step = Callable[[Any], object]
"""What is done with the connection, or with None where there is none."""

TABLE = "CREATE TABLE IF NOT EXISTS applied (at BIGINT PRIMARY KEY)"


def nothing(_: object) -> None: ...


class Ledger(Protocol):
    """An application."""

    then: Step
    """What it returns is what the application returns."""

    def store(self) -> TargetStore:
        """One more, as another process has it."""

    def applied(self) -> list[int]: ...


class SqliteLedger:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.then: Step = nothing
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(TABLE)

    def store(self, timeout_s: float = 30.0) -> SqliteStore:
        return SqliteStore(self.path, self.apply, timeout_s=timeout_s)

    def apply(self, connection: sqlite3.Connection, delivered: Delivered) -> object:
        for record in delivered.records:
            connection.execute("INSERT INTO applied VALUES (?)", (record.offset,))
        return self.then(connection)

    def applied(self) -> list[int]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return [row[0] for row in connection.execute("SELECT at FROM applied ORDER BY at")]


class PostgresLedger:
    def __init__(self, database: str) -> None:
        self.database = database.replace("postgresql+psycopg", "postgresql")
        self.then: Step = nothing
        self.run(TABLE)

    def store(self, idle_timeout_s: float = 60.0) -> PostgresStore:
        return PostgresStore(self.database, self.apply, idle_timeout_s=idle_timeout_s)

    def apply(self, connection: psycopg.Connection[Any], delivered: Delivered) -> object:
        for record in delivered.records:
            connection.execute("INSERT INTO applied VALUES (%s)", (record.offset,))
        return self.then(connection)

    def applied(self) -> list[int]:
        return [row[0] for row in self.run("SELECT at FROM applied ORDER BY at")]

    def run(self, statement: str) -> list[Any]:
        with psycopg.connect(self.database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


class FileLedger:
    """Its effects are a file, too; there is no transaction, so a test must not let it fail after them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.then: Step = nothing

    def store(self, timeout_s: float = 30.0) -> FileStore:
        return FileStore(self.directory / "marks", self.apply, timeout_s=timeout_s)

    def apply(self, delivered: Delivered) -> object:
        returned = self.then(None)
        if inspect.isawaitable(returned):
            return returned
        with (self.directory / "applied").open("a") as file:
            for record in delivered.records:
                print(record.offset, file=file)
        return None

    def applied(self) -> list[int]:
        path = self.directory / "applied"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def entries(previous: int, *positions: int) -> Delivered:
    """Entries of one record each, to be stored after `previous`."""
    parts = [Part(at, payload(at), 1) for at in positions]
    return Delivered(NAME, previous, positions[-1], open_parts(parts))


def mark(target_term: int, position: int, player_term: int = 1) -> Mark:
    return Mark(LOG_ID, player_term, target_term, position)
