"""The API of a player's target: an application that is sent a log, and stores each record once.

    def apply(connection: sqlite3.Connection, delivered: Delivered) -> None:
        for record in delivered.records:
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (record.key, record.value))

    async with serve(SqliteStore("state.db", apply), "localhost:7100"):
        await asyncio.Event().wait()

| name | what it is |
|---|---|
| `SqliteStore`, `PostgresStore` | the application's tables and the mark change together: exactly once |
| `FileStore` | the mark in a file, effects anywhere: at least once, or once where the application looks |
| `Webhook` | each entry posted to an HTTP server: at least once, or once where that honours a key |
| `serve`, `serve_in_thread` | listen for players |
| `AppliedInPart` | what an application over a `FileStore` may raise: the mark moves as far as it came |
| `Delivered`, `EntryRecords`, `Record` | what is applied |
| `ForbiddenInApply` | the error for an application that commits by itself |
| `TargetSettings` | bounds |
| `TlsFiles` | TLS between player and target |

`PostgresStore` needs psycopg 3, which the extra `sql` brings. The rules are in
`lockstep.player.target.target_position`; a store of one's own keeps to `lockstep.player.target.store`.
`python -m lockstep.demo.shard` is an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep.player.target.file import AppliedInPart, FileStore
from lockstep.player.target.guard import ForbiddenInApply
from lockstep.player.target.records import Delivered, EntryRecords, LogName
from lockstep.player.target.sessions import TargetSettings
from lockstep.player.target.sqlite import SqliteStore
from lockstep.player.target.webhook import Webhook
from lockstep.player.transport.tls_files import TlsFiles
from lockstep.protocol.records.record import Record
from lockstep.target.server import Serving, serve, serve_in_thread

if TYPE_CHECKING:
    from lockstep.player.target.postgres import PostgresStore

__all__ = [
    "AppliedInPart",
    "Delivered",
    "EntryRecords",
    "FileStore",
    "ForbiddenInApply",
    "LogName",
    "PostgresStore",
    "Record",
    "Serving",
    "SqliteStore",
    "TargetSettings",
    "TlsFiles",
    "Webhook",
    "serve",
    "serve_in_thread",
]


def __getattr__(name: str) -> Any:
    """`PostgresStore`, where psycopg is installed."""
    if name != "PostgresStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from lockstep.player.target.postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise ImportError(
            "PostgresStore needs psycopg: pip install -e '.[sql]' in the clone, elsewhere pip install "
            "'/path/to/lockstep[sql]'",
            name="psycopg",
        ) from None
    return PostgresStore
