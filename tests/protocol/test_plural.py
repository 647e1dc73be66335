"""Counts as text."""

from __future__ import annotations

from lockstep.protocol.plural import pluralize


def test_one_is_singular() -> None:
    assert [pluralize(count, "log file") for count in (0, 1, 2)] == [
        "0 log files",
        "1 log file",
        "2 log files",
    ]
