"""Functions by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lockstep.player.routing.function import NoSuchFunction, load
from lockstep.protocol.records.record import Record
from tests.support.cases import each_case


class Choices:
    """Something to be found within a module."""

    @staticmethod
    def everybody(record: Record) -> list[str]:
        return ["a", "b"]


NOT_A_FUNCTION = 7


def test_a_function_is_found() -> None:
    choice = load(f"{__name__}:Choices.everybody")
    assert choice is Choices.everybody


@each_case(
    ("name", "words"),
    [
        ("", "not of the form"),
        ("module", "not of the form"),
        ("module:", "not of the form"),
        (":name", "not of the form"),
        ("a b:c", "not of the form"),
        ("no_such_module_at_all:f", "no_such_module_at_all cannot be imported: ModuleNotFoundError"),
        (f"{__name__}:nothing", "has no nothing"),
        (f"{__name__}:Choices.nothing", "has no Choices.nothing"),
        (f"{__name__}:NOT_A_FUNCTION", "is a int, which cannot be called"),
    ],
)
def test_what_cannot_be_had_is_named(name: str, words: str) -> None:
    with pytest.raises(NoSuchFunction, match=words):
        load(name)


def test_a_module_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "routes_that_fail.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NoSuchFunction, match="routes_that_fail cannot be imported: ZeroDivisionError"):
        load("routes_that_fail:f")
    assert "routes_that_fail" not in sys.modules
