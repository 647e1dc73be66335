"""Tells the operator, in the log, who waits for what this broker does not serve yet.

Clients wait for a transaction's coordinator without a word, for ever; so does whoever looks at them.
Owns: one WARNING per client id. Invariants: what is remembered and how many lines a minute
brings are bounded, whatever clients send; a client left out asks again and is named in a later minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger("lockstep")

CLIENTS_REMEMBERED: Final = 1_000
LINES_PER_MINUTE: Final = 10
NAME_CHARACTERS: Final = 80


class Unserved:
    """Args: seconds: a clock that never goes back."""

    __slots__ = ("_lines", "_minute", "_seconds", "_told")

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._told: dict[str, None] = {}
        self._minute = -1
        self._lines = 0

    def asked(self, client_id: str | None, transactional_id: str) -> None:
        """A client wants to begin transactions."""
        client = _shown(client_id or "without a name")
        if client in self._told:
            return
        minute = int(self._seconds() // 60)
        if minute != self._minute:
            self._minute, self._lines = minute, 0
        if self._lines == LINES_PER_MINUTE:
            return
        self._lines += 1
        if len(self._told) == CLIENTS_REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[client] = None
        log.warning(
            "client %s asks for transactional id %s: transactions are not served yet, it will wait; "
            "leave transactional.id out",
            client,
            _shown(transactional_id),
        )


def _shown(name: str) -> str:
    """A client's own words, made fit for one line."""
    cut = name[:NAME_CHARACTERS]
    return "".join(each if each.isprintable() else "?" for each in cut) + ("..." if cut != name else "")
