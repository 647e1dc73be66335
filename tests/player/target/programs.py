"""Target programs to be judged: each a process over a store of its own, to be started, killed and audited.

Add a class for each new one to PROGRAMS; `test_conformance` then judges it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from compat_tests import go_target

STOP_TIMEOUT_S: Final = 30.0


class Applied(NamedTuple):
    """One record that the target has applied."""

    log_id: str
    offset: int
    key: bytes | None
    value: bytes | None


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


class GoTarget(TargetProgram):
    """`player/target/go`."""

    name = "go"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._program = go_target.program()
        self._store = folder / "target.db"
        self._hold = folder / "hold"

    def command(self) -> list[str]:
        options = ["-store", self._store, "-hold", self._hold, "-listen", self.address]
        return [str(word) for word in [self._program, *options]]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self._hold.touch()
        try:
            yield
        finally:
            self._hold.unlink()

    def applied(self) -> list[Applied]:
        command = [str(self._program), "-store", str(self._store), "-dump"]
        dumped = subprocess.run(command, capture_output=True, text=True, check=True, timeout=STOP_TIMEOUT_S)
        lines = [json.loads(line) for line in dumped.stdout.splitlines()]
        return [
            Applied(line["log_id"], line["offset"], _bytes(line["key"]), _bytes(line["value"]))
            for line in lines
        ]


PROGRAMS: Final[list[type[TargetProgram]]] = [GoTarget]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
