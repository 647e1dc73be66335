"""Whether this member still led when it was asked, where the lease cannot say it.

A lease counts from when the leader sent what was answered: one that was held up itself, for longer than the
lease, has none until its next heartbeat has come back, although nothing has changed. Where messages that were
sent after the question are answered in the leader's term by a majority, nobody else had been elected when it
was asked. Invariants: each question is answered: at the latest when the leadership is over, which CheckQuorum
sees to; nothing is sent for it, heartbeats are. Source: Raft thesis, section 6.4 (ReadIndex).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.replica import Replica

LOOK_SECONDS = 0.01
"""How often questions are looked at: about the way of a heartbeat there and back."""


class Confirming:
    """Of one replica."""

    __slots__ = ("_asked", "_loop", "_replica")

    def __init__(self, replica: Replica, loop: asyncio.AbstractEventLoop) -> None:
        self._replica = replica
        self._loop = loop
        self._asked: list[tuple[int, int, asyncio.Future[bool]]] = []
        """(term, when in ms of the core's clock, answer), oldest first."""

    def confirmed(self) -> asyncio.Future[bool]:
        """Whether nobody else led when this was called; False also where that cannot be known any more."""
        if not self._asked:
            self._loop.call_later(LOOK_SECONDS, self._look)
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._asked.append((self._replica.raft.term, self._replica.now_ms(), answer))
        return answer

    def _look(self) -> None:
        replica = self._replica
        raft, now_ms = replica.raft, replica.now_ms()
        leads = replica.is_serving and not replica.stopped
        contact_ms, has_lease = raft.contact_ms(now_ms), raft.has_lease(now_ms)
        asked, self._asked = self._asked, []
        for each in asked:
            term, asked_ms, answer = each
            still_leads = leads and term == raft.term
            if still_leads and not has_lease and contact_ms <= asked_ms:
                self._asked.append(each)
            elif not answer.done():
                answer.set_result(still_leads)
        if self._asked:
            self._loop.call_later(LOOK_SECONDS, self._look)
