"""Target programs to be judged: each a process over a store of its own, to be started, killed and audited.

A class here for each; `test_conformance` judges them all.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from compat_tests import go_target
from compat_tests.kafka_jars import ToolchainMissing, skip_or_fail

STOP_TIMEOUT_S: Final = 30.0
Program = TypeVar("Program", bound="TargetProgram")


class Applied(NamedTuple):
    """One record that the target has applied."""

    log_id: str
    offset: int
    key: bytes | None


class TargetProgram(ABC):
    """One target; its process comes and goes, its store stays. It says what it says into `output`."""

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"
        self.address = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets: list[str] = []

    def start(self) -> None:
        """Start its process; where it listens is new each time, and short enough for a socket's name."""
        assert self._process is None
        self._sockets.append(tempfile.mkdtemp(prefix="target-"))
        self.address = f"unix:{self._sockets[-1]}/listen"
        with open(self.output, "ab") as output:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(STOP_TIMEOUT_S)
        self._process = None
        return status

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        for folder in self._sockets:
            shutil.rmtree(folder, ignore_errors=True)

    @abstractmethod
    def command(self) -> list[str]:
        """How it is started, to listen at `address`."""

    @abstractmethod
    def held(self) -> contextlib.AbstractContextManager[None]:
        """Within it, no transaction ends."""

    @abstractmethod
    def applied(self) -> list[Applied]:
        """All it has applied, in that order, twice what was applied twice. Only while no process runs."""

    @abstractmethod
    def values(self) -> dict[bytes, bytes]:
        """The newest value of each key that has one. Only while no process runs."""


class GoTarget(TargetProgram):
    """`player/target/go`."""

    name = "go"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.program = go_target.program()
        self._store = folder / "target.db"
        self._hold = folder / "hold"

    def command(self) -> list[str]:
        options = ["-store", self._store, "-hold", self._hold, "-listen", self.address]
        return [str(word) for word in [self.program, *options]]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self._hold.touch()
        try:
            yield
        finally:
            self._hold.unlink()

    def applied(self) -> list[Applied]:
        return [Applied(each["log_id"], each["offset"], _bytes(each["key"])) for each in self.dumped()]

    def values(self) -> dict[bytes, bytes]:
        newest = {_bytes(each["key"]): _bytes(each["value"]) for each in self.dumped()}
        return {key: value for key, value in newest.items() if key is not None and value is not None}

    def dumped(self) -> list[dict[str, Any]]:
        """What `-dump` prints."""
        command = [str(self.program), "-store", str(self._store), "-dump"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=STOP_TIMEOUT_S)
        return [json.loads(line) for line in done.stdout.splitlines()]


class PythonShard(TargetProgram):
    """`lockstep.demo.shard` over SQLite."""

    name = "python"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = folder / "shard.db"

    def command(self) -> list[str]:
        options = ["--store", f"sqlite:///{self._store}", "--listen", self.address]
        return [sys.executable, "-m", _SHARD, *options]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield

    def applied(self) -> list[Applied]:
        rows = self._rows("SELECT log_id, record_offset, record_key FROM shard_applied ORDER BY number")
        return [Applied(*row) for row in rows]

    def values(self) -> dict[bytes, bytes]:
        return dict(self._rows("SELECT record_key, record_value FROM shard_values"))

    def _rows(self, query: str) -> list[Any]:
        with self._connected() as connection:
            return connection.execute(query).fetchall()

    def _connected(self) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(self._store, isolation_level=None))


@contextlib.contextmanager
def running(kind: type[Program], folder: Path) -> Iterator[Program]:
    """A target of this kind, started; skipped by name where it cannot be built here."""
    try:
        made = kind(folder)
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
        raise
    try:
        made.start()
        yield made
    finally:
        made.close()


_SHARD: Final = "lockstep.demo.shard"
PROGRAMS: Final[list[type[TargetProgram]]] = [GoTarget]
if importlib.util.find_spec(_SHARD) is not None:
    PROGRAMS.append(PythonShard)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
