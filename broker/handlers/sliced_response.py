"""Answers that take more than one turn of the loop: the rest is made in later ones.

A few megabytes name hundreds of thousands of groups, which is seconds of work. Between turns everybody else
is heard, and so are the followers of what this node leads. Nothing else of the connection is done, nor read,
before the answer. What is raised in a later turn closes the connection; so does a lease that has lapsed
meanwhile (`Uncertain`): who asked asks again.
Does not: spread the decoding of a request or the encoding of its answer, nor the first turn, which each
request has for itself; learn that a client has gone, as nothing is read from it meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from broker.context import ClientContext, HandlerResponse, PendingResponse
from broker.time_slices import TimeSlicer, run_slice

Key = TypeVar("Key")
Item = TypeVar("Item")


class SlicedResponse(PendingResponse):
    """Completed with what `respond` gives once the last step is taken.

    Args:
        steps: what is left, as `run_slice` wants it; it needs nothing of the receive buffer.
    """

    __slots__ = ("_respond", "_steps", "_time_slicer")

    blocks_connection = True

    def __init__(
        self, time_slicer: TimeSlicer, steps: Iterator[None], respond: Callable[[], HandlerResponse]
    ) -> None:
        super().__init__()
        self._time_slicer = time_slicer
        self._steps: Iterator[None] | None = steps
        self._respond = respond
        self.on_disconnect = self._cancel
        time_slicer.schedule(self._resume)

    def _cancel(self) -> None:
        self._steps = None

    def _run_slice(self, steps: Iterator[None]) -> bool:
        """One turn; whether it was the last."""
        return run_slice(steps)

    def _resume(self) -> None:
        steps = self._steps
        if steps is None:
            return
        try:
            if not self._run_slice(steps):
                self._time_slicer.schedule(self._resume)
                return
            response = self._respond()
            if isinstance(response, Awaitable):
                response = PendingResponse.from_awaitable(response)
        except Exception as error:
            self._steps = None
            self.fail(error)
            return
        self._steps = None
        self.complete(response)


def respond_in_slices(
    context: ClientContext,
    keys: Iterable[Key],
    item: Callable[[Key], Item],
    respond: Callable[[list[Item]], HandlerResponse],
) -> HandlerResponse:
    """What `respond` makes of each name's part: at once where that takes no longer than a turn.

    Args:
        item: may raise in the first turn what a handler may raise.
        respond: as a handler answers.
    """
    items: list[Item] = []

    def steps() -> Iterator[None]:
        for key in keys:
            yield
            items.append(item(key))

    steps_left = steps()
    if run_slice(steps_left):
        return respond(items)
    return SlicedResponse(context.services.time_slicer, steps_left, lambda: respond(items))
