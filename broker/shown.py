"""Clients' own words (client ids, group ids, protocols), made fit for a line of the log."""

from __future__ import annotations

from typing import Final

SHOWN_CHARACTERS: Final = 120


def shown(name: str | None, characters: int = SHOWN_CHARACTERS) -> str:
    """As it is if it is short and printable; no client writes lines of its own into the log."""
    if name is None:
        return "none"
    cut = name[:characters]
    text = "".join(each if each.isprintable() else "?" for each in cut)
    return text if cut == name else text + "..."
