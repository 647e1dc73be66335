"""Commands of tests as forks of a process that has imported Lockstep: imports are most of a start's cost.

    process = fork_server.popen([sys.executable, "-m", "lockstep", "serve", ...], stdout=log, env=environment)

Owns: which commands may be forks, and the server, one for each process that asks for forks. A fork is a child
of the process that asked, not of the server: its pid, process group, signals and exit status are as those of
any other `subprocess.Popen`, and so are its working directory, environment and standard streams.
Does not serve what measures a start or tests one; that starts Python itself.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
COMMAND: Final = (sys.executable, "-m", "lockstep")
PRELOADED: Final = (
    "lockstep.broker.main",
    "lockstep.broker.metrics.pages",
    "lockstep.broker.security.tls_context",
    "lockstep.broker.settings.loader",
    "lockstep.kafka_client.client",
    "lockstep.kafka_client.cluster",
    "lockstep.kafka_client.group_member",
    "lockstep.kafka_client.security",
    "tabulate",
    "uvloop",
)
"""What `lockstep.cli` leaves to its commands to import."""
IMPORT_VARIABLES: Final = ("COVERAGE_", "LANG", "LC_", "LD_", "LOCKSTEP_", "MALLOC_", "OPENSSL_", "PYTHON")
"""Beginnings of the environment variables that are read at a process's start or by an import."""
_LARGEST_REQUEST: Final = 1 << 17
_PR_SET_CHILD_SUBREAPER: Final = 36


class ForkFailed(RuntimeError):
    """The server has ended; its standard error has the reason."""


_uses_forks = False


def use_forks() -> None:
    """From now on; until then every command is executed, as benchmarks and campaigns need it."""
    global _uses_forks
    _uses_forks = True


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """As `subprocess.Popen`; a fork where that makes no difference to the command."""
    kind = _Fork if _may_be_fork(command, options.get("env")) else subprocess.Popen
    return kind(command, **options)


def run(
    command: Sequence[str], *, given: Any = None, timeout_s: float, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run` with `capture_output`; a fork as `popen`. Args: given: for standard input."""
    stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
    pipe = subprocess.PIPE
    with popen(command, stdin=stdin, stdout=pipe, stderr=pipe, **options) as process:
        try:
            out, err = process.communicate(given, timeout_s)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _may_be_fork(command: Sequence[str], environment: Mapping[str, str] | None) -> bool:
    """Python and its imports must find what they found when the server began."""
    wanted = os.environ if environment is None else environment
    return (
        _uses_forks
        and sys.platform == "linux"
        and tuple(command[: len(COMMAND)]) == COMMAND
        and _read_by_imports(wanted) == _read_by_imports(_environment_at_import)
    )


def _read_by_imports(environment: Mapping[str, str]) -> dict[str, str]:
    found = {name: text for name, text in environment.items() if name.startswith(IMPORT_VARIABLES)}
    if found.get("PYTHONPATH") == str(ROOT):
        del found["PYTHONPATH"]
    return found


_environment_at_import: Final = dict(os.environ)
_ARGUMENTS: Final = tuple(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]


class _Fork(subprocess.Popen[Any]):
    """Has the server fork in place of fork and exec."""

    def _execute_child(self, *values: Any) -> None:
        given = dict(zip(_ARGUMENTS, values, strict=True))
        streams = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        request = {
            "arguments": [str(each) for each in given["args"][len(COMMAND) :]],
            "directory": str(given["cwd"] or os.getcwd()),
            "environment": dict(os.environ if given["env"] is None else given["env"]),
            "new_session": given["start_new_session"],
        }
        self.pid = _server().fork(request, [each if each >= 0 else at for at, each in enumerate(streams)])
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]


class ForkServer:
    """A running server. Ends with the process that made it, or with `close`. Args: root: of the modules."""

    def __init__(self, root: Path = ROOT) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=root,
                env={**_environment_at_import, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """The pid of a new child of this process. Args: streams: its standard streams. Raises ForkFailed."""
        with self._lock, _adopting_orphans():
            try:
                socket.send_fds(self._connection, [json.dumps(request).encode()], streams)
                answer = self._connection.recv(_LARGEST_REQUEST)
            except ConnectionError:
                answer = b""
        if not answer:
            raise ForkFailed(f"the fork server ended with status {self._process.wait()}")
        return int(answer)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


_running: list[ForkServer] = []
_starting = threading.Lock()


def _server() -> ForkServer:
    with _starting:
        if not _running:
            _running.append(ForkServer())
        return _running[0]


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """While this lasts, children of descendants that end become children of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


# --- in the server ------------------------------------------------------------------------------------------


def _serve(connection: socket.socket) -> int | None:
    """Forks until nobody asks any more, then returns 0; returns None in each fork."""
    while True:
        data, streams, _, _ = socket.recv_fds(connection, _LARGEST_REQUEST, 3)
        if not data:
            return 0
        pid = _fork_for_caller()
        if not pid:
            connection.close()
            _become(json.loads(data), streams)
            return None
        for each in streams:
            os.close(each)
        connection.sendall(b"%d" % pid)


def _fork_for_caller() -> int:
    """As os.fork, but the caller of this process becomes the parent: what forks has ended by then."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        between = os.getpid()
        if pid := os.fork():
            os.write(writer, b"%d" % pid)
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.0005)
    else:
        os.waitpid(between, 0)
        pid = int(os.read(reader, 32))
    os.close(reader)
    os.close(writer)
    return pid


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Make this process one as Python would have started it for the command."""
    if request["new_session"]:
        os.setsid()
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [str(ROOT / "lockstep" / "__main__.py"), *request["arguments"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()


def main() -> int:
    """Serve; in a fork, run the command and return its status."""
    gc.disable()
    from lockstep import cli
    from lockstep.native import enable_if_requested

    enable_if_requested()
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the tests
    status = _serve(socket.socket(fileno=int(sys.argv[1])))
    return cli.main() if status is None else status


if __name__ == "__main__":
    sys.exit(main())
