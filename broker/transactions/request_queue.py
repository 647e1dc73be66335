"""Requests for one transactional id run one after the other: a queue per id.

Owns: `KeyedQueue`. A request waits for the earlier ones of its id; Kafka responds with
CONCURRENT_TRANSACTIONS at once, after which every client sleeps 20 to 100 ms. Invariants: the requests of an
id run in the order of arrival; a request that has begun runs to its end even if its caller no longer waits,
one that has not begun is dropped then; the length of a queue and the time of waiting are bounded. Does not:
know the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from lockstep.broker.process.log_text import printable
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode

log = logging.getLogger("lockstep.transactions")

REQUEST_TIMEOUT_SECONDS: Final = 5.0
"""The timeout of a request in the queue, after which its client retries: far less than clients wait for a
response."""
MAX_QUEUED: Final = 32
"""LIMIT. A producer has one of these requests on the way; its successors may have one each, and so may the
partitions that it writes to."""

PendingResult = asyncio.Future[Any]
Work = Callable[[PendingResult], Coroutine[Any, Any, None]]
"""Runs a request and sets its response, which may be long before the end."""


class KeyedQueue:
    """The queues of one coordinator, by transactional id."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[str, deque[tuple[Work, PendingResult]]] = {}
        """The first request of each queue is running."""
        self._servers: dict[str, asyncio.Task[None]] = {}

    def is_free(self, key: str) -> bool:
        """True if no request of this key is queued or running."""
        return key not in self._queues

    def enter(self, key: str, work: Work) -> PendingResult:
        """Queue `work` behind the earlier requests. Raises RequestError where too many wait."""
        result: PendingResult = self._loop.create_future()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
            self._servers[key] = self._loop.create_task(self._serve(key, queue))
        elif len(queue) >= MAX_QUEUED:
            raise RequestError(
                ErrorCode.CONCURRENT_TRANSACTIONS, f"{len(queue)} requests of {printable(key)} wait"
            )
        queue.append((work, result))
        return result

    async def run(self, key: str, work: Work) -> Any:
        """Queue `work` and wait for its result. Raises RequestError, or the errors of `work`."""
        return await self.wait_for(key, self.enter(key, work))

    async def wait_for(self, key: str, result: PendingResult) -> Any:
        """Awaits a result, at most `REQUEST_TIMEOUT_SECONDS`. Raises RequestError, or the error of `work`."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                return await result
        except TimeoutError:
            text = f"{printable(key)}: the request takes longer than {REQUEST_TIMEOUT_SECONDS:g} s"
            raise RequestError(ErrorCode.CONCURRENT_TRANSACTIONS, text) from None

    def close(self, rejection: Callable[[], Exception]) -> None:
        """Stop all work; every waiting request gets this error."""
        queues, self._queues = self._queues, {}
        servers, self._servers = self._servers, {}
        for task in servers.values():
            task.cancel()
        for queue in queues.values():
            for _, result in queue:
                set_error(result, rejection())

    async def _serve(self, key: str, queue: deque[tuple[Work, PendingResult]]) -> None:
        while queue:
            work, result = queue[0]
            if not result.cancelled():
                try:
                    await work(result)
                except RequestError as rejection:
                    set_error(result, rejection)
                except Exception as error:  # the next request still runs
                    log.exception("%s: a request failed", printable(key))
                    set_error(result, error)
            queue.popleft()
        del self._queues[key], self._servers[key]


def set_error(result: PendingResult, error: Exception) -> None:
    """Set an error in place of the response, unless there is a response already."""
    if not result.done():
        result.set_exception(error)
        result.exception()  # its caller may no longer wait; an unread error would be logged
