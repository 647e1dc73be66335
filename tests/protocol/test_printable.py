"""Text of others on one line."""

from __future__ import annotations

from lockstep.protocol.printable import escape_unprintable


def test_control_characters_are_escaped() -> None:
    assert escape_unprintable("a\nb\r\t\x00\x1b[31m\x7f\x85\u2028\udc80") == (
        "a\\nb\\r\\t\\x00\\x1b[31m\\x7f\\x85\\u2028\\udc80"
    )


def test_what_is_printable_stays() -> None:
    assert escape_unprintable("größe = 5 % \\n") == "größe = 5 % \\n"
