"""What can go wrong between a Spark task and its brokers, in words for whoever reads the job's log.

Spark pickles what a Python worker raises only as text, and tasks may pickle errors between processes of their
own, so each error here can be made again from its arguments.
"""

from __future__ import annotations

from typing import Final

from protocol.errors import ErrorCode

_ERROR_CODES: Final = {int(code): code for code in ErrorCode}


class ClientError(Exception):
    """What went wrong, in words for its user."""


class ConnectionFailed(ClientError):
    """No connection, or it broke; what was under way may or may not have happened."""


class TimedOut(ConnectionFailed):
    """The broker did not answer in time."""


class Unsupported(ClientError):
    """The broker does not speak a version of the API that we speak."""


class BrokerError(ClientError):
    """The broker refused. `code` is Kafka's, `about` says what was asked, `message` what the broker said."""

    def __init__(self, code: int, about: str, message: str | None = None) -> None:
        self.code = code
        self.about = about
        self.message = message
        known = _ERROR_CODES.get(code)
        if known is None:
            super().__init__(f"{about}: {message or 'an error this client does not know'} ({code})")
        else:
            super().__init__(f"{about}: {message or known.message} ({known.name})")

    def __reduce__(self) -> tuple[type[BrokerError], tuple[int, str, str | None]]:
        return type(self), (self.code, self.about, self.message)
