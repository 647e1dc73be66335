"""Child processes of a block: requests and responses are one JSON object a line.

A child gets its job as the first line, reports {"ready": true} or the like, and then responds to each
line with one. It ends when its standard input does. A response with "error" ends the block.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.sessions.jobs import RoundFailed
from compat_tests.probe import HOST
from compat_tests.targets import ROOT
from compat_tests.waiting import readable

Words = dict[str, Any]

HOSTING = [sys.executable, "-m", "bench.player.child_host"]
"""The words before `serve` of a broker that takes players."""
PORT_FILE = "player.port"
"""The file in that broker's directory with the port that takes their jobs."""

READY_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0


class LineChild:
    """A process that responds to lines: `send` and `receive` bytes, `waited` for by a file number.
    RoundFailed."""

    def __init__(
        self, name: str, waited: int, send: Callable[[bytes], object], receive: Callable[[], bytes]
    ) -> None:
        self.name = name
        self._waited = waited
        self._send = send
        self._receive = receive

    def send(self, words: Words) -> None:
        try:
            self._send(json.dumps(words).encode() + b"\n")
        except OSError as error:
            raise RoundFailed(f"the {self.name} ended: {error}") from error

    def next_response(self, timeout_s: float = READY_TIMEOUT_S) -> Words:
        """The next response."""
        deadline, line = time.monotonic() + timeout_s, b""
        while not line.endswith(b"\n"):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not readable([self._waited], left_s):
                raise RoundFailed(f"the {self.name} did not respond for {timeout_s:.0f} s")
            more = self._receive()
            if not more:
                raise RoundFailed(f"the {self.name} ended")
            line += more
        response: Words = json.loads(line)
        if "error" in response:
            raise RoundFailed(f"the {self.name}: {response['error']}")
        return response

    def call(self, words: Words, timeout_s: float = READY_TIMEOUT_S) -> Words:
        self.send(words)
        return self.next_response(timeout_s)


class Child(LineChild):
    """`python -m MODULE`, started with its job, if it has one from the start. A context object."""

    def __init__(self, module: str, job: Words | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=ROOT,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, output = self._process.stdin, self._process.stdout.fileno()
        name = module.rpartition(".")[2]
        super().__init__(name, output, self._input.write, lambda: os.read(output, 1 << 16))
        if job is not None:
            self.send(job)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        try:
            self._input.close()
            self._process.wait(END_TIMEOUT_S if error is None else 0.0)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Connected(LineChild):
    """The same within a broker that takes players, over a connection of its own. A context object.

    Args: directory: the broker's.
    """

    def __init__(self, name: str, directory: Path, job: Words) -> None:
        port = int((directory / PORT_FILE).read_text())
        self._socket = socket.create_connection((HOST, port), timeout=READY_TIMEOUT_S)
        receive = partial(self._socket.recv, 1 << 16)
        super().__init__(name, self._socket.fileno(), self._socket.sendall, receive)
        self.send(job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(END_TIMEOUT_S)
            while self._socket.recv(1 << 16):  # until it has ended, too
                pass
        self._socket.close()


def report_ready() -> None:
    """A child can begin."""
    print(json.dumps({"ready": True}), flush=True)


def next_line() -> Words | None:
    """The next command of a child; None when it has to end. Waits."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def child_main(work: Callable[[Words], None]) -> int:
    """A child's exit status. Args: work: from its job to its end; an error that it raises is the last
    response."""
    job = next_line()
    if job is None:
        return 0
    try:
        work(job)
    except Exception as error:
        respond({"error": f"{type(error).__name__}: {error}"})
        return 1
    return 0


def respond(words: Words) -> None:
    """A child's response to one line."""
    print(json.dumps(words), flush=True)


TERMINATE_TIMEOUT_S = 90.0


def run_child(command: Sequence[str], directory: Path) -> int:
    """Run it to its end, what it prints on standard error; its exit status. Whatever interrupts the wait
    ends the command first."""
    child = subprocess.Popen(command, cwd=directory, stdout=sys.stderr)
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        try:
            child.wait(TERMINATE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise
