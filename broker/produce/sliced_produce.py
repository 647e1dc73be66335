"""The rest of a Produce request whose batches take more than one time slice: it runs in later ones.

A request has room for a million batches, and a few hundred bytes of it for a batch of 200,000 records that
must be opened (compacted topics, locks, times) or of 8 MiB to be recompressed: together minutes of the
loop. No count of records or bytes distinguishes such a request from an honest one, whose records take a byte
or two each where they are alike. So none is rejected for its content; time limits each slice.

Invariants: batches are appended in the request's order, and their connection dispatches and reads nothing
before the last, so that producers' batches keep their order. The request counts as in flight all the time; if
a client closes after acks=0, all is appended, as without slices. A broken connection ends the work, since its
bytes are no longer counted. Each slice waits for its own commits: the leadership may be lost, and back,
before the last. After a batch without a leader the rest is rejected, too, so that a producer's next request
finds the record of the missing batch. Does not: slice an atomic append
(`broker/produce/api/atomic_produce.py`), or know what a step is (`broker/produce/api/produce.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from lockstep.broker.requests.request_context import PendingResponse
from lockstep.broker.requests.sliced_response import SlicedResponse
from lockstep.broker.requests.time_slices import TimeSlice, TimeSlicer

MAX_SECONDS: Final = 30.0
"""LIMIT. After so long clients have timed out, and other connections wait for the request's memory: the rest
is rejected, so that a client that still waits sends it again."""


class AppendWork(Protocol):
    """A request with batches left."""

    def on_slice_end(self, is_done: bool) -> None:
        """A time slice has ended; `is_done`: it was the last one."""

    def abort(self, reason: str) -> None:
        """Reject the batches that are left, in the steps that are left. May be called again."""


class SlicedProduce(SlicedResponse):
    """Completed with the PendingResponse that waits for the commits, once the last step is taken.

    Args:
        response: waits for the commits; `work.on_slice_end` updates it.
    """

    __slots__ = ("_deadline", "_work")

    def __init__(
        self, time_slicer: TimeSlicer, steps: Iterator[None], work: AppendWork, response: PendingResponse
    ) -> None:
        super().__init__(time_slicer, steps, lambda: response)
        self._work = work
        self._deadline = TimeSlice(MAX_SECONDS)

    def on_shutdown(self) -> None:
        """Reject the batches that are left, so that the client sends them to another node."""
        self._work.abort("this node is about to end")

    def _run_slice(self, steps: Iterator[None]) -> bool:
        if self._deadline.is_over:
            self._work.abort("the batches before it took too long")
        is_done = super()._run_slice(steps)
        self._work.on_slice_end(is_done)
        return is_done
