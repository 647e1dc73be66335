"""A file system in memory that records what is done to it, fails on request, and can lose power.

`SimulatedFileSystem` is what `DataLog` runs on in tests: the view of a running system, where every write
shows at once. `crash` builds what a disk may hold after losing power at any moment of the record: all
that was flushed, and of the rest whatever the caller chooses, whole or in 512-byte sectors. Names (create,
rename, remove) are lost likewise until their directory is flushed; a rename itself is atomic.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from lockstep.storage.log.file_system import WriteBuffer
from lockstep.storage.types import Buffer

SECTOR_BYTES = 512


class Inode:
    """A file's bytes, without a name."""

    __slots__ = ("data", "number")

    def __init__(self, number: int, data: bytearray) -> None:
        self.number = number
        self.data = data


class Write:
    """Bytes written to a file; durable when the file is flushed after it."""

    __slots__ = ("data", "inode", "position")

    def __init__(self, inode: int, position: int, data: bytes) -> None:
        self.inode = inode
        self.position = position
        self.data = data


class Flush:
    __slots__ = ("inode",)

    def __init__(self, inode: int) -> None:
        self.inode = inode


class Names:
    """An atomic change of names: each now means an inode, or nothing."""

    __slots__ = ("changes",)

    def __init__(self, *changes: tuple[str, int | None]) -> None:
        self.changes = changes


class FlushNames:
    """A flush of the directory."""

    __slots__ = ()


class Note:
    """What the test says about this moment; not an operation."""

    __slots__ = ("what",)

    def __init__(self, what: object) -> None:
        self.what = what


Operation = Write | Flush | Names | FlushNames | Note
Fault = Callable[[str, str], OSError | None]
"""Asked before an operation (its name, the file's name): an error to raise, or None."""


class Image:
    """A disk at rest: files by name."""

    __slots__ = ("files",)

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def digest(self) -> int:
        return hash(tuple(sorted(self.files.items())))


