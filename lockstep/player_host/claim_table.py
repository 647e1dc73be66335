"""The committed claims: a claim's record, the newest claim of each log, and when one is due. Pure.

Owns: the newest claim of each log, with the time at which this process read it. Invariants: a claim follows
on the newest that was read, with a higher term; a lease counts from the moment of reading, on this process's
own clock. Does not: append (`claims`). Time decides only when a process tries: of two that do, the topic's
lock rejects one, and of two that deliver, the targets reject the one with the lower term.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from lockstep.transactions.model import Record


class LogClaim(NamedTuple):
    """A claim's record; its key is the log's id."""

    log_id: str
    player_term: int
    player: str | None
    """None where it was released."""
    process: str
    """The id of the process: several may have had the name."""
    taken_at_ms: int
    """By the wall clock of the claiming process; for operators."""


class CurrentClaim(NamedTuple):
    """The newest claim of a log."""

    claim: LogClaim
    offset: int
    read_ms: int


def record_of(claim: LogClaim) -> Record:
    """Encodes the claim for the topic."""
    value = {
        "player": claim.player,
        "player_term": claim.player_term,
        "process": claim.process,
        "taken_at_ms": claim.taken_at_ms,
    }
    return Record(json.dumps(value).encode(), claim.log_id.encode())


def claim_of(record: Record) -> LogClaim | None:
    """Decodes a record of the topic; None where it is no claim."""
    try:
        value = json.loads(record.value or b"")
        log_id = (record.key or b"").decode()
    except ValueError:
        return None
    if not isinstance(value, dict) or not log_id:
        return None
    term, player, process = value.get("player_term"), value.get("player"), value.get("process")
    taken_at_ms = value.get("taken_at_ms")
    if not isinstance(term, int) or term < 1 or not isinstance(process, str):
        return None
    if not isinstance(player, str | None) or not isinstance(taken_at_ms, int):
        return None
    return LogClaim(log_id, term, player, process, taken_at_ms)


class ClaimTable:
    """See the module. Args: player, process: the names of this one in its claims."""

    def __init__(self, player: str, process: str) -> None:
        self._player = player
        self._process = process
        self._newest: dict[str, CurrentClaim] = {}
        self._inherited: dict[str, int] = {}
        """Offsets of claims that an earlier process of this name has left."""

    @property
    def newest(self) -> Mapping[str, CurrentClaim]:
        """By log."""
        return self._newest

    @property
    def oldest(self) -> CurrentClaim | None:
        """The newest claim with the lowest offset: no record below it is needed any more."""
        return min(self._newest.values(), key=lambda current: current.offset, default=None)

    def read(self, claim: LogClaim, offset: int, now_ms: int) -> None:
        """A record of the topic, in order."""
        self._newest[claim.log_id] = CurrentClaim(claim, offset, now_ms)

    def start_complete(self) -> None:
        """Everything that was there at the start has been read: of that, what is this name's is taken over
        at once. Not later: two processes of one name would take it from each other for ever."""
        for log_id, current in self._newest.items():
            if current.claim.player == self._player:
                self._inherited[log_id] = current.offset

    def is_own(self, current: CurrentClaim) -> bool:
        """True if this process took the claim."""
        return current.claim.process == self._process and current.claim.player is not None

    def due_ms(self, log_id: str, lease_ms: int) -> int:
        """The time at which the log may be claimed; 0 for at once."""
        current = self._newest.get(log_id)
        if current is None or current.claim.player is None or self.is_own(current):
            return 0
        if self._inherited.get(log_id) == current.offset:
            return 0
        return current.read_ms + lease_ms

    def next_claim(self, log_id: str, above_term: int, taken_at_ms: int) -> LogClaim:
        """One that follows on the newest, in a term above that and `above_term`."""
        current = self._newest.get(log_id)
        term = max(above_term, current.claim.player_term if current else 0) + 1
        return LogClaim(log_id, term, self._player, self._process, taken_at_ms)
