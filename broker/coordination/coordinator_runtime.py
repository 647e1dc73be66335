"""Runs the operations of coordinators: from the committed state to records and a response.

Owns: `CoordinatorRuntime`, a queue for each key (a group's id). An operation reads the replayed state,
changes nothing, and returns records with the response; the response is sent when the records are committed,
or at once without records. Invariants: an operation runs while no write of its key is in flight, so that it
sees all that was committed before it; operations of a key run in the order of arrival; the callback of each
is called exactly once; an operation that fails has no records. Does not: know the records or the state;
replay. Source: Kafka's CoordinatorRuntime, without its speculative state and so without rolling it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from lockstep.broker.process.log_text import printable
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode

log = logging.getLogger("lockstep.coordination")

MAX_QUEUED: Final = 100_000
"""LIMIT. Operations that may wait for one write of their key: each member of a group has one heartbeat in
flight, and a timer or two."""
MAX_RUN_AT_ONCE: Final = 200
"""Operations of one key that run before others are served: some milliseconds."""

R = TypeVar("R")
Callback = Callable[[Any, RequestError | None], None]
"""Called once, with the operation's response or with its rejection."""


class CoordinatorResult(NamedTuple):
    """The outcome of an operation: what is to be written, and the response once it is."""

    records: Sequence[Any]
    response: Any = None


Operation = Callable[[], CoordinatorResult]
"""Reads the state, and raises RequestError to reject its request."""


class CoordinatorRuntime(Generic[R]):
    """The operations of one coordinator.

    Args: append: writes records of a key, and calls back with NONE once the state has them; never before it
        returns. Without records it calls back once all earlier ones are committed or have failed.
    """

    __slots__ = ("_append", "_loop", "_queues")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        append: Callable[[str, list[R], Callable[[ErrorCode], None]], None],
    ) -> None:
        self._loop = loop
        self._append = append
        self._queues: dict[str, deque[tuple[Operation, Callback]]] = {}
        """The queued operations of each key with a write in flight."""

    def is_busy(self, key: str) -> bool:
        """Returns whether a write of this key is in flight, or operations of it wait."""
        return key in self._queues

    def schedule(self, key: str, operation: Operation, callback: Callback) -> None:
        """Runs an operation, at once unless a write of its key is in flight."""
        queue = self._queues.get(key)
        if queue is None:
            self._run(key, operation, callback)
        elif len(queue) >= MAX_QUEUED:
            problem = f"{len(queue)} requests of {printable(key)} wait"
            callback(None, RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem))
        else:
            queue.append((operation, callback))

    def close(self, rejection: Callable[[], RequestError]) -> None:
        """The leadership is lost: rejects the queued operations. The store completes the writes in flight."""
        queues, self._queues = self._queues, {}
        for key, queue in queues.items():
            for _, callback in queue:
                _complete(key, callback, None, rejection())

    def _run(self, key: str, operation: Operation, callback: Callback) -> bool:
        """Runs one operation; returns whether it has a write in flight now."""
        try:
            result = operation()
        except RequestError as rejection:
            _complete(key, callback, None, rejection)
            return False
        except Exception as error:  # the other members get their responses all the same
            log.exception("%s: an operation failed", printable(key))
            _complete(key, callback, None, RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            return False
        if not result.records:
            _complete(key, callback, result.response, None)
            return False
        self._queues.setdefault(key, deque())
        self._append(
            key, list(result.records), lambda error: self._on_written(key, result.response, callback, error)
        )
        return True

    def _on_written(self, key: str, response: Any, callback: Callback, error: ErrorCode) -> None:
        queue = self._queues.get(key)
        if error is ErrorCode.NONE:
            _complete(key, callback, response, None)
        else:
            _complete(key, callback, None, RequestError(error, "the records were not written"))
            if queue is not None and error is not ErrorCode.NOT_COORDINATOR:
                # Some of the records may be in the log all the same: the next operation has to see them.
                self._append(key, [], lambda _: self._drain(key, queue))
                return
        if queue is not None:
            self._drain(key, queue)

    def _drain(self, key: str, queue: deque[tuple[Operation, Callback]]) -> None:
        if self._queues.get(key) is not queue:
            return
        remaining = MAX_RUN_AT_ONCE
        while queue:
            if remaining == 0:
                self._loop.call_soon(self._drain, key, queue)
                return
            remaining -= 1
            if self._run(key, *queue.popleft()):
                return
        del self._queues[key]


def _complete(key: str, callback: Callback, response: Any, rejection: RequestError | None) -> None:
    try:
        callback(response, rejection)
    except Exception:  # the next operation runs all the same
        log.exception("%s: a response failed", printable(key))
