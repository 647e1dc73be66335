"""Responses that take more than one time slice: the rest is built in later ones.

A few megabytes name hundreds of thousands of groups, which is seconds of work. Between slices other clients
and followers are served. The connection dispatches and reads nothing else before the response. An error in a
later slice closes the connection. A response of many items is encoded in a thread (`encode_large`). Does not:
slice the decoding of a request, nor limit the first slices of many requests together; notice a disconnected
client, as nothing is read from it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeVar

from lockstep.broker.requests.request_context import EncodedResponse, HandlerResponse, PendingResponse
from lockstep.broker.requests.time_slices import TimeSlicer, run_slice
from lockstep.protocol.compiler import encode
from lockstep.protocol.fields import Struct

Key = TypeVar("Key")
Item = TypeVar("Item")

MAX_ITEMS_ENCODED_HERE: Final = 5_000
"""A response of more items, of some microseconds each, is encoded in a thread: of 100,000 partitions that
takes some tenths of a second."""


class SlicedResponse(PendingResponse):
    """Completed with the result of `respond` after the last step.

    Args:
        steps: the remaining steps, for `run_slice`; they need nothing of the receive buffer.
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
        """Run one slice; returns whether it was the last."""
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
    time_slicer: TimeSlicer,
    keys: Iterable[Key],
    item: Callable[[Key], Item],
    respond: Callable[[list[Item]], HandlerResponse],
) -> HandlerResponse:
    """The response of `respond` for the items of all keys: at once if they take one slice at most.

    Args:
        item: may raise in the first slice what a handler may raise.
        respond: returns what a handler returns.
    """
    items: list[Item] = []

    def steps() -> Iterator[None]:
        for key in keys:
            yield
            items.append(item(key))

    steps_left = steps()
    if run_slice(steps_left):
        return respond(items)
    return SlicedResponse(time_slicer, steps_left, lambda: respond(items))


def encode_large(response: Struct, api_version: int, item_count: int) -> HandlerResponse:
    """The response, which nobody changes any more; encoded in a thread if it has many items."""
    return response if item_count <= MAX_ITEMS_ENCODED_HERE else encode_in_thread(response, api_version)


async def encode_in_thread(response: Struct, api_version: int) -> EncodedResponse:
    """Encodes a response while the loop serves others."""
    return EncodedResponse(await asyncio.to_thread(encode, response, api_version))
