"""Exceptions for rejected requests: each has one of Kafka's errors."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.protocol.errors import ErrorCode


class RequestError(Exception):
    """A request, or a part of one, is rejected with a Kafka error and a text."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class RecordErrors(RequestError):
    """A batch is rejected for some of its records, which the response names (KIP-467).

    Args:
        problem: the error text of each of them.
        indexes: their indexes in the batch; at least one.
    """

    def __init__(self, error: ErrorCode, problem: str, indexes: Sequence[int]) -> None:
        more = f" and {len(indexes) - 1} more" if len(indexes) > 1 else ""
        super().__init__(error, f"{problem}: record {indexes[0]} of the batch{more}.")
        self.problem = problem
        self.indexes = indexes
