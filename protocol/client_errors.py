"""The errors between a client and its brokers, with messages for its user; all our clients raise them,
blocking or in an event loop.

Invariant: each error can be made again from its arguments, so that tasks may pickle it between processes.
"""

from __future__ import annotations

from typing import Final

from lockstep.protocol.errors import ErrorCode

_ERROR_CODES: Final = {int(code): code for code in ErrorCode}


class ClientError(Exception):
    """An error between an application and its brokers; the text is for its user."""


class ConnectionFailed(ClientError):
    """There is no connection, or it broke; a pending request may or may not have been executed."""


class TimedOut(ConnectionFailed):
    """The broker did not respond in time."""


class ListenerMismatch(ConnectionFailed):
    """The listener is most likely of another `security.protocol` than the client; the text has the reason."""


class AuthenticationError(ClientError):
    """The broker rejects the login, or the two sides do not trust each other: a retry does not help."""


class Unsupported(ClientError):
    """Client and broker have no version of the API in common."""


class BrokerError(ClientError):
    """The broker responded with an error: Kafka's `code`, `about` what, and the broker's `message`."""

    def __init__(self, code: int, about: str, message: str | None = None) -> None:
        self.code = code
        self.about = about
        self.message = message
        error = _ERROR_CODES.get(code)
        if error is None:
            super().__init__(f"{about}: {message or 'an error this client does not know'} ({code})")
        else:
            super().__init__(f"{about}: {message or error.message} ({error.name})")

    def __reduce__(self) -> tuple[type[BrokerError], tuple[int, str, str | None]]:
        return type(self), (self.code, self.about, self.message)


def describe_socket_error(error: OSError) -> str:
    """The reason of a socket's failure, for an error text."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is a broker running there?"
    return error.strerror.lower() if error.strerror else str(error)