class SimulatedFileSystem:
    """See the module. One directory; `capacity_bytes` makes it full; `reserves`: `allocate` gives a file its
    size, as zeros that are not written and may be lost until a flush. Some file systems cannot."""

    def __init__(
        self, image: Image | None = None, capacity_bytes: int = 1 << 40, reserves: bool = False
    ) -> None:
        self.reserves = reserves
        self.record: list[Operation] = []
        self.fault: Fault | None = None
        self.capacity_bytes = capacity_bytes
        self.cold = False
        """True: nothing is in the page cache, reads that must not wait find nothing."""
        self._inodes: dict[int, Inode] = {}
        self._names: dict[str, int] = {}
        self._open: dict[int, int] = {}
        self._next = 3
        for name, data in (image.files if image is not None else {}).items():
            self._names[name] = self._new_inode(bytearray(data))
        self._start = Image({name: bytes(self._inodes[i].data) for name, i in self._names.items()})
        self._start_inodes = dict(self._names)

    def _new_inode(self, data: bytearray) -> int:
        self._next += 1
        self._inodes[self._next] = Inode(self._next, data)
        return self._next

    def note(self, what: object) -> None:
        self.record.append(Note(what))

    def used_bytes(self) -> int:
        return sum(len(self._inodes[i].data) for i in set(self._names.values()))

    def _check(self, what: str, name: str, growth: int = 0) -> None:
        error = self.fault(what, name) if self.fault is not None else None
        if error is None and growth > 0 and self.used_bytes() + growth > self.capacity_bytes:
            error = OSError(errno.ENOSPC, "No space left on device")
        if error is not None:
            raise error

    def _name_of(self, fd: int) -> str:
        names = list(self._names.items())  # another thread may be changing them
        return next((n for n, i in names if i == self._open[fd]), "?")

    # -- the FileSystem face ----------------------------------------------------------------------------

    def make_dir(self, path: Path) -> None:
        return

    def list_dir(self, path: Path) -> list[str]:
        return sorted(self._names)

    def open(self, path: Path, create: bool = False) -> int:
        name = path.name
        if create:
            self._check("create", name)
            self._names[name] = self._new_inode(bytearray())
            self.record.append(Names((name, self._names[name])))
        elif name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        self._next += 1
        self._open[self._next] = self._names[name]
        return self._next

    def close(self, fd: int, /) -> None:
        del self._open[fd]

    def size(self, fd: int) -> int:
        return len(self._inodes[self._open[fd]].data)

    def free_bytes(self, path: Path) -> int:
        return max(0, self.capacity_bytes - self.used_bytes())

    def modified(self, fd: int) -> int:
        return zlib.crc32(self._inodes[self._open[fd]].data)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, /) -> int:
        inode = self._inodes[self._open[fd]]
        data = b"".join(buffers)
        if self.fault is not None or self.capacity_bytes < 1 << 40:
            self._check("write", self._name_of(fd), position + len(data) - len(inode.data))
        _put(inode.data, position, data)
        self.record.append(Write(inode.number, position, data))
        return len(data)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        if self.fault is not None:
            self._check("read", self._name_of(fd))
        return bytes(self._inodes[self._open[fd]].data[position : position + length])

    def preadv(self, fd: int, buffers: Sequence[WriteBuffer], position: int, flags: int = 0, /) -> int:
        if self.cold and flags:
            raise BlockingIOError(errno.EAGAIN, "not in the page cache")
        data = self._inodes[self._open[fd]].data
        done = 0
        for each in buffers:
            part = data[position + done : position + done + len(each)]
            each[: len(part)] = part
            done += len(part)
        return done

    def allocate(self, fd: int, length: int) -> None:
        growth = length - self.size(fd)
        if self.fault is not None or self.capacity_bytes < 1 << 40:
            self._check("allocate", self._name_of(fd), growth)
        if self.reserves and growth > 0:
            inode = self._inodes[self._open[fd]]
            self.record.append(Write(inode.number, len(inode.data), bytes(growth)))
            inode.data.extend(bytes(growth))

    def write_back(self, fd: int, position: int, length: int) -> None:
        if self.fault is not None:
            self._check("write_back", self._name_of(fd))

    def fdatasync(self, fd: int, /) -> None:
        if self.fault is not None:
            self._check("flush", self._name_of(fd))
        self.record.append(Flush(self._open[fd]))

    def rename(self, old: Path, new: Path) -> None:
        self._check("rename", old.name)
        inode = self._names.pop(old.name)
        self._names[new.name] = inode
        self.record.append(Names((old.name, None), (new.name, inode)))

    def unlink(self, path: Path) -> None:
        if path.name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        self._check("unlink", path.name)
        del self._names[path.name]
        self.record.append(Names((path.name, None)))

    def fsync_dir(self, path: Path) -> None:
        self._check("flush_dir", path.name)
        self.record.append(FlushNames())

    # -- losing power -----------------------------------------------------------------------------------

    def now(self) -> Image:
        """What a killed process leaves: everything written, flushed or not."""
        return Image({name: bytes(self._inodes[i].data) for name, i in self._names.items()})

    def pending(self, upto: int) -> list[int]:
        """Which of the first `upto` operations a power loss there may undo."""
        flushed: set[int] = set()
        names_flushed = False
        found = []
        for at in range(upto - 1, -1, -1):
            operation = self.record[at]
            if isinstance(operation, Flush):
                flushed.add(operation.inode)
            elif isinstance(operation, FlushNames):
                names_flushed = True
            elif (isinstance(operation, Write) and operation.inode not in flushed) or (
                isinstance(operation, Names) and not names_flushed
            ):
                found.append(at)
        return found[::-1]

    def crash(self, upto: int, lost: dict[int, frozenset[int] | None]) -> Image:
        """The disk after losing power before operation `upto`: `lost` says which pending operations are
        lost, wholly (None) or in which of their sectors."""
        names = dict(self._start_inodes)
        data = {inode: bytearray(self._start.files[name]) for name, inode in self._start_inodes.items()}
        for at in range(upto):
            operation = self.record[at]
            if isinstance(operation, Names):
                if at not in lost:
                    for name, inode in operation.changes:
                        if inode is None:
                            names.pop(name, None)
                        else:
                            names[name] = inode
            elif isinstance(operation, Write):
                target = data.setdefault(operation.inode, bytearray())
                if at not in lost:
                    _put(target, operation.position, operation.data)
                elif (sectors := lost[at]) is not None:
                    _put_torn(target, operation.position, operation.data, sectors)
        return Image({name: bytes(data.get(inode, b"")) for name, inode in names.items()})


def sectors_of(write: Write) -> range:
    """The numbers of the sectors a write touches."""
    return range(
        write.position // SECTOR_BYTES, (write.position + max(1, len(write.data)) - 1) // SECTOR_BYTES + 1
    )


def _put(target: bytearray, position: int, data: bytes) -> None:
    if len(target) < position:
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


def _put_torn(target: bytearray, position: int, data: bytes, lost: frozenset[int]) -> None:
    end = position + len(data)
    at = position
    while at < end:
        sector = at // SECTOR_BYTES
        after = min(end, (sector + 1) * SECTOR_BYTES)
        if sector not in lost:
            _put(target, at, data[at - position : after - position])
        at = after
