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

from broker.context import PendingResponse
from broker.handlers.sliced_response import SlicedResponse
from broker.time_slices import TimeSlice, TimeSlicer

MAX_SECONDS: Final = 30.0
"""LIMIT. After so long clients have given a request up, and its bytes are room that others wait for: the rest
is refused, so that who does want it sends it again."""


class AppendWork(Protocol):
    """A request on which there is more to do."""

    def on_slice_end(self, is_done: bool) -> None:
        """A turn has ended; `is_done`: the last one."""

    def abort(self, reason: str) -> None:
        """Refuse what is left, in the steps that are left. May be called again."""


class SlicedProduce(SlicedResponse):
    """Completed with the PendingResponse that waits for the commits, once the last step is taken.

    Args:
        response: waits for what is appended, and is told by `work.on_slice_end`.
    """

    __slots__ = ("_deadline", "_work")

    def __init__(
        self, time_slicer: TimeSlicer, steps: Iterator[None], work: AppendWork, response: PendingResponse
    ) -> None:
        super().__init__(time_slicer, steps, lambda: response)
        self._work = work
        self._deadline = TimeSlice(MAX_SECONDS)

    def on_shutdown(self) -> None:
        """As `PendingResponse`: what is left is refused, so that the client sends it where there is time."""
        self._work.abort("this node is about to end")

    def _run_slice(self, steps: Iterator[None]) -> bool:
        if self._deadline.is_over:
            self._work.abort("the batches before it took too long")
        is_done = super()._run_slice(steps)
        self._work.on_slice_end(is_done)
        return is_done
