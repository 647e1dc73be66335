"""The contents of a shard of `lockstep.demo.shard`, in SQLite or PostgreSQL, at one moment.

Owns: the names of its two tables and of the marks beside them, and reading all three in one transaction that
changes nothing, so that a shard may be read during a delivery. Does not: compare anything.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_connector.pipelines.failures import PipelineFailed

if TYPE_CHECKING:
    import pyarrow

SQLITE: Final = "sqlite:///"
POSTGRES: Final = ("postgresql://", "postgres://")
CHUNK_ROWS: Final = 50_000

_MARKS: Final = "SELECT log_id, position FROM lockstep_player_marks"
_APPLIED: Final = "SELECT number, log_id, record_offset, record_key FROM shard_applied"
_VALUES: Final = "SELECT log_id, record_offset, record_key, record_value FROM shard_values WHERE topic = "


@dataclass(frozen=True)
class StoreSnapshot:
    """One store's contents."""

    marks: dict[str, int]
    """The position in each log: everything up to there is stored."""
    applied: pyarrow.Table
    """number, log_id, offset, key: a row for each record ever applied."""
    values: pyarrow.Table
    """log_id, offset, key, value: a row for each key that has a value."""


def read_snapshot(url: str, topic: str) -> StoreSnapshot:
    """Reads a store. PipelineFailed: it is missing, or no shard's; sqlite3.Error, psycopg.Error."""
    import pyarrow

    key, number, text = pyarrow.binary(), pyarrow.int64(), pyarrow.string()
    with _open_reader(url) as (rows, placeholder):
        marks = dict(next(rows(_MARKS, ()), []))
        applied = _table(
            rows(_APPLIED, ()), [("number", number), ("log_id", text), ("offset", number), ("key", key)]
        )
        values = _table(
            rows(_VALUES + placeholder, (topic,)),
            [("log_id", text), ("offset", number), ("key", key), ("value", key)],
        )
    return StoreSnapshot(marks, applied, values)


def _table(chunks: Iterator[Sequence[Sequence[Any]]], columns: Sequence[tuple[str, Any]]) -> pyarrow.Table:
    import pyarrow

    schema = pyarrow.schema(list(columns))
    batches = []
    for chunk in chunks:
        arrays = [
            pyarrow.array(list(values), kind)
            for values, (_, kind) in zip(zip(*chunk, strict=True), columns, strict=True)
        ]
        batches.append(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))
    return pyarrow.Table.from_batches(batches, schema)


@contextlib.contextmanager
def _open_reader(url: str) -> Iterator[tuple[Any, str]]:
    """(rows of a statement in chunks, placeholder), within one transaction."""
    if url.startswith(SQLITE):
        path = Path(url.removeprefix(SQLITE))
        if not path.is_file():
            raise PipelineFailed(f"{url}: there is no such file")
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as sqlite:
            sqlite.isolation_level = None
            sqlite.execute("BEGIN")
            with _no_shard(url, sqlite3.OperationalError):
                yield lambda text, values: _chunks(sqlite.execute(text, values)), "?"
        return
    if not url.startswith(POSTGRES):
        raise PipelineFailed(f"--store {url}: neither {SQLITE}FILE nor {POSTGRES[0]}...")
    try:
        import psycopg
    except ModuleNotFoundError:
        raise PipelineFailed(
            f"--store {url}: PostgreSQL needs psycopg: pip install 'psycopg[binary]'"
        ) from None
    with psycopg.connect(url) as postgres, _no_shard(url, psycopg.errors.UndefinedTable):
        postgres.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        postgres.read_only = True
        yield lambda text, values: _chunks(postgres.execute(text, values, binary=True)), "%s"


@contextlib.contextmanager
def _no_shard(url: str, error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except error as missing:
        raise PipelineFailed(f"{url} is no shard's store: {str(missing).splitlines()[0]}") from missing


def _chunks(cursor: Any) -> Iterator[Sequence[Sequence[Any]]]:
    while rows := cursor.fetchmany(CHUNK_ROWS):
        yield rows
