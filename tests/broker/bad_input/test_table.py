"""docs/evidence/bad_input.md names every test of this package and of the client, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
TABLE = ROOT / "docs" / "evidence" / "bad_input.md"
CLIENT_TESTS = ROOT / "tests" / "lockstep" / "test_hostile_broker.py"
REASONS = ("not yet: ", "not served: ", "does not apply: ")


def collected(path: Path) -> dict[str, str]:
    """The tests of a file, with their docstrings."""
    tree = ast.parse(path.read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name: ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")}


def rows() -> list[tuple[str, str, str]]:
    """(source, class, tests or reason) of each row."""
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")][1:]
    return [tuple(cell.strip() for cell in line.strip("| ").split(" | ")) for line in lines]  # type: ignore[misc]


def test_the_table_and_the_tests_name_each_other() -> None:
    existing: dict[str, str] = {}
    for path in [*HERE.glob("test_*.py"), CLIENT_TESTS]:
        if path != Path(__file__):
            existing |= collected(path)
    named = [name for row in rows() for name in re.findall(r"`(test_\w+)`", row[2])]
    assert set(named) - existing.keys() == set(), "the table names tests that are gone"
    assert existing.keys() - set(named) == set(), "tests that the table does not name"


def test_every_row_has_a_test_or_a_reason() -> None:
    assert len(rows()) >= 40
    for source, what, held in rows():
        assert source and what
        assert "`test_" in held or held.startswith(REASONS), what


def test_tests_name_the_class_that_they_are_for() -> None:
    """A test's docstring names the CVE or the issue of one of its rows, where that has one."""
    documented: dict[str, str] = {}
    for path in [*HERE.glob("test_*.py"), CLIENT_TESTS]:
        documented |= collected(path)
    for source, _, held in rows():
        names = re.findall(r"`(test_\w+)`", held)
        if not names or source in ("list", "ours"):
            continue
        numbers = re.findall(r"CVE-\d+-\d+|#\d+|KAFKA-\d+|KIP-\d+|GHSA-[\w-]+", source)
        texts = " ".join(documented[name] for name in names)
        assert any(number in texts for number in numbers), f"{names} do not name {source}"
