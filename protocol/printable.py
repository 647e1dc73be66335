"""Makes foreign text fit for one line of a log, a terminal or an error text."""

from __future__ import annotations


def escape_unprintable(text: str) -> str:
    """Control characters become their escapes (newline: `\\n`); everything printable stays as it is."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )
