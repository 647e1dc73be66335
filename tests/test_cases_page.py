"""docs/evidence/cases.md names, for each case of a review, tests that are there."""

from __future__ import annotations

import re

from compat_tests.targets import ROOT

PAGE = ROOT / "docs" / "evidence" / "cases.md"
CASES = 18


def test_each_case_has_its_exit_status_and_tests_that_are_there() -> None:
    paths = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("compat_tests/test_*.py")]
    tests = {name for path in paths for name in re.findall(r"def (test_\w+)\(", path.read_text())}
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == CASES == len({case for case, *_ in rows})
    for case, one_node, three_nodes, named in rows:
        assert one_node == "0" and three_nodes in ("0", "own", "-"), case
        found = re.findall(r"`(test_\w+)`", named)
        assert found, case
        assert set(found) <= tests, f"{case}: {set(found) - tests}"
