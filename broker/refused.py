"""What was asked is not done: the exception for all that is answered with an error of Kafka's."""

from __future__ import annotations

from protocol.errors import ErrorCode


class Refused(Exception):
    """The Kafka error to answer, and why in words."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
