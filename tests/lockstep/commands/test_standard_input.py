"""`lockstep produce` ends while its standard input stays open: on Ctrl-C and on an error, never by abort."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.testing import RunningBroker
from tests.lockstep.conftest import Run

ROOT = Path(__file__).resolve().parents[3]
# A shell's background jobs ignore SIGINT, and so would a process started by a test that runs in one.
COMMAND = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from lockstep.cli import main; sys.exit(main())"
)


@pytest.fixture(params=["terminal", "pipe", "pipe that does not block"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """(what the command reads from, what we write to); both stay open until the test is over."""
    if request.param == "terminal":
        ours, theirs = pty.openpty()
    else:
        theirs, ours = os.pipe()
        os.set_blocking(theirs, request.param == "pipe")
    yield theirs, ours
    os.close(theirs)
    os.close(ours)


def produce(stdin: int, running: RunningBroker, topic: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "produce", topic, "-b", running.bootstrap_servers, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_ctrl_c(ends: tuple[int, int], running: RunningBroker, command: Run, topic: str) -> None:
    command("topics", "create", topic)
    process = produce(ends[0], running, topic)
    try:
        os.write(ends[1], b"one\ntwo\n")
        deadline = time.monotonic() + 20
        while command("consume", topic, "--from-beginning").out != "one\ntwo\n":
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 130
    finally:
        process.kill()
        process.communicate()


def test_an_error(ends: tuple[int, int], running: RunningBroker, topic: str) -> None:
    process = produce(ends[0], running, topic, "-K", ":")
    try:
        os.write(ends[1], b"no mark\n")
        out, err = process.communicate(timeout=20)
        assert out == "" and err.startswith("lockstep: no ':' in the line") and err.count("\n") == 1
        assert process.returncode == 1
    finally:
        process.kill()
        process.communicate()


def test_no_standard_input_at_all() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -m lockstep produce t <&-', sys.executable],
        capture_output=True,
        text=True,
        timeout=20,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (1, "lockstep: standard input is closed\n")
