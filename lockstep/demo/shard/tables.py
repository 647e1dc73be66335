"""The shard's two tables, in SQLite or PostgreSQL: what is applied, and what an audit finds.

Owns: `shard_values`, the newest value of each key of a topic (a null value removes it), and `shard_applied`,
a row for each record ever applied, in order. Does not: know of marks, or begin and end transactions.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from lockstep.target import Delivered, EntryRecords

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS shard_values (
    topic TEXT NOT NULL, record_key {bytes} NOT NULL, record_value {bytes} NOT NULL,
    log_id TEXT NOT NULL, record_offset BIGINT NOT NULL, PRIMARY KEY (topic, record_key))""",
    """CREATE TABLE IF NOT EXISTS shard_applied (
    number {number}, log_id TEXT NOT NULL, record_offset BIGINT NOT NULL, record_key {bytes})""",
)
_NOTE: Final = "INSERT INTO shard_applied (log_id, record_offset, record_key) VALUES (?, ?, ?)"
_PUT: Final = """
INSERT INTO shard_values (topic, record_key, record_value, log_id, record_offset) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (topic, record_key) DO UPDATE SET record_value = excluded.record_value, log_id = excluded.log_id,
record_offset = excluded.record_offset"""
_REMOVE: Final = "DELETE FROM shard_values WHERE topic = ? AND record_key = ?"
_APPLIED: Final = "SELECT log_id, record_offset FROM shard_applied ORDER BY number"
_COUNT: Final = "SELECT count(*) FROM shard_values"


class Audit(NamedTuple):
    """The contents of `shard_applied`."""

    keys: int
    records: int
    last_offsets: dict[str, int]
    """By log."""
    problems: list[str]
    """A record that was applied twice, or out of order."""

    def __str__(self) -> str:
        logs = ", ".join(f"{log_id} to {offset}" for log_id, offset in sorted(self.last_offsets.items()))
        return f"records={self.records} keys={self.keys} problems={len(self.problems)} {logs}".rstrip()


class Tables:
    """Connections are sqlite3's or psycopg's: what both have in common is all that is used."""

    def __init__(self, is_postgres: bool) -> None:
        self._placeholder = "%s" if is_postgres else "?"
        self._types = (
            {"bytes": "BYTEA", "number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"}
            if is_postgres
            else {"bytes": "BLOB", "number": "INTEGER PRIMARY KEY AUTOINCREMENT"}
        )

    def create(self, connection: Any) -> None:
        for table in _TABLES:
            connection.execute(table.format(**self._types))

    def apply(self, connection: Any, delivered: Delivered) -> None:
        """The callback that the target calls in its transaction."""
        topic = delivered.topic
        rows = [(_log_of(delivered, entry), each) for entry in delivered.entries for each in entry.records]
        newest = {record.key: (log_id, record) for log_id, record in rows if record.key is not None}
        puts = [
            (topic, key, record.value, log_id, record.offset)
            for key, (log_id, record) in newest.items()
            if record.value is not None
        ]
        removes = [(topic, key) for key, (_, record) in newest.items() if record.value is None]
        notes = [(log_id, record.offset, record.key) for log_id, record in rows]
        cursor = connection.cursor()
        for statement, values in ((_NOTE, notes), (_PUT, puts), (_REMOVE, removes)):
            if values:
                cursor.executemany(statement.replace("?", self._placeholder), values)

    def audit(self, connection: Any) -> Audit:
        records = 0
        last_offsets: dict[str, int] = {}
        problems: list[str] = []
        for log_id, offset in connection.execute(_APPLIED):
            records += 1
            last = last_offsets.setdefault(log_id, -1)
            if offset <= last:
                problems.append(f"{log_id}: {offset} was applied after {last}")
            last_offsets[log_id] = max(offset, last)
        (keys,) = connection.execute(_COUNT).fetchone()
        return Audit(keys, records, last_offsets, problems)


def _log_of(delivered: Delivered, entry: EntryRecords) -> str:
    """The log that offsets belong to: a log that is several partitions has some of each."""
    is_one = delivered.partition == entry.partition
    return delivered.log_id if is_one else f"{delivered.log_id}/{entry.partition}"
