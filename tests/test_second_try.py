"""A test whose process ends in it, or that never comes back from C, is tried once more, and the run ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tier(name="rest")

ROOT = Path(__file__).parent.parent
FAULTS = {
    "crash": "os.kill(os.getpid(), signal.SIGKILL)",
    "crash together": "while not both_tried(): pass\n        os.kill(os.getpid(), signal.SIGKILL)",
    "hang": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(1000)",
}
SUITE = """
import os, pathlib, signal, time
import pytest

TRIED = pathlib.Path(os.environ["TRIED"])

def both_tried():
    return (TRIED / "test_a").exists() and (TRIED / "test_b").exists()

def fault(name, always):
    tried = TRIED / name
    if always or not tried.exists():
        tried.touch()
        {fault}

def test_before():
    pass

def test_at_fault():
    fault("{file}", {always})

@pytest.mark.parametrize("number", range(5))
def test_after(number):
    pass
"""


def run(
    place: Path, fault: str, *files: str, always: bool = False, patience_s: int = 4
) -> subprocess.CompletedProcess[str]:
    """Three files of seven tests in two processes, one or two with the fault; it has three times as long."""
    for file in ("test_a", "test_b", "test_c"):
        code = FAULTS[fault] if file in files else "pass"
        (place / f"{file}.py").write_text(SUITE.format(fault=code, file=file, always=always))
    (place / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    settings = f"faulthandler_timeout = {3 * patience_s}\nfaulthandler_exit_on_timeout = true\n"
    (place / "pytest.ini").write_text(f"[pytest]\n{settings}timeout = {patience_s}\n")
    command = (
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-p",
        "no:warnings",
        "-n",
        "2",
        "--dist",
        "loadscope",
        "--reruns",
        "1",
        ".",
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TRIED": str(place)}
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_fault_that_comes_once_is_tried_again(tmp_path: Path, fault: str) -> None:
    ended = run(tmp_path, fault, "test_b")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "21 passed, 1 rerun" in ended.stdout


def test_processes_that_end_at_once_are_all_replaced(tmp_path: Path) -> None:
    ended = run(tmp_path, "crash together", "test_a", "test_b", patience_s=30)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "21 passed, 2 rerun" in ended.stdout


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_fault_that_comes_again_is_one_failure_and_the_rest_is_run(tmp_path: Path, fault: str) -> None:
    ended = run(tmp_path, fault, "test_b", always=True)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 20 passed, 1 rerun" in ended.stdout
    assert "crashed while running 'test_b.py::test_at_fault'" in ended.stdout
    assert fault == "crash" or "in test_at_fault" in ended.stderr  # where it was, for who reads the log
