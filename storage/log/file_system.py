"""The few file operations of the log, behind one interface, so that tests can record, reorder and fail them.

`RealFileSystem` is the operating system's functions, unwrapped: a call through it costs nothing extra.
Every path is inside the log's own directory. What is durable when: written bytes after `fdatasync` of
their file, a created, renamed or removed name after `fsync_dir` of its directory.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, cast

from lockstep.storage.types import Buffer, CorruptLog, StorageFull, WriteFailed

T = TypeVar("T")
WriteBuffer = bytearray | memoryview

READ_WRITE = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)
"""Read only what the page cache holds; 0 where the platform has no such flag (reads may then wait)."""

UNKNOWN_FREE_BYTES = 1 << 62
"""The free bytes of a file system that does not report its size."""
PWRITEV_MAX_BUFFERS = min(1024, os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 1024)


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (AttributeError, OSError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_uint]
    return cast("Callable[[int, int, int, int], int]", function)


_SYNC_FILE_RANGE = _sync_file_range()
_NOT_HERE = frozenset({errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EPERM, errno.EOPNOTSUPP})
"""The file system, or a sandbox, has no such call: nothing was tried, so nothing can have failed."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_LOST = frozenset(
    {errno.ENOENT, errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.EISDIR, errno.ELOOP, errno.ESPIPE}
)
"""No such file, a bad sector, a checksum of the file system's that does not fit, or something else than
a file in its place."""


class FileSystem(Protocol):
    """The file system operations that `DataLog` needs. Errors are `OSError` with the usual numbers."""

    def make_dir(self, path: Path) -> None: ...
    def list_dir(self, path: Path) -> list[str]: ...
    def open(self, path: Path, create: bool = False) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def size(self, fd: int) -> int: ...
    def modified(self, fd: int) -> int: ...
    def free_bytes(self, path: Path) -> int: ...
    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, /) -> int: ...
    def pread(self, fd: int, length: int, position: int, /) -> bytes: ...
    def preadv(self, fd: int, buffers: Sequence[WriteBuffer], position: int, flags: int = 0, /) -> int: ...
    def allocate(self, fd: int, length: int) -> None: ...
    def write_back(self, fd: int, position: int, length: int) -> None: ...
    def fdatasync(self, fd: int, /) -> None: ...
    def rename(self, old: Path, new: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def fsync_dir(self, path: Path) -> None: ...


def open_file(path: Path, flags: int) -> int:
    """An open descriptor. Raises OSError for what is no regular file, without waiting for a pipe."""
    fd = os.open(path, flags | os.O_NONBLOCK, 0o644)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ESPIPE
    raise OSError(number, "not a regular file", str(path))


class RealFileSystem:
    """The operating system's own functions."""

    close = staticmethod(os.close)
    pwritev = staticmethod(os.pwritev)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)
    fdatasync = staticmethod(os.fdatasync)

    def make_dir(self, path: Path) -> None:
        """Create the directory and its missing parents, each durable in its own parent."""
        missing = []
        while not path.exists():
            missing.append(path)
            path = path.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self.fsync_dir(each.parent)

    def list_dir(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def open(self, path: Path, create: bool = False) -> int:
        """An open descriptor for reading and writing; `create` empties a file that is there."""
        return open_file(path, READ_WRITE | (os.O_CREAT | os.O_TRUNC if create else 0))

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def modified(self, fd: int) -> int:
        """A number that is another one once the file has been written to: its modification time."""
        return os.fstat(fd).st_mtime_ns

    def free_bytes(self, path: Path) -> int:
        """The free space on the file system of a directory; a quota may leave less."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize if found.f_blocks else UNKNOWN_FREE_BYTES

    def allocate(self, fd: int, length: int) -> None:
        """Reserve the blocks first, so that a full disk shows before anything is written. Nothing, and the
        file is not larger, where that cannot be done."""
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(fd, 0, length)
            except OSError as error:  # a C library that does not do without the file system's help
                if error.errno not in _NOT_HERE:
                    raise

    def write_back(self, fd: int, position: int, length: int) -> None:
        """Hand these bytes to the device and wait, without a flush; makes nothing durable. Linux only.

        Raises OSError where they could not be written: the kernel reports that once, and no later flush
        reports it.
        """
        if _SYNC_FILE_RANGE is not None and _SYNC_FILE_RANGE(fd, position, length, 7) < 0:
            number = ctypes.get_errno()
            if number not in _NOT_HERE:
                raise OSError(number, os.strerror(number))

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def fsync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class WatchedFileSystem:
    """Another file system, and how often a directory could not be flushed: the system reports such an error
    once, perhaps to a caller that flushes the directory for another reason. All users of a log's directory
    share one such object."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._flushing = threading.Lock()
        """Held until an error is counted: the system may report none to the next flush."""
        self.failed_directory_flushes = 0
        self.make_dir, self.list_dir, self.modified = fs.make_dir, fs.list_dir, fs.modified
        self.free_bytes = fs.free_bytes

    def open(self, path: Path, create: bool = False) -> int:
        return self._fs.open(path, create)

    def close(self, fd: int, /) -> None:
        self._fs.close(fd)

    def size(self, fd: int) -> int:
        return self._fs.size(fd)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, /) -> int:
        return self._fs.pwritev(fd, buffers, position)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        return self._fs.pread(fd, length, position)

    def preadv(self, fd: int, buffers: Sequence[WriteBuffer], position: int, flags: int = 0, /) -> int:
        return self._fs.preadv(fd, buffers, position, flags)

    def allocate(self, fd: int, length: int) -> None:
        self._fs.allocate(fd, length)

    def write_back(self, fd: int, position: int, length: int) -> None:
        self._fs.write_back(fd, position, length)

    def fdatasync(self, fd: int, /) -> None:
        self._fs.fdatasync(fd)

    def rename(self, old: Path, new: Path) -> None:
        self._fs.rename(old, new)

    def unlink(self, path: Path) -> None:
        self._fs.unlink(path)

    def fsync_dir(self, path: Path) -> None:
        with self._flushing:
            try:
                self._fs.fsync_dir(path)
            except OSError:
                self.failed_directory_flushes += 1
                raise


