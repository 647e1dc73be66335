"""The tiers of `conftest.py`: each test is in one, and what make and CI run is all of them, each once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests import harness
from conftest import TIERS, tier_of

ROOT = Path(__file__).resolve().parent.parent
SUITE = """
import pytest

def test_by_its_place(): pass

@pytest.mark.tier(name="rest")
def test_named(): pass

@pytest.mark.tier(name="release")
def test_before_a_release(): pass

@pytest.mark.tier(name="quick")
class TestNamed:
    def test_of_a_class(self): pass

@pytest.mark.parametrize(("client", "target"), [("Java 3.4.1", "lockstep"), ("Java 4.4.0", "lockstep")])
def test_of_a_client(client, target): pass
"""


@pytest.mark.parametrize(
    ("path", "words", "tier"),
    [
        ("tests/protocol/test_new.py", {}, "quick"),
        ("tests/broker/new_room/test_new.py", {"number": 3}, "quick"),
        ("tests/broker/cluster/test_new.py", {}, "test"),
        ("tests/storage/test_replication.py", {}, "test"),
        ("tests/sim/test_new.py", {}, "test"),
        ("tests/bench/kinds/test_new.py", {}, "rest"),
        ("tests/campaigns/test_new.py", {}, "rest"),
        ("tests/test_new.py", {"target": "lockstep"}, "test"),
        ("compat_tests/test_new.py", {}, "test"),
        ("compat_tests/test_new.py", {"target": "lockstep", "client": "kcat"}, "test"),
        ("compat_tests/test_new.py", {"target": "lockstep-3", "client": "Java 4.4.0"}, "test"),
        ("compat_tests/test_new.py", {"target": "lockstep", "client": "Java 3.9.2"}, "rest"),
        ("compat_tests/test_new.py", {"target": "lockstep", "writer": "kafka-python 2"}, "rest"),
        ("compat_tests/test_new.py", {"target": "kafka", "client": "Java 4.4.0"}, "rest"),
        ("compat_tests/test_new.py", {"target": "kafka"}, "rest"),
        ("compat_tests/test_new.py", {"target": "kafka", "client": "kcat"}, "release"),
        ("compat_tests/secured/test_logins.py", {"target": "lockstep", "client": "kcat"}, "test"),
        ("compat_tests/secured/test_failures.py", {"target": "lockstep", "client": "kcat"}, "rest"),
        ("compat_tests/secured/test_failures.py", {"target": "kafka", "client": "kcat"}, "release"),
        ("compat_tests/test_spark_new.py", {"target": "kafka"}, "release"),
        ("compat_tests/test_spark_new.py", {"target": "lockstep"}, "rest"),
        ("compat_tests/test_connect.py", {"target": "lockstep-3"}, "rest"),
        ("tests/lockstep/test_distribution.py", {}, "rest"),
        (
            "compat_tests/test_new.py",
            {"target": "kafka", "client": "Java 4.4.0", "writer": "kcat"},
            "release",
        ),
        ("compat_tests/spark_cases/test_new.py", {"target": "lockstep", "spark_version": "4.0.0"}, "release"),
        ("compat_tests/spark_cases/test_new.py", {"target": "lockstep", "spark_version": "4.2.0"}, "rest"),
    ],
)
def test_path_and_parameters_decide_the_tier(path: str, words: dict[str, object], tier: str) -> None:
    assert tier_of(path, words=words) == tier
    assert tier_of(path, words=words, named="test") == "test"


def test_what_needs_java_is_not_quick() -> None:
    assert tier_of("tests/protocol/test_new.py", needs_java=True) == "test"


def test_second_versions_are_clients() -> None:
    assert harness.SECOND_VERSIONS and not harness.SECOND_VERSIONS - set(harness.CLIENTS)


def test_each_test_of_this_run_is_in_one_tier(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        names = [mark.kwargs["name"] for mark in item.iter_markers("tier")]
        assert names and names[0] in TIERS, item.nodeid


def chosen(suite: Path, *options: str) -> tuple[int, set[str], str]:
    """pytest's exit status on the suite with this project's conftest, the tests that passed, all output."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--strict-markers", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, check=False)
    passed = {line.partition(" PASSED")[0] for line in done.stdout.splitlines() if " PASSED" in line}
    return done.returncode, passed, done.stdout + done.stderr


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_a.py").write_text(SUITE)
    return tmp_path


def expression(target: str) -> str:
    """pytest's -m in what make runs for a target, empty where there is none."""
    command = ["make", "--no-print-directory", "--dry-run", target, "VENV=venv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if "-m pytest -n" in line]
    found = re.search(r' -m "([^"]+)"', line)
    return found[1] if found else ""


def test_make_test_and_make_test_rest_run_each_test_of_ci_once(suite: Path) -> None:
    assert expression("test-all") == ""
    everything = chosen(suite)[1]
    quick, test, rest = (
        chosen(suite, "-m", expression(each))[1] for each in ("test-quick", "test", "test-rest")
    )
    assert quick == {"test_a.py::TestNamed::test_of_a_class"}
    assert rest == {"test_a.py::test_named", "test_a.py::test_of_a_client[Java 3.4.1-lockstep]"}
    release = {"test_a.py::test_before_a_release"}
    assert len(everything) == 6 and test == everything - rest - release and quick < test


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ('tier(name="slow")', "test_b.py::test_x: no tier is called 'slow', only quick, test, rest, release"),
        ('tier("rest")', "test_b.py::test_x: no tier is called '', only quick, test, rest, release"),
        ('tier(name="test")', "test_b.py::test_x: in two tiers, rest and test"),
    ],
)
def test_no_tier_and_two_tiers_are_refused(suite: Path, mark: str, words: str) -> None:
    module = "" if "two tiers" not in words else 'pytestmark = pytest.mark.tier(name="rest")\n'
    test = f"@pytest.mark.{mark}\ndef test_x(): pass\n"
    (suite / "test_b.py").write_text(f"import pytest\n{module}{test}")
    status, passed, written = chosen(suite)
    assert (status, passed) == (pytest.ExitCode.USAGE_ERROR, set())
    assert words in written


def test_ci_runs_every_tier_but_that_of_a_release() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[-3:] == ["make system-deps", "make test", "make test-rest"]
