"""What can go wrong between a client and its brokers, in words for its user. Of all our clients, whether they
block or run in an event loop.

Invariant: each error can be made again from its arguments, so that tasks may pickle it between processes.
"""

from __future__ import annotations

from typing import Final

from protocol.errors import ErrorCode

_ERROR_CODES: Final = {int(code): code for code in ErrorCode}


class ClientError(Exception):
    """What went wrong between an application and its brokers, in words for its user."""


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


def describe_socket_error(error: OSError) -> str:
    """What a socket failed with."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is a broker running there?"
    return error.strerror.lower() if error.strerror else str(error)
