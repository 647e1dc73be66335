"""`make cluster`: three nodes under one command; a death is told, Ctrl-C stops all."""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 40


def free_ports(count: int) -> int:
    """The first of some neighbours that nobody listens on."""
    while True:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            first: int = found.getsockname()[1]
        try:
            for port in range(first, first + count):
                with socket.socket() as other:
                    other.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


class Running:
    """The command, and what it says."""

    def __init__(self, directory: Path) -> None:
        first = free_ports(6)
        ports = ["--port", str(first), "--peer-port", str(first + 3)]
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "requirements" / "run_cluster.py"),
                "--data-dir",
                str(directory),
                *ports,
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def said(self, pattern: str) -> re.Match[str]:
        """Wait for a line."""
        deadline = time.monotonic() + SECONDS
        while True:
            line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
            found = re.search(pattern, line)
            if found:
                return found


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    command = Running(tmp_path)
    yield command
    command.process.terminate()
    command.process.wait(SECONDS)


def pid_of(directory: Path, number: int) -> int:
    return int((directory / str(number) / ".lock").read_text())


def test_three_nodes_run_and_a_death_is_told_and_all_stop(running: Running, tmp_path: Path) -> None:
    for _ in range(3):
        running.said(r"node \d \| Lockstep .* ready on")
    pids = [pid_of(tmp_path, number) for number in (1, 2, 3)]
    os.kill(pids[1], signal.SIGKILL)
    told = running.said(r"cluster \| node 2 was killed by signal 9; to start it again: (.*)")
    assert "serve --node-id 2 " in told[1]
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(SECONDS) == 0
    for pid in (pids[0], pids[2]):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_cluster_that_cannot_start_says_so(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("no directory")
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "requirements" / "run_cluster.py"),
            "--data-dir",
            str(tmp_path),
            "--nodes",
            "1",
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 1
    assert "is a file, not a directory" in done.stdout
    assert "no node is left" in done.stdout
