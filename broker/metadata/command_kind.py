"""The kind of a metadata command, for errors: the command itself may have keys and passwords."""

from __future__ import annotations


def kind_of(command: object) -> str:
    """The value of the command's `do`, as `scram`; the name of its type where it is no command."""
    kind = command.get("do") if isinstance(command, dict) else command
    return kind[:40] if isinstance(kind, str) and isinstance(command, dict) else type(kind).__name__
