"""Each pure module's mirror test takes its branches; the command is shown to notice what does not."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests import coverage, tidy
from tests.support.cases import each_case

MODULE = '''"""A module."""


def sign(number: int) -> str:
    if number < 0:
        return "-"
    return "+"
'''
BOTH = "from planted.sign import sign\n\n\ndef test() -> None:\n    assert sign(-1) + sign(1) == '-+'\n"
ONE = "from planted.sign import sign\n\n\ndef test() -> None:\n    assert sign(1) == '+'\n"
FAILING = BOTH.replace("'-+'", "'+-'")


@pytest.mark.tier(name="rest")
@pytest.mark.timeout(700)
def test_all_branches_of_the_pure_modules() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.coverage", "--json"],
        cwd=tidy.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=650,
    )
    assert done.stdout, done.stderr
    modules = json.loads(done.stdout)
    assert len(modules) > 100 and sum(each["branches"] for each in modules) > 2500
    assert [each for each in modules if not each["proven"]] == []
    assert done.returncode == 0, done.stderr


def planted(root: Path, module: str, mirror: str | None) -> coverage.Measured:
    """A project of one module and its mirror test, measured."""
    (root / "planted").mkdir()
    (root / "tests" / "planted").mkdir(parents=True)
    (root / "planted" / "sign.py").write_text(module)
    if mirror is not None:
        (root / "tests" / "planted" / "test_sign.py").write_text(mirror)
    (measured,) = coverage.measure_all(root, ["planted/sign.py"], 1)
    return measured


def test_a_module_whose_branches_are_all_taken_is_proven(tmp_path: Path) -> None:
    measured = planted(tmp_path, MODULE, BOTH)
    assert (measured.branches, measured.missing, measured.percent, measured.proven) == (2, (), 100, True)
    assert coverage.complaints(measured) == []


@pytest.mark.parametrize(
    ("module", "mirror", "missing"),
    [
        (MODULE, ONE, ("5->6", "line 6")),
        (MODULE.replace('"-"', '"-"  # pragma: no cover'), ONE, ("5->6", "line 6")),
        (MODULE.replace("0:", "0:  # pragma: no branch"), ONE, ("5->6", "line 6")),
        (MODULE + "\n\ndef other() -> int:\n    return 1\n", BOTH, ("line 11",)),
    ],
    ids=["a branch", "no cover", "no branch", "a function"],
)
def test_what_its_mirror_test_does_not_take_is_named(
    tmp_path: Path, module: str, mirror: str, missing: tuple[str, ...]
) -> None:
    measured = planted(tmp_path, module, mirror)
    assert (measured.missing, measured.proven) == (missing, False)
    assert f"{measured.percent} % of 100 %" in coverage.complaints(measured)[0]


def test_no_mirror_test_is_no_coverage_and_no_branches_need_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    measured = planted(tmp_path / "a", MODULE, None)
    assert (measured.branches, measured.percent, measured.proven) == (2, 0, False)
    assert "no tests/planted/test_sign.py" in coverage.complaints(measured)[0]
    assert planted(tmp_path / "b", '"""Words."""\n\nNAME = 1\n', None).proven


def test_a_mirror_test_that_fails_proves_nothing(tmp_path: Path) -> None:
    measured = planted(tmp_path, MODULE, FAILING)
    assert (measured.percent, measured.proven) == (100, False)
    assert "test_sign.py does not pass" in coverage.complaints(measured)[0]


def test_an_exception_is_what_is_measured_and_ends_at_100() -> None:
    short = coverage.Measured("m.py", "tests/test_m.py", 4, ("1->2",), 80, "", least=80)
    assert coverage.complaints(short) == []
    assert "79 % of 80 %" in coverage.complaints(replace(short, percent=79))[0]
    assert "81 %; raise its 80 %" in coverage.complaints(replace(short, percent=81))[0]
    assert "strike it off" in coverage.complaints(replace(short, percent=100))[0]


def test_exceptions_are_of_modules_that_are_there_and_none_is_storage_s() -> None:
    modules = coverage.pure_modules(tidy.ROOT)
    assert set(coverage.SHORT_OF) <= set(modules)
    assert [name for name in coverage.SHORT_OF if name.startswith("storage/")] == []
    assert all(percent < 100 for percent in coverage.SHORT_OF.values())
    assert set(coverage.PASSED_OVER) <= set(modules)


@each_case(
    ("module", "mirror"),
    [
        ("storage/log/segment_scan.py", "tests/storage/log/test_segment_scan.py"),
        ("broker/produce/appender.py", "tests/broker/produce/test_appender.py"),
        ("protocol/messages/__init__.py", "tests/protocol/test_messages.py"),
    ],
)
def test_where_a_mirror_test_is(module: str, mirror: str) -> None:
    assert coverage.mirror_of(module) == mirror
