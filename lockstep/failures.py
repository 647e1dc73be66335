"""The one exception a command raises for its user, and how errors of the layers below become it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CommandFailed(Exception):
    """The command could not do it; the text is one line for the user."""

    status = 1
    """The exit status."""


class WrongUsage(CommandFailed):
    """The command line, or the settings that it names, are wrong: a retry does not help."""

    status = 2


def os_error(error: OSError) -> CommandFailed:
    """A CommandFailed with the system's error text, without its number."""
    problem = (error.strerror or str(error)).lower()
    return CommandFailed(f"{error.filename}: {problem}" if error.filename else problem)


def unreadable(error: OSError) -> CommandFailed:
    """A CommandFailed for a file that cannot be read."""
    return CommandFailed(f"cannot read {error.filename}: {(error.strerror or str(error)).lower()}")


@contextmanager
def report_client_errors() -> Iterator[None]:
    """Turns what a client can meet on its way to a broker into CommandFailed."""
    from lockstep.kafka_client.connection import ClientError

    try:
        yield
    except ClientError as error:
        raise CommandFailed(str(error)) from error
