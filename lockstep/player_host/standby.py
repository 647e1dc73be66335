"""Delivery of one log by one of several processes: claimed, delivered, lost, and claimed again.

Owns: that a delivery has the term of its claim, and ends when the claim is lost. Invariants: the claim is
released when the delivery has ended, not before; a player that a target has rejected does not come back at
once. Does not: keep two players from sending at the same time. A process that does not run cannot know that
its claim is lost; the targets know the terms.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

from lockstep.player.driver.errors import Deposed
from lockstep.player.source.interface import Source, log_name
from lockstep.player_host.claim_table import CurrentClaim
from lockstep.player_host.claims import ClaimLost, Claims
from lockstep.player_host.players import Players

log = logging.getLogger("lockstep.player")


@dataclass
class StandbyState:
    """The state of one log in this process, for its status page."""

    partition: int
    log_id: str
    is_delivering: bool = False
    failed: str = ""
    """The reason why this process does not try any more."""


async def stand_by(
    state: StandbyState, source: Source, claims: Claims, players: Players, pause_ms: int
) -> None:
    """Waits for the claim and delivers while it is held; repeats until cancelled.

    Args:
        pause_ms: before the log is claimed again after a target rejected this player.
    Raises:
        PlayerStopped, SourceClosed: the log cannot be delivered here any more.
        ClaimsUnusable: the claims cannot be read.
    """
    above_term, name = 0, log_name(source)
    while True:
        current = await claims.claim(source.log_id, name, above_term=above_term)
        log.info("%s: delivered here in term %d", name, current.claim.player_term)
        state.is_delivering = True
        try:
            await _deliver(source, current, claims, players)
        except ClaimLost as lost:
            log.warning("%s: %s; standing by", name, lost)
            continue
        except Deposed as deposed:
            log.warning("%s: %s; standing by", name, deposed)
            above_term = max(above_term, deposed.player_term)
        finally:
            state.is_delivering = False
        await asyncio.sleep(pause_ms / 1000)


async def _deliver(source: Source, current: CurrentClaim, claims: Claims, players: Players) -> None:
    """Delivers and renews the claim until either ends, and raises its error; the claim is released unless it
    is lost."""
    delivering = asyncio.create_task(players.deliver(source, current.claim.player_term))
    renewing = asyncio.create_task(claims.keep(current))
    try:
        await asyncio.wait((delivering, renewing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (delivering, renewing):
            task.cancel()
        await asyncio.gather(delivering, renewing, return_exceptions=True)
        if not _is_lost(delivering) and not _is_lost(renewing):
            await claims.release(current)
    for task in (delivering, renewing):
        with suppress(asyncio.CancelledError):
            task.result()


def _is_lost(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and isinstance(task.exception(), ClaimLost | Deposed)
