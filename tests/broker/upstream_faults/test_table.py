"""docs/evidence/upstream_faults.md names tests and files that are there, and every test of this package."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
TABLE = ROOT / "docs" / "evidence" / "upstream_faults.md"
VERDICTS = ("not ours", "mended", "chosen: ", "open: ")
LEAST_ROWS = 60


def rows() -> list[list[str]]:
    """Number, fault, versions and verdict of each row."""
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| KAFKA-")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def collected(paths: list[Path]) -> dict[str, str]:
    """The tests in these files, with their docstrings."""
    functions = [
        node
        for path in paths
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    return {each.name: ast.get_docstring(each) or "" for each in functions}


def test_each_fault_has_one_row_with_a_verdict() -> None:
    numbers = [row[0] for row in rows()]
    assert len(numbers) >= LEAST_ROWS
    assert len(set(numbers)) == len(numbers)
    for row in rows():
        assert len(row) == 4 and all(row), row
        assert re.fullmatch(r"KAFKA-\d{5}", row[0]), row[0]
        assert row[3].startswith(VERDICTS), row[0]
        assert "`" in row[3], f"{row[0]} names neither a test nor a file"


def test_what_the_rows_name_is_there() -> None:
    paths = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("compat_tests/test_*.py")]
    tests = {name for path in paths for name in re.findall(r"def (test_\w+)\(", path.read_text())}
    for number, *_, verdict in rows():
        for name in re.findall(r"`([^`]+)`", verdict):
            if name.startswith("test_"):
                assert name in tests, f"{number}: {name}"
            elif "/" in name:
                assert (ROOT / name).is_file(), f"{number}: {name}"


def test_every_trial_of_this_package_is_in_the_table() -> None:
    verdicts = {row[0]: row[3] for row in rows()}
    trials = collected([path for path in HERE.glob("test_*.py") if path != Path(__file__)])
    for name, text in trials.items():
        numbers = re.findall(r"KAFKA-\d{5}", text)
        assert numbers, f"{name} names no fault"
        assert any(f"`{name}`" in verdicts.get(number, "") for number in numbers), name
