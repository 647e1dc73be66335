"""The read barrier: a coordinator's request is served once it is certain that this node leads.

A leader with a lease serves at once. One whose lease has lapsed, because it was paused or heartbeats were
lost, does not reject the request: clients would rejoin, or give their transactions up. It waits until a
majority has responded to a heartbeat (ReadIndex), or until it knows that it does not lead.

Owns: the wait. Invariant: what is read after it is at least as new as what any leader had committed when the
request came; a node that lost the leadership meanwhile and leads again has committed an entry since.
Does not: know coordinators (`broker/coordination/` does). Source: Raft dissertation, section 6.4.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol


class Leadership(Protocol):
    """The leadership of a log group whose lease has lapsed."""

    def confirm(self) -> Awaitable[bool]:
        """Resolves to True where no other node led at the call; to False once the leadership has ended."""


async def take_read_barrier(lapsed: Callable[[], Collection[Leadership]]) -> None:
    """Wait until every leadership that is needed is confirmed, has a lease again or has ended.

    Args: lapsed: those without a lease now; one that ends is not among them any more.
    """
    confirmed: set[Leadership] = set()
    while pending := [each for each in lapsed() if each not in confirmed]:
        for leadership in pending:
            if await leadership.confirm():
                confirmed.add(leadership)
