"""Counts as text."""

from __future__ import annotations

from protocol.counted import counted


def test_one_is_singular() -> None:
    assert [counted(count, "log file") for count in (0, 1, 2)] == ["0 log files", "1 log file", "2 log files"]
