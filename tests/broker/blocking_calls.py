"""A trace of what blocks: system calls that may wait for a disk or a name server, made on one thread.

Owns: which calls are looked for and where in our packages each was made. The interpreter's audit events tell
of opening, listing, renaming and removing files, of name look-ups and of sleeping; calls without an event
(stat, flushes, reads and writes of the log, waiting for the end of a thread) are wrapped. Imports are passed
over: a module is loaded once. Reads with `RWF_NOWAIT` return at once and are none.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lockstep.storage.log.file_system import RealFileSystem

PACKAGE: Final = Path(__file__).resolve().parents[2] / "lockstep"
WRAPPER: Final = str(PACKAGE / "storage" / "log" / "file_system.py")
EVENTS: Final = frozenset(
    {
        "open",
        "os.link",
        "os.listdir",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.scandir",
        "os.symlink",
        "os.truncate",
        "shutil.rmtree",
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "socket.getnameinfo",
        "subprocess.Popen",
        "time.sleep",
    }
)
UNAUDITED: Final = ("fsync", "fdatasync", "stat", "lstat", "statvfs", "posix_fallocate", "replace")
LOG_CALLS: Final = ("pwritev", "pread", "preadv", "fdatasync")


class _Trace:
    def __init__(self) -> None:
        self.thread = 0
        """That is looked at; 0 for none."""
        self.found: set[str] = set()

    def note(self, what: str) -> None:
        if threading.get_ident() != self.thread:
            return
        frame = sys._getframe(1)
        place = ""
        while frame is not None:
            name = frame.f_code.co_filename
            if "importlib" in name:
                return
            if not place and name.startswith(f"{PACKAGE}/") and name != WRAPPER:
                place = f"{Path(name).relative_to(PACKAGE)}:{frame.f_code.co_qualname}"
            frame = frame.f_back  # type: ignore[assignment]
        if place:
            self.found.add(f"{what} {place}")


_trace: Final = _Trace()
_hooked: Final[list[bool]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _trace.thread and event in EVENTS:
        _trace.note(event)


def _wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*arguments: Any, **more: Any) -> Any:
        if not (name == "preadv" and len(arguments) > 3 and arguments[3]):
            _trace.note(name)
        return call(*arguments, **more)

    return noting


@contextlib.contextmanager
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """`CALL FILE:FUNCTION` of each call that this thread makes meanwhile."""
    if not _hooked:
        sys.addaudithook(_audit)  # for as long as the process lives
        _hooked.append(True)
    with monkeypatch.context() as patch:
        for name in UNAUDITED:
            patch.setattr(os, name, _wrapped(name, getattr(os, name)))
        patch.setattr(threading.Thread, "join", _wrapped("join", threading.Thread.join))
        for name in LOG_CALLS:
            patch.setattr(RealFileSystem, name, staticmethod(_wrapped(name, getattr(RealFileSystem, name))))
        _trace.found = set()
        _trace.thread = threading.get_ident()
        try:
            yield _trace.found
        finally:
            _trace.thread = 0
