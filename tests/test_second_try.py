"""A test whose process ends in it, or that never comes back from C, is tried once more, and the run ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FAULTS = {
    "crash": "os.kill(os.getpid(), signal.SIGKILL)",
    "hang": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(1000)",
}
SUITE = """
import os, pathlib, signal, time
import pytest

def fault(name, always):
    tried = pathlib.Path(os.environ["TRIED"], name)
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


def run(place: Path, fault: str, *, always: bool) -> subprocess.CompletedProcess[str]:
    """Three files of seven tests in two processes, the middle one with the fault; it has 3 s."""
    for file in ("test_a", "test_b", "test_c"):
        code = FAULTS[fault] if file == "test_b" else "pass"
        (place / f"{file}.py").write_text(SUITE.format(fault=code, file=file, always=always))
    (place / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    settings = "faulthandler_timeout = 3\nfaulthandler_exit_on_timeout = true\ntimeout = 1\n"
    (place / "pytest.ini").write_text(f"[pytest]\n{settings}")
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


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_comes_once_is_tried_again(tmp_path: Path, fault: str) -> None:
    ended = run(tmp_path, fault, always=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "21 passed, 1 rerun" in ended.stdout


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_comes_again_is_one_failure_and_the_rest_is_run(tmp_path: Path, fault: str) -> None:
    ended = run(tmp_path, fault, always=True)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 20 passed, 1 rerun" in ended.stdout
    assert "crashed while running 'test_b.py::test_at_fault'" in ended.stdout
    assert fault == "crash" or "in test_at_fault" in ended.stderr  # where it was, for who reads the log
