"""Transient errors of a database, and the pauses between retries.

Owns: the list (a lost connection, a database that is starting or full of connections, a transaction that lost
against another one, a locked SQLite file) and the pauses. What a callback raises by itself never passes.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy.exc import DBAPIError, OperationalError, TimeoutError

T = TypeVar("T")

MAX_PAUSE_S: Final = 5.0

_STATES: Final = ("08", "40", "53", "57P", "55P03")
"""SQLSTATEs, by how they begin: connection lost, transaction rolled back (40001: could not be serialized,
40P01: deadlock), out of resources, going down or coming up, a lock that was not free."""

_SQLITE: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN})


def is_transient(error: DBAPIError | TimeoutError) -> bool:
    """True if the same call may succeed a little later."""
    if isinstance(error, TimeoutError) or error.connection_invalidated:
        return True  # all connections of the pool in use; a connection that broke
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        # the low byte is the kind, the others are details; errors of the module itself have none
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _SQLITE
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if state is None:
        return isinstance(error, OperationalError)  # there was no server to give one
    return str(state).startswith(_STATES)


def call_with_retries(call: Callable[[], T], tries: int, first_pause_s: float) -> T:
    """The result of `call`, called up to `tries` times. Raises its last error, or one that is not transient.

    The pauses double; they differ at random, since those who met once would meet again.
    """
    pause_s = first_pause_s
    for number in range(1, tries + 1):
        try:
            return call()
        except (DBAPIError, TimeoutError) as error:
            if not is_transient(error):
                raise
            if number == tries:
                error.add_note(f"tried {tries} times")
                raise
        time.sleep(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(pause_s * 2, MAX_PAUSE_S)
    raise ValueError(f"{tries} tries")
