"""A target's process that goes on where its store is, and kills itself before the Nth line of the store's
code.

Owns: the child's side. Lines are counted in the store's module, in what makes its transactions, and in the
application, so every state that a death can leave behind is met.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg.transaction

import lockstep.player.target.file
import lockstep.player.target.postgres
import lockstep.player.target.sqlite
from lockstep.player.core.messages import Part
from lockstep.player.target.records import Delivered, open_parts
from tests.player.target import stores
from tests.player.target.stores import NAME, FileLedger, Ledger, PostgresLedger, SqliteLedger, mark
from tests.player.target.streams import payload

LEDGERS: dict[str, Callable[[str], Ledger]] = {
    "sqlite": lambda place: SqliteLedger(Path(place)),
    "postgres": PostgresLedger,
    "file": lambda place: FileLedger(Path(place)),
}
_COUNTED = frozenset(
    str(module.__file__)
    for module in (
        lockstep.player.target.file,
        lockstep.player.target.postgres,
        lockstep.player.target.sqlite,
        psycopg.transaction,
        stores,
    )
)


def play(kind: str, place: str, target_term: int, last: int, dies_before: int | None, acked: int) -> None:
    """Store what follows up to `last`, and write each stored position to `acked`, a file descriptor."""
    ledger = LEDGERS[kind](place)
    drawn = random.Random(target_term)
    log = ledger.store().open(NAME)
    if dies_before is not None:
        _die_before(dies_before)
    log.load()
    position = log.fence(mark(target_term, -1))
    while position < last:
        os.write(acked, b"%d\n" % position)
        through = min(last, position + drawn.randint(1, 3))
        wanted = range(position + 1, through + 1)
        parts = [Part(at, payload(at), 1) for at in wanted if not is_dummy(at)]
        log.store(Delivered(NAME, position, through, open_parts(parts)), mark(target_term, through))
        position = through
    os.write(acked, b"%d\n" % position)
    sys.settrace(None)
    log.close()


def is_dummy(position: int) -> bool:
    """Whether nothing of this target's stands there."""
    return position % 5 == 4


def _die_before(line: int) -> None:
    left = line

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return count

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return count if frame.f_code.co_filename in _COUNTED else None

    sys.settrace(enter)
