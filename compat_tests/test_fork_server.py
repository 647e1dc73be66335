"""A fork is what the command is: words, streams, status, signals, place; a broken product breaks it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from compat_tests import fork_server
from compat_tests.fork_server import COMMAND, ForkFailed, ForkServer
from compat_tests.probe import free_port
from compat_tests.targets import LockstepTarget

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(fork_server.ROOT)}


def is_fork(process: subprocess.Popen[Any]) -> bool:
    return type(process) is not subprocess.Popen


@pytest.fixture
def target(tmp_path: Path) -> Iterator[LockstepTarget]:
    with LockstepTarget(directory=tmp_path / "broker") as running:
        yield running


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["topics", "--nonsense"],
        ["topics", "list", "-b", "localhost:1", "--timeout", "0.1"],
        ["log", "dump", "not-there"],
        ["--help"],
        ["serve", "--set", "no.such=1"],
    ],
    ids=" ".join,
)
def test_words_environment_output_and_status_are_those_of_the_command(
    words: list[str], tmp_path: Path
) -> None:
    for columns in ("60", "200"):
        environment = ENVIRONMENT | {"COLUMNS": columns}
        forked = fork_server.run([*COMMAND, *words], timeout_s=60, cwd=tmp_path, env=environment)
        executed = subprocess.run([*COMMAND, *words], capture_output=True, cwd=tmp_path, env=environment)
        assert (forked.returncode, forked.stdout, forked.stderr) == (
            executed.returncode,
            executed.stdout,
            executed.stderr,
        )
        assert forked.args == executed.args and forked.stdout + forked.stderr


def test_standard_input_and_text_are_those_of_the_caller(target: LockstepTarget) -> None:
    where = ("-b", target.bootstrap)
    given = "eins\nzwei \u00e4\n"
    produced = fork_server.run([*COMMAND, "produce", "t", *where], given=given, text=True, timeout_s=60)
    assert (produced.returncode, produced.stderr) == (0, "")
    words = ["consume", "t", "--from-beginning", "-n", "2", *where]
    assert fork_server.run([*COMMAND, *words], text=True, timeout_s=60).stdout == given


def test_it_is_a_child_of_the_caller_in_a_session_of_its_own(target: LockstepTarget) -> None:
    process = psutil.Process(target.pid)
    assert process.ppid() == os.getpid() and os.getsid(target.pid) == os.getpgid(target.pid) == target.pid
    assert process.cwd() == str(target.directory) and process.num_threads() >= 1
    assert target.stop() == 0 and "stopped" in target.log_tail()
    target.restart()
    assert target.pid != process.pid
    target.kill9()
    assert target.exit_code == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(target.pid, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_and_relative_paths(number: signal.Signals, tmp_path: Path) -> None:
    words = ["serve", "--data-dir", "data", "--listen", f"localhost:{free_port()}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with fork_server.popen([*COMMAND, *words], cwd=tmp_path, env=ENVIRONMENT, text=True, **pipes) as process:
        assert is_fork(process) and process.stdout is not None
        assert " ready, " in process.stdout.readline()
        assert (tmp_path / "data").is_dir() and process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.send_signal(number)
        assert process.wait(60) == 0


def test_a_command_that_imports_differently_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*COMMAND, "--version"]
    for command, environment, forked in (
        (words, ENVIRONMENT, True),
        (words, None, True),
        (words, {**ENVIRONMENT, "LOCKSTEP_PURE": "1"}, False),
        (words, {**ENVIRONMENT, "PYTHONHASHSEED": "1"}, False),
        (words, {**ENVIRONMENT, "PYTHONPATH": f"/elsewhere:{fork_server.ROOT}"}, False),
        ([sys.executable, "-c", "pass"], ENVIRONMENT, False),
    ):
        with fork_server.popen(command, env=environment, stdout=subprocess.PIPE) as process:
            process.communicate()
        assert (is_fork(process), process.returncode) == (forked, 0), (command, environment)
    monkeypatch.setattr(fork_server, "_uses_forks", False)
    with fork_server.popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE) as process:
        process.communicate()
    assert not is_fork(process), "benchmarks and campaigns"


def request(*words: str) -> dict[str, object]:
    return {"arguments": words, "directory": "/", "environment": dict(os.environ), "new_session": False}


def test_what_is_forked_has_one_thread_and_no_other_files(tmp_path: Path) -> None:
    server = ForkServer()
    with (tmp_path / "out").open("wb") as out:
        assert os.waitpid(server.fork(request("--version"), [out.fileno()] * 3), 0)[1] == 0
    process = psutil.Process(server._process.pid)
    assert process.num_threads() == 1 and process.num_fds() == 4, "standard streams and the connection"
    assert process.children() == []
    server.close()
    assert server._process.returncode == 0
    assert (tmp_path / "out").read_bytes().startswith(b"lockstep ")


def test_a_product_that_cannot_be_imported_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "lockstep").mkdir()
    (tmp_path / "lockstep" / "__init__.py").write_text("raise ImportError('broken')")
    server = ForkServer(tmp_path)
    with pytest.raises(ForkFailed, match="status 1"):
        server.fork(request("--version"), [0, 1, 2])
    server.close()


def test_what_a_fork_raises_is_its_own(tmp_path: Path) -> None:
    """The next one is not touched by it."""
    options: dict[str, Any] = {"timeout_s": 60, "env": ENVIRONMENT}
    gone = tmp_path / "gone"
    failed = fork_server.run([*COMMAND, "--version"], cwd=gone, **options)
    assert failed.returncode == 1 and b"FileNotFoundError" in failed.stderr
    assert fork_server.run([*COMMAND, "--version"], cwd=tmp_path, **options).returncode == 0