def write_all(fs: FileSystem, fd: int, buffers: Sequence[Buffer], position: int) -> None:
    """Write every byte, also where one call of the system writes fewer."""
    left = [memoryview(b) for b in buffers if len(b)]
    while left:
        written = fs.pwritev(fd, left[:PWRITEV_MAX_BUFFERS], position)
        position += written
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]


def is_full(error: OSError) -> bool:
    """Returns whether the disk, or a quota, has no room."""
    return error.errno in _NO_ROOM


def write_error(path: Path | str, error: OSError) -> StorageFull | WriteFailed:
    """Returns the exception to raise for an error of writing a file beside the log."""
    return (StorageFull if is_full(error) else WriteFailed)(f"{path}: {error}")


def is_lost(error: OSError) -> bool:
    """Returns whether the file is missing or unreadable: then it is rebuilt where that is possible."""
    return error.errno in _LOST


def is_corruption(error: BaseException) -> bool:
    """Returns whether what was read has changed on the disk, or the disk has lost it."""
    return isinstance(error, CorruptLog) or (isinstance(error, OSError) and is_lost(error))


def unless_lost(read: Callable[[], T], unread: list[OSError] | None = None) -> T | None:
    """Returns what `read` does, or None where the file is lost; its error is added to `unread`, for a caller
    that needs another file in its place: a later read may succeed."""
    try:
        return read()
    except OSError as error:
        if not is_lost(error):
            raise
        if unread is not None:
            unread.append(error)
        return None


def read_whole(fs: FileSystem, path: Path) -> bytes | None:
    """The whole file, or None where there is none."""
    try:
        fd = fs.open(path)
    except FileNotFoundError:
        return None
    try:
        return fs.pread(fd, fs.size(fd), 0)
    finally:
        fs.close(fd)
