"""The rest of a Produce request whose batches take more than one turn of the loop: done in later ones.

A request has room for a million batches, and a few hundred bytes of it for a batch of 200,000 records that
must be opened (compacted topics, locks, times) or of 8 MiB to be compressed anew: together minutes of the
loop. No count of records or bytes tells such a request from an honest one, whose records take a byte or two
each where they are alike. So none is refused for what it holds; what bounds a turn is the time that it took.

Invariants: batches are appended in the request's order and nothing of their connection is done before the
last, so that producers' batches keep theirs. Nor is it read from: the request's bytes count as unanswered all
the time, and of a client that closes after acks=0 all is appended, as if it had been at once. A connection
that breaks ends the work, since nobody counts the bytes any more. What is appended in a turn is waited for
from then on: its leadership may be gone, and back, before the last. Once a batch meets no leader the rest is
refused, too: a producer's batch in the next request must be met while it is known that one is missing.
Does not: spread what is appended as one (`atomic_produce.py`), or know what a step is (`produce.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from broker.context import Deferred
from broker.turns import SharedTurns, Turn, done_in_turn

MOST_SECONDS: Final = 30.0
"""LIMIT. After so long clients have given a request up, and its bytes are room that others wait for: the rest
is refused, so that who does want it sends it again."""


class Work(Protocol):
    """A request on which there is more to do."""

    def turned(self, is_done: bool) -> None:
        """A turn has ended; `is_done`: the last one."""

    def give_up(self, why: str) -> None:
        """Refuse what is left, in the steps that are left. May be called again."""


class LaterTurns(Deferred):
    """Completed with the Deferred that waits for the commits, once the last step is taken.

    Args:
        steps: what is left, as `done_in_turn` wants it; it needs nothing of the receive buffer.
        answer: waits for what is appended, and is told by `work.turned`.
    """

    __slots__ = ("_answer", "_limit", "_steps", "_turns", "_work")

    is_alone = True

    def __init__(self, turns: SharedTurns, steps: Iterator[None], work: Work, answer: Deferred) -> None:
        super().__init__()
        self._turns = turns
        self._steps: Iterator[None] | None = steps
        self._work = work
        self._answer = answer
        self._limit = Turn(MOST_SECONDS)
        self.abandoned = self._abandon
        turns.go_on(self._go_on)

    def hurry(self) -> None:
        """As `Deferred`: what is left is refused, so that the client sends it where there is time."""
        self._work.give_up("this node is about to end")

    def _abandon(self) -> None:
        self._steps = None

    def _go_on(self) -> None:
        steps = self._steps
        if steps is None:
            return
        try:
            if self._limit.is_over:
                self._work.give_up("the batches before it took too long")
            is_done = done_in_turn(steps)
            self._work.turned(is_done)
        except Exception as error:
            self._steps = None
            self.fail(error)
            return
        if is_done:
            self._steps = None
            self.complete(self._answer)
        else:
            self._turns.go_on(self._go_on)
