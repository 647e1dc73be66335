"""`python -m tests.campaigns.player_sabotage --store ...`: the demo shard with a mistake, for one test.

Owns: the mistake that a target's authors make most easily: what was applied is committed first, and the mark
a moment later, in a transaction of its own. Who is killed in between applies a record twice; the campaign
must see that. The first to come there waits to be killed, so that it does not take luck. In SQLite alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from lockstep.demo.shard.__main__ import main
from lockstep.player.target import sqlite
from lockstep.player.target.records import Delivered
from lockstep.player.target.target_position import Mark
from tests.campaigns.player_processes import Target

BETWEEN_S = 0.1
LONGEST_S = 3600.0
"""A kill comes before that."""
SQLITE = "sqlite:///"


def _file(store: str) -> Path:
    """Says which process waits, or waited."""
    return Path(store).resolve().with_suffix(".between")


def was_killed_between(target: Target) -> bool:
    """Whether one of a target's processes waited between the two transactions, and is no more."""
    return _waited(target) not in (None, target.pid)


def is_between(target: Target) -> bool:
    """Whether the target's process waits between the two transactions."""
    return _waited(target) == target.pid


def _waited(target: Target) -> int | None:
    """The process of a target that was the first between the two transactions; None before."""
    try:
        text = _file(target.store.removeprefix(SQLITE)).read_text()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def store_apart(self: sqlite.SqliteLog, delivered: Delivered, mark: Mark) -> None:
    """In place of `SqliteLog.store`."""
    with self._transaction():
        self._apply(self._connection, delivered)
    (_, _, store), *_ = self._connection.execute("PRAGMA database_list")
    time.sleep(LONGEST_S if delivered.records and _is_first(store) else BETWEEN_S)
    with self._transaction():
        self._connection.execute(sqlite._MOVE, (mark.position, mark.log_id))


def _is_first(store: str) -> bool:
    """Whole at once: it may be killed right here, too."""
    process = os.getpid()
    own = Path(f"{store}.{process}")
    own.write_text(str(process))
    with contextlib.suppress(FileExistsError):
        os.link(own, _file(store))
        return True
    return False


if __name__ == "__main__":
    sqlite.SqliteLog.store = store_apart  # type: ignore[method-assign]
    sys.exit(main())
