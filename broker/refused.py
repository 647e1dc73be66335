"""What was asked is not done: the exceptions for all that is answered with an error of Kafka's."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ErrorCode


class Refused(Exception):
    """The Kafka error to answer, and why in words."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class RecordsRefused(Refused):
    """A batch is refused for some of its records, which its producer may be told (KIP-467).

    Args:
        problem: what is wrong with each of them.
        places: which they are, by their place in the batch; at least one.
    """

    def __init__(self, error: ErrorCode, problem: str, places: Sequence[int]) -> None:
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        super().__init__(error, f"{problem}: record {places[0]} of the batch{more}.")
        self.problem = problem
        self.places = places
