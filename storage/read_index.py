"""ReadIndex: confirms that this member still leads where it has no lease.

A lease counts from when the leader sent a message that was responded to: a leader that was paused for longer
than the lease has none until its next heartbeat's response, although nothing has changed. Where a majority
responds, in the leader's term, to messages that were sent after the request, no other leader had been elected
at the time of the request. Invariants: each request is completed, at the latest when the leadership ends by
CheckQuorum; heartbeats serve, no message is sent for it. Source: Raft thesis, section 6.4 (ReadIndex).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.storage.replica import Replica

POLL_SECONDS = 0.01
"""The interval of checks: about the round trip of a heartbeat."""


class ReadIndex:
    """The pending confirmations of one replica."""

    __slots__ = ("_loop", "_pending", "_replica")

    def __init__(self, replica: Replica, loop: asyncio.AbstractEventLoop) -> None:
        self._replica = replica
        self._loop = loop
        self._pending: list[tuple[int, int, asyncio.Future[bool]]] = []
        """(term, when in ms of the core's clock, result), oldest first."""

    def confirm_leadership(self) -> asyncio.Future[bool]:
        """Resolves to True where no other member led at the call; to False also where that cannot be
        known."""
        if not self._pending:
            self._loop.call_later(POLL_SECONDS, self._check)
        result: asyncio.Future[bool] = self._loop.create_future()
        self._pending.append((self._replica.raft.term, self._replica.now_ms(), result))
        return result

    def _check(self) -> None:
        replica = self._replica
        raft, now_ms = replica.raft, replica.now_ms()
        leads = replica.is_serving and not replica.stopped
        contact_ms, has_lease = raft.contact_ms(now_ms), raft.has_lease(now_ms)
        pending, self._pending = self._pending, []
        for each in pending:
            term, requested_ms, result = each
            still_leads = leads and term == raft.term
            if still_leads and not has_lease and contact_ms <= requested_ms:
                self._pending.append(each)
            elif not result.done():
                result.set_result(still_leads)
        if self._pending:
            self._loop.call_later(POLL_SECONDS, self._check)
