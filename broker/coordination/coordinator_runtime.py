"""Runs the operations of coordinators: from the committed state to records and a response.

Owns: `CoordinatorRuntime`, a queue for each key (a group's id). An operation reads the replayed state,
changes nothing, and returns records with the response; the response is sent when the records are committed,
or at once without records. Invariants: an operation runs while no write of its key is in flight, so that it
sees all that was decided before it; operations of a key run in the order of arrival; each has exactly one
outcome; an operation that fails has no records. Does not: know the records or the state; replay.
Source: Kafka's CoordinatorRuntime, without its speculative state and so without rolling it back.
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
Outcome = Callable[[Any, RequestError | None], None]
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
        returns. Without records it calls back once all earlier ones are decided.
    """

    __slots__ = ("_append", "_loop", "_queues")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        append: Callable[[str, list[R], Callable[[ErrorCode], None]], None],
    ) -> None:
        self._loop = loop
        self._append = append
        self._queues: dict[str, deque[tuple[Operation, Outcome]]] = {}
        """The waiting operations of each key with a write in flight."""

    def is_busy(self, key: str) -> bool:
        """Returns whether a write of this key is in flight, or operations of it wait."""
        return key in self._queues

    def schedule(self, key: str, operation: Operation, outcome: Outcome) -> None:
        """Runs an operation, at once unless a write of its key is in flight."""
        queue = self._queues.get(key)
        if queue is None:
            self._run(key, operation, outcome)
        elif len(queue) >= MAX_QUEUED:
            problem = f"{len(queue)} requests of {printable(key)} wait"
            outcome(None, RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem))
        else:
            queue.append((operation, outcome))

    def close(self, rejection: Callable[[], RequestError]) -> None:
        """The leadership is lost: rejects what waits. The writes in flight are decided by their store."""
        queues, self._queues = self._queues, {}
        for key, queue in queues.items():
            for _, outcome in queue:
                _report(key, outcome, None, rejection())

    def _run(self, key: str, operation: Operation, outcome: Outcome) -> bool:
        """Runs one operation; returns whether it has a write in flight now."""
        try:
            result = operation()
        except RequestError as rejection:
            _report(key, outcome, None, rejection)
            return False
        except Exception as error:  # the other members get their responses all the same
            log.exception("%s: an operation failed", printable(key))
            _report(key, outcome, None, RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            return False
        if not result.records:
            _report(key, outcome, result.response, None)
            return False
        self._queues.setdefault(key, deque())
        self._append(
            key, list(result.records), lambda error: self._on_written(key, result.response, outcome, error)
        )
        return True

    def _on_written(self, key: str, response: Any, outcome: Outcome, error: ErrorCode) -> None:
        queue = self._queues.get(key)
        if error is ErrorCode.NONE:
            _report(key, outcome, response, None)
        else:
            _report(key, outcome, None, RequestError(error, "the records were not written"))
            if queue is not None and error is not ErrorCode.NOT_COORDINATOR:
                # Some of the records may be in the log all the same: the next operation has to see them.
                self._append(key, [], lambda _: self._drain(key, queue))
                return
        if queue is not None:
            self._drain(key, queue)

    def _drain(self, key: str, queue: deque[tuple[Operation, Outcome]]) -> None:
        if self._queues.get(key) is not queue:
            return
        left = MAX_RUN_AT_ONCE
        while queue:
            if left == 0:
                self._loop.call_soon(self._drain, key, queue)
                return
            left -= 1
            if self._run(key, *queue.popleft()):
                return
        del self._queues[key]


def _report(key: str, outcome: Outcome, response: Any, rejection: RequestError | None) -> None:
    try:
        outcome(response, rejection)
    except Exception:  # the next operation runs all the same
        log.exception("%s: a response failed", printable(key))
