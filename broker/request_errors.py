"""What was asked is not done: the exceptions for all that is answered with an error of Kafka's."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ErrorCode


class RequestError(Exception):
    """The Kafka error to answer, and why in words."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class RecordErrors(RequestError):
    """A batch is refused for some of its records, which its producer may be told (KIP-467).

    Args:
        problem: what is wrong with each of them.
        indexes: which they are, by their place in the batch; at least one.
    """

    def __init__(self, error: ErrorCode, problem: str, indexes: Sequence[int]) -> None:
        more = f" and {len(indexes) - 1} more" if len(indexes) > 1 else ""
        super().__init__(error, f"{problem}: record {indexes[0]} of the batch{more}.")
        self.problem = problem
        self.indexes = indexes
