"""Clients' own words (client ids, group ids, protocols), made fit for a line of the log."""

from __future__ import annotations

from typing import Final

MAX_CHARACTERS: Final = 120


def printable(name: str | None, characters: int = MAX_CHARACTERS) -> str:
    """As it is if it is short and printable; no client writes lines of its own into the log."""
    if name is None:
        return "none"
    prefix = name[:characters]
    text = "".join(character if character.isprintable() else "?" for character in prefix)
    return text if prefix == name else text + "..."
