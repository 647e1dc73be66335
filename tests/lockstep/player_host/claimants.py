"""Claimants on a log in memory that loses answers, and what must hold of what they have written."""

from __future__ import annotations

from lockstep.player_host.claim_table import LogClaim, claim_of
from lockstep.player_host.claims import Claims
from lockstep.player_host.config import ClaimsConfig
from lockstep.testing.memory_log import MemoryConnection, MemoryLog

SETTINGS = ClaimsConfig(renew_ms=20, lease_ms=60)


class MemoryTopic(MemoryConnection):
    """A `ClaimsLog`: each claim is one record."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.log = log
        self.unread = ""

    def problem(self) -> str:
        return self.unread

    async def first_position(self) -> int:
        entries = self.log.entries(0)
        return entries[0].offset if entries else self.log.end(0)

    async def trim(self, position: int) -> None:
        self.log.trim(0, position)


def claims_of(log: MemoryLog, player: str, process: str, settings: ClaimsConfig = SETTINGS) -> Claims:
    """A process of a player."""
    return Claims(MemoryTopic(log), player, settings, process)


def written(log: MemoryLog) -> list[LogClaim]:
    """All claims that the log has."""
    found = [claim_of(record) for entry in log.entries(0) for record in entry.records]
    return [claim for claim in found if claim is not None]


def check(claims: list[LogClaim]) -> None:
    """Of each log, a term belongs to one process, terms grow, and nobody comes back to one that is over."""
    newest: dict[str, LogClaim] = {}
    for claim in claims:
        before = newest.get(claim.log_id)
        if before is not None:
            assert claim.player_term >= before.player_term, (before, claim)
            if claim.player_term == before.player_term:
                assert claim.process == before.process, (before, claim)
                assert before.player is not None or claim == before, "it was given up"
        newest[claim.log_id] = claim
