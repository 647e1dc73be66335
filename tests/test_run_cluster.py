"""`make cluster`: three nodes under one command; a death is told, Ctrl-C stops all."""

from __future__ import annotations

import argparse
import os
import queue
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests import fork_server
from lockstep.broker.node.data_directory import DataDirectory
from requirements.run_cluster import address, commands, ending, parser

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
        first = self.port = free_ports(6)
        ports = ["--listen", f"localhost:{first}", "--peer-port", str(first + 3)]
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
        self._started: set[str] = set()
        """The nodes that have printed their line, in whichever order."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"node (\d) \| Lockstep \S+ (ready|started),", line):
                self._started.add(found[1])
            self._lines.put(line)

    def has_started(self) -> None:
        """Wait for the line of each node."""
        wait_until(lambda: len(self._started) == 3)

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


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_three_nodes_run_and_a_crash_is_reported_and_all_stop(running: Running, tmp_path: Path) -> None:
    running.has_started()
    ports = [running.port + number for number in range(3)]
    running.said(r"cluster \| serving clients on " + " and ".join(f"localhost:{port}" for port in ports))
    pids = [pid_of(tmp_path, number) for number in (1, 2, 3)]
    os.kill(pids[1], signal.SIGKILL)
    told = running.said(r"cluster \| node 2 was killed by signal 9; to start it again: (.*)")
    assert "serve --node-id 2 " in told[1]
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(SECONDS) == 0
    for pid in (pids[0], pids[2]):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_node_that_waited_for_the_others_reports_when_it_serves(running: Running, tmp_path: Path) -> None:
    running.has_started()
    commands = {}
    for number in (1, 2, 3):
        os.kill(pid_of(tmp_path, number), signal.SIGKILL)
        ended = running.said(rf"cluster \| node {number} was killed by signal 9; to start it again: (.*)")
        commands[number] = shlex.split(ended[1])
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as file:
        again = [subprocess.Popen(commands[3], stdout=file, stderr=file, env=environment)]
    try:
        wait_until(lambda: "waits for a majority of the nodes" in log.read_text())
        assert "(1 of 3 reached)" in log.read_text() and "serving clients now" not in log.read_text()
        with (tmp_path / "other").open("wb") as file:
            again.append(subprocess.Popen(commands[2], stdout=file, stderr=file, env=environment))
        wait_until(lambda: "serving clients now" in log.read_text())
        lines = log.read_text().splitlines()
        assert sum(" started, listening for clients on " in line for line in lines) == 1
        assert not any(" ready" in line for line in lines)
    finally:
        for each in again:
            each.kill()
            each.wait()


def lockstep(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lockstep", *words]
    return fork_server.run(command, text=True, timeout_s=2 * SECONDS, cwd=ROOT)


def test_a_node_that_is_removed_ends_and_does_not_start_again(running: Running, tmp_path: Path) -> None:
    running.has_started()
    while lockstep("cluster", "status", "-b", f"localhost:{running.port}").returncode:
        time.sleep(0.2)
    removed = lockstep("cluster", "remove", "1", "-b", f"localhost:{running.port}", "--wait", "30")
    assert "node 1 is gone from the cluster" in removed.stdout, removed
    running.said(r"node 1 \| .* node 1 was removed from the cluster and serves no clients any more")
    assert running.said(r"cluster \| node 1 (.*)")[1] == "has stopped"
    peers = f"1@localhost:{running.port + 3},2@localhost:{running.port + 4}"
    serve = ["serve", "--node-id", "1", "--listen", f"localhost:{running.port}", "--peers", peers]
    again = lockstep(*serve, "--data-dir", str(tmp_path / "1"))
    assert (again.returncode, again.stdout) == (1, "")
    assert "belongs to node 1, which was removed from the cluster" in again.stderr


def test_a_node_that_is_removed_while_it_is_down_does_not_stay(running: Running, tmp_path: Path) -> None:
    running.has_started()
    registered = tmp_path / "3" / "meta.properties"
    wait_until(lambda: "registered" in registered.read_text())
    os.kill(pid_of(tmp_path, 3), signal.SIGKILL)
    command = running.said(r"cluster \| node 3 was killed by signal 9; to start it again: (.*)")[1]
    removed = lockstep("cluster", "remove", "3", "-b", f"localhost:{running.port}", "--wait", "30")
    assert "node 3 is gone from the cluster" in removed.stdout, removed
    words = shlex.split(command)
    again = lockstep(*words[words.index("serve") :])
    assert again.returncode == 1
    assert "this node was removed from the cluster while it was down" in again.stderr
    again = lockstep(*words[words.index("serve") :])
    assert (again.returncode, again.stdout) == (1, "")


def test_a_file_of_settings_counts_for_each_node(tmp_path: Path) -> None:
    file = tmp_path / "cluster.properties"
    file.write_text("num.partitions=3\nlockstep.metrics.listener=localhost:9644\n")
    options = parser().parse_args(["--config", str(file), "--data-dir", str(tmp_path / "data")])
    for number, command in commands(options).items():
        assert command[-4:-2] == ["--config", str(file)]
        assert command[-2:] == ["--set", f"lockstep.metrics.listener=localhost:{9643 + number}"]
    file.write_text("num.partitions=3\n")
    assert all(command[-2:] == ["--config", str(file)] for command in commands(options).values())


@pytest.mark.parametrize("text", ["num.partitions=many\n", None])
def test_a_file_of_settings_that_cannot_be_used_starts_no_node(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "cluster.properties"
    if text is not None:
        file.write_text(text)
    script = str(ROOT / "requirements" / "run_cluster.py")
    arguments = ["--config", str(file), "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        [sys.executable, script, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert str(file) in done.stdout and "no node was started" in done.stdout


def test_how_a_node_ended() -> None:
    assert "start" not in ending(0, ["serve"])
    assert "start" not in ending(2, ["serve"])
    assert "start" not in ending(1, ["serve"])
    assert ending(-9, ["serve"]) == "was killed by signal 9; to start it again: serve"
    assert ending(70, ["serve"]) == "ended with status 70; to start it again: serve"


def test_an_address_is_host_and_port() -> None:
    assert address("localhost:9092") == ("localhost", 9092)
    for wrong in ("9092", "localhost:", "localhost:x", "localhost:65530"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not HOST:PORT"):
            address(wrong)


def test_data_of_a_broker_alone_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("format=1\nnode.id=1\npart=alone\n")
    command = [sys.executable, str(ROOT / "requirements" / "run_cluster.py"), "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"make cluster DATA_DIR={tmp_path}-cluster" in done.stdout
    assert sorted(tmp_path.iterdir()) == [tmp_path / "meta.properties"]


def test_the_directory_of_several_processes_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "processes.properties").write_text("format=1\nprocesses=2\n")
    said = _refused(tmp_path, free_ports(6))
    assert f"{tmp_path} holds the nodes of `lockstep serve --processes`" in said
    assert f"make cluster DATA_DIR={tmp_path}-cluster" in said


def test_a_cluster_that_cannot_start_reports_an_error(tmp_path: Path) -> None:
    for node in ("1", "2"):
        (tmp_path / node).write_text("no directory")
    said = _refused(tmp_path, free_ports(6))
    for node in ("1", "2"):
        assert f"cluster | node {node}: {tmp_path / node} is a file, not a directory\n" in said


def test_all_that_is_taken_is_named_before_any_node_starts(tmp_path: Path) -> None:
    first = free_ports(6)
    held = DataDirectory(tmp_path / "2", 2, alone=False)
    with socket.socket() as client_port, socket.socket() as peer_port:
        for each, port in ((client_port, first + 1), (peer_port, first + 5)):
            each.bind(("127.0.0.1", port))
            each.listen()
        said = _refused(tmp_path, first)
    held.close()
    assert f"node 2: port {first + 1} is in use" in said and "make cluster LISTEN=HOST:PORT" in said
    assert f"node 3: port {first + 5} is in use" in said
    assert f"node 2: another Lockstep (process {os.getpid()}) runs on {tmp_path}/2" in said
    assert [each.name for each in tmp_path.iterdir()] == ["2"]


def _refused(directory: Path, first: int) -> str:
    """What `make cluster` says that starts no node."""
    script = str(ROOT / "requirements" / "run_cluster.py")
    ports = ["--listen", f"localhost:{first}", "--peer-port", str(first + 3)]
    done = subprocess.run(
        [sys.executable, script, "--data-dir", str(directory), *ports],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("cluster | no node was started\n") and "node 1 |" not in done.stdout
    return done.stdout
