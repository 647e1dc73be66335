"""Escapes and shortens clients' texts (client ids, group ids, protocols) for the log."""

from __future__ import annotations

from typing import Final

MAX_CHARACTERS: Final = 120


def printable(name: str | None, characters: int = MAX_CHARACTERS) -> str:
    """The text, shortened and without unprintable characters: no client writes lines of its own into the
    log."""
    if name is None:
        return "none"
    prefix = name[:characters]
    text = "".join(character if character.isprintable() else "?" for character in prefix)
    return text if prefix == name else text + "..."
