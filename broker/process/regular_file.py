"""Files that settings name: a pipe or a device could block the start, so only regular files are opened.

Owns: `open_regular`, an opener for `open`, and the texts that name the type of any other file. Invariant: to
open a pipe or a device never waits, and does nothing to it. Does not: read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

_KINDS: Final = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe (FIFO)", stat.S_IFSOCK: "a socket"}


class NotRegularFile(OSError):
    """A path leads to a pipe, a device or a directory; its `strerror` says to which."""


def check_regular(path: str | Path) -> None:
    """Raises NotRegularFile, or OSError where there is nothing."""
    _check(os.stat(path).st_mode)


def open_regular(path: str, flags: int, mode: int = 0o666) -> int:
    """The descriptor of a regular file. Raises NotRegularFile, OSError."""
    try:
        check_regular(path)  # some devices act when they are opened
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | os.O_NONBLOCK, mode)
    try:
        _check(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check(mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise NotRegularFile(errno.EINVAL, f"{kind}, no regular file")
