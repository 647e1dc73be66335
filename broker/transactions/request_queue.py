"""Requests for one transactional id wait for each other: a line per id.

Owns: `KeyedQueue`. Who waits a little is served a little later; Kafka says CONCURRENT_TRANSACTIONS at once,
for which every client sleeps 20 to 100 ms. Invariants: what is done for an id is done one after the other, in
the order in which it was asked; it goes on when whoever asked does not wait any more, and what has not begun
is left out then; lines and waiting are bounded. Does not: know what is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from broker.log_text import printable
from broker.request_errors import RequestError
from protocol.errors import ErrorCode

log = logging.getLogger("lockstep.transactions")

PATIENCE_SECONDS: Final = 5.0
"""After so long whoever asked is told to ask again: far less than clients wait for an answer."""
MOST_IN_LINE: Final = 32
"""LIMIT. A producer has one of these requests on the way; its successors may ask as well, and the partitions
that it writes to."""

Answer = asyncio.Future[Any]
Work = Callable[[Answer], Coroutine[Any, Any, None]]
"""Does what was asked and sets the answer, which may be long before it is done."""


class KeyedQueue:
    """The queues of one coordinator, by transactional id."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines: dict[str, deque[tuple[Work, Answer]]] = {}
        """The first of each is being served."""
        self._servers: dict[str, asyncio.Task[None]] = {}

    def is_free(self, key: str) -> bool:
        """Is nothing asked, or being done, for it?"""
        return key not in self._lines

    def enter(self, key: str, work: Work) -> Answer:
        """Have this done after all that was asked before. Raises RequestError where too many wait."""
        answer: Answer = self._loop.create_future()
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = deque()
            self._servers[key] = self._loop.create_task(self._serve(key, line))
        elif len(line) >= MOST_IN_LINE:
            raise RequestError(
                ErrorCode.CONCURRENT_TRANSACTIONS, f"{len(line)} requests of {printable(key)} wait"
            )
        line.append((work, answer))
        return answer

    async def ask(self, key: str, work: Work) -> Any:
        """Enters `work` and waits for its result. Raises RequestError, or the errors of `work`."""
        return await self.notify(key, self.enter(key, work))

    async def notify(self, key: str, answer: Answer) -> Any:
        """Wait for an answer, not too long. Raises RequestError, or what it was refused with."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await answer
        except TimeoutError:
            text = f"{printable(key)}: what was asked takes longer than {PATIENCE_SECONDS:g} s"
            raise RequestError(ErrorCode.CONCURRENT_TRANSACTIONS, text) from None

    def close(self, refusal: Callable[[], Exception]) -> None:
        """Nothing goes on; whoever waits gets this."""
        lines, self._lines = self._lines, {}
        servers, self._servers = self._servers, {}
        for task in servers.values():
            task.cancel()
        for line in lines.values():
            for _, answer in line:
                refuse(answer, refusal())

    async def _serve(self, key: str, line: deque[tuple[Work, Answer]]) -> None:
        while line:
            work, answer = line[0]
            if not answer.cancelled():
                try:
                    await work(answer)
                except RequestError as refused:
                    refuse(answer, refused)
                except Exception as error:  # the next in line is served all the same
                    log.exception("%s: a request failed", printable(key))
                    refuse(answer, error)
            line.popleft()
        del self._lines[key], self._servers[key]


def refuse(answer: Answer, error: Exception) -> None:
    """Tell whoever asked that there is no answer, and why; nothing where it is told already."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # nobody may be waiting any more
