"""`python -m tests.campaigns.player_sabotage --store ...`: the demo shard with a mistake, for one test.

Owns: the mistake that a target's authors make most easily: what was applied is committed first, and the mark
a moment later, in a transaction of its own. Who is killed in between applies a record twice; the campaign
must see that. In SQLite alone.
"""

from __future__ import annotations

import sys
import time

from lockstep.demo.shard.__main__ import main
from player.target import sqlite
from player.target.marks import Mark
from player.target.records import Delivered

BETWEEN_S = 0.1


def store_apart(self: sqlite.SqliteLog, delivered: Delivered, mark: Mark) -> None:
    """In place of `SqliteLog.store`."""
    with self._transaction():
        self._apply(self._connection, delivered)
    time.sleep(BETWEEN_S)
    with self._transaction():
        self._connection.execute(sqlite._MOVE, (mark.position, mark.log_id))


if __name__ == "__main__":
    sqlite.SqliteLog.store = store_apart  # type: ignore[method-assign]
    sys.exit(main())
