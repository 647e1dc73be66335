"""The mark in a file, for a target whose effects are elsewhere and know no transaction with it.

    store = FileStore("marks", apply)      # apply(delivered)

Guarantees: records are applied in order, none is left out, and those up to the mark are never applied
again. A crash between the effects and the mark is the exception: after it the records since the mark are
applied again, in the same order and with the same offsets, perhaps in other groups (`Delivered.entries` are
the same). That is at least once. An application makes it exactly once by keeping with its effects how far
they go: the highest `position` of an entry for each `log_id`, and skipping what is at or below it.

While it applies, a lock is held: a process that replaces this one begins when that is over, or fails
after `timeout_s`; after the other's handshake, this one applies nothing more. The lock (flock) holds on one
machine, and ends with the process.

Owns: a file for each log, one line of JSON and its CRC-32, replaced as a whole; file and directory are
flushed before anything is acknowledged. A file that is not as it was written stops the target: what was
applied is not known then, and nothing is guessed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import inspect
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from lockstep.player.target.guard import check_applied
from lockstep.player.target.records import Delivered, LogName
from lockstep.player.target.store import MarkMismatch
from lockstep.player.target.target_position import Mark, StaleTerms

Apply = Callable[[Delivered], object]

_PAUSE_S: Final = 0.01
_READABLE: Final = 100
"""Characters of a log's id in the name of its file; a hash of all of it follows."""


class TargetStopped(Exception):
    """The target ended while something was waited for."""


class AppliedInPart(Exception):
    """An error that `apply` may raise after some entries: the position moves behind those, so that they do
    not come again with each try of the one that fails.

    Args: position: of the last entry that is done. cause: what the stream ends with.
    """

    def __init__(self, position: int, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.position = position
        self.cause = cause


class FileStore:
    """See the module.

    Args:
        directory: made if it is not there; of this target alone.
        timeout_s: how long to wait for another process that applies.
    Raises:
        TypeError: `apply` is async.
    """

    def __init__(self, directory: Path | str, apply: Apply, *, timeout_s: float = 10.0) -> None:
        if inspect.iscoroutinefunction(apply):
            raise TypeError("apply is a plain function: the mark waits for it")
        self._directory = Path(directory)
        self._apply = apply
        self._timeout_s = timeout_s
        self._stopping = threading.Event()

    def open(self, name: LogName) -> FileLog:
        """Raises OSError."""
        return self.log(name, self._apply)

    def log(self, name: LogName, apply: Apply, on_close: Callable[[], None] | None = None) -> FileLog:
        """The same with an `apply` of this log's own, which has something to close afterwards."""
        self._directory.mkdir(parents=True, exist_ok=True)
        return FileLog(self._directory, name.log_id, apply, on_close, self._timeout_s, self._stopping)

    def stop(self) -> None:
        self._stopping.set()


class FileLog:
    """One log's file, and the lock beside it."""

    def __init__(
        self,
        directory: Path,
        log_id: str,
        apply: Apply,
        on_close: Callable[[], None] | None,
        timeout_s: float,
        stopping: threading.Event,
    ) -> None:
        digest = hashlib.sha256(log_id.encode()).hexdigest()[:16]
        self._directory = directory
        self._path = directory / f"{quote(log_id, safe='')[:_READABLE]}-{digest}.mark"
        self._log_id = log_id
        self._apply = apply
        self._on_close = on_close
        self._timeout_s = timeout_s
        self._stopping = stopping
        self._lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def load(self) -> Mark | None:
        """Raises MarkMismatch: the file is not as it was written."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        return _unpack(data, self._log_id, self._path)

    def fence(self, mark: Mark) -> int:
        with self._hold_lock():
            stored = self.load()
            if stored is not None:
                if stored.terms >= mark.terms:
                    raise StaleTerms(stored)
                mark = Mark(mark.log_id, mark.player_term, mark.target_term, stored.position)
            self._write(mark)
        return mark.position

    def store(self, delivered: Delivered, mark: Mark) -> None:
        with self._hold_lock():
            stored = self.load()
            if stored is None:
                raise MarkMismatch(f"{self._path} is gone")
            if stored.terms != mark.terms:
                raise StaleTerms(stored)
            if stored.position != delivered.previous_position:
                raise MarkMismatch(f"{stored} is stored, and not {delivered.previous_position}")
            if delivered.records:
                try:
                    check_applied(self._apply(delivered))
                except AppliedInPart as part:
                    if stored.position < part.position < mark.position:
                        self._write(replace(mark, position=part.position))
                    raise part.cause from None
            self._write(mark)

    def close(self) -> None:
        os.close(self._lock)
        if self._on_close is not None:
            self._on_close()

    def _write(self, mark: Mark) -> None:
        made = self._path.with_suffix(".new")
        with made.open("wb") as file:
            file.write(_pack(mark))
            file.flush()
            os.fsync(file.fileno())
        made.replace(self._path)
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    @contextlib.contextmanager
    def _hold_lock(self) -> Iterator[None]:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process applies what {self._path} is the mark of") from None
            if self._stopping.wait(_PAUSE_S):
                raise TargetStopped("while another process applied")
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


def _pack(mark: Mark) -> bytes:
    values = {
        "log_id": mark.log_id,
        "player_term": mark.player_term,
        "target_term": mark.target_term,
        "position": mark.position,
    }
    line = json.dumps(values).encode() + b"\n"
    return line + b"%08x\n" % zlib.crc32(line)


def _unpack(data: bytes, log_id: str, path: Path) -> Mark:
    line, _, crc = data.partition(b"\n")
    if crc != b"%08x\n" % zlib.crc32(line + b"\n"):
        raise MarkMismatch(f"{path} is not as it was written")
    mark = Mark(**json.loads(line))
    if mark.log_id != log_id:
        raise MarkMismatch(f"{path} is the mark of {mark.log_id}")
    return mark
