"""What keeps a request about a group from being served."""

from __future__ import annotations

from protocol.errors import ErrorCode


class GroupRefused(Exception):
    """The Kafka error to answer, and why in words."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
