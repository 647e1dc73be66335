"""A node's file system: what the running system sees, what is really on the disk, and what lies between.

Survives the crashes of its node. Per file there is the page cache's view, the durable image, and the
writes since the last flush; per directory the names likewise. `kill` leaves everything written (unflushed
writes stay pending); `lose_power` keeps, of what was not flushed, any subset: whole writes, or
their 512-byte sectors or 4096-byte pages. Operations take virtual time. What goes wrong is decided in
`disk_faults.py`.

One directory, names only. Cost: a write is copied once when written and once when flushed; there is no record
of operations.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from lockstep.storage.log.file_system import WriteBuffer
from lockstep.storage.types import Buffer
from tests.sim.disk_faults import DiskFaults

OPEN_US = 15
WRITE_US = 8
READ_US = 25
NAME_US = 20
BYTES_PER_US = 1000


class PowerCut(BaseException):
    """The node stops in the middle of a disk operation. No handler of errors may take it for one."""


class Inode:
    """A file without its name."""

    __slots__ = ("cache", "durable", "pending", "recent")

    def __init__(self) -> None:
        self.cache = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes]] = []
        """Writes since the last flush, in order."""
        self.recent: list[list[tuple[int, int]]] = [[], []]
        """(start, end) of what the last two flushes made durable. No marker may speak of it yet, so damage
        here cannot be told from a torn write: faults leave it alone."""

    def flush(self) -> None:
        durable = self.durable
        for position, data in self.pending:
            put(durable, position, data)
        if self.pending:
            self.recent = [[(at, at + len(data)) for at, data in self.pending], self.recent[0]]
            self.pending.clear()


def put(target: bytearray, position: int, data: Buffer) -> None:
    """Write into a file's bytes; a gap before `position` becomes zeros."""
    if len(target) < position:
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


class _Durable(Mapping[str, bytes]):
    """Files are copied when they are asked for."""

    def __init__(self, names: dict[str, Inode]) -> None:
        self._names = names

    def __getitem__(self, name: str) -> bytes:
        return bytes(self._names[name].durable)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)


class Disk:
    """See the module: the `FileSystem` of one node.

    Args:
        charge: told how long each operation takes, in microseconds.
        running: whether a callback of the node runs just now; checks that read take no time, no fault.
    """

    def __init__(
        self, random: Random, faults: DiskFaults, charge: Callable[[int], None], running: Callable[[], bool]
    ) -> None:
        self.faults = faults
        self._random = random
        self._charge = charge
        self._running = running
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._pending_names: list[tuple[tuple[str, Inode | None], ...]] = []
        self._open: dict[int, tuple[Inode, str]] = {}
        self._next_fd = 3
        self._used = 0
        self._looked_at = 0
        self._looks = 0
        self.dead = False
        """The node has crashed: whatever its last callback still tries is not done."""
        self.flushes = 0

    # -- every operation --------------------------------------------------------------------------------

    def _begin(self, operation: str, name: str, cost_us: int, growth: int = 0) -> None:
        if self._looked_at or not self._running():
            return
        if self.dead:
            raise PowerCut
        self._charge(cost_us * self.faults.slowness + self.faults.stalled(operation))
        error = self.faults.before(operation, name, self._used, growth)
        if error is not None:
            if isinstance(error, PowerCut):
                self.dead = True
            raise error

    # -- the FileSystem face ----------------------------------------------------------------------------

    def make_dir(self, path: Path) -> None:
        return

    def list_dir(self, path: Path) -> list[str]:
        self._begin("list", "", READ_US)
        return sorted(self._names)

    def open(self, path: Path, create: bool = False) -> int:
        name = path.name
        self._begin("create" if create else "open", name, OPEN_US)
        if create:
            inode = self._rename_inode((name, Inode()))
        elif name in self._names:
            inode = self._names[name]
        else:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        self._next_fd += 1
        self._open[self._next_fd] = (inode, name)
        return self._next_fd

    def _rename_inode(self, created: tuple[str, Inode]) -> Inode:
        name, inode = created
        former = self._names.get(name)
        self._used -= len(former.cache) if former is not None else 0
        self._names[name] = inode
        self._pending_names.append((created,))
        return inode

    def close(self, fd: int, /) -> None:
        self._open.pop(fd, None)

    def size(self, fd: int) -> int:
        return len(self._open[fd][0].cache)

    def free_bytes(self, path: Path) -> int:
        return max(0, self.faults.free_bytes - self._used)

    def modified(self, fd: int) -> int:
        """Another one each time: nothing that was read once is believed the next time."""
        self._looks += 1
        return self._looks

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, /) -> int:
        inode, name = self._open[fd]
        data = b"".join(buffers)
        growth = max(0, position + len(data) - len(inode.cache))
        self._begin("write", name, WRITE_US + len(data) // BYTES_PER_US, growth)
        taken = self.faults.write_taken(len(data))
        if taken < len(data):
            data = data[:taken]
            growth = max(0, position + taken - len(inode.cache))
        put(inode.cache, position, data)
        inode.pending.append((position, data))
        self._used += growth
        return taken

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        inode, name = self._open[fd]
        self._begin("read", name, READ_US + length // BYTES_PER_US)
        return bytes(inode.cache[position : position + length])

    def preadv(self, fd: int, buffers: Sequence[WriteBuffer], position: int, flags: int = 0, /) -> int:
        inode, name = self._open[fd]
        self._begin("read", name, READ_US)
        if flags and not self._looked_at and self._running() and self.faults.not_cached():
            raise BlockingIOError(errno.EAGAIN, "not in the page cache")
        done = 0
        for each in buffers:
            part = inode.cache[position + done : position + done + len(each)]
            each[: len(part)] = part
            done += len(part)
        return done

    def allocate(self, fd: int, length: int) -> None:
        inode, name = self._open[fd]
        growth = max(0, length - len(inode.cache))
        self._begin("allocate", name, NAME_US, growth)
        if growth:
            inode.pending.append((len(inode.cache), bytes(growth)))
            inode.cache.extend(bytes(growth))
            self._used += growth

    def write_back(self, fd: int, position: int, length: int) -> None:
        return

    def fdatasync(self, fd: int, /) -> None:
        inode, name = self._open[fd]
        self.flushes += 1
        try:
            self._begin("flush", name, self.faults.flush_us())
        except OSError:
            # The kernel marks the pages clean, whatever became of them.
            seen = bytes(inode.cache)
            self._lose(inode, self._random.choice((0.0, 0.5, 1.0)), 512)
            if self.faults.stale_cache:
                inode.cache[:] = seen
            raise
        inode.flush()

    def rename(self, old: Path, new: Path) -> None:
        self._begin("rename", old.name, NAME_US)
        inode = self._names.pop(old.name)
        former = self._names.get(new.name)
        self._used -= len(former.cache) if former is not None else 0
        self._names[new.name] = inode
        self._pending_names.append(((old.name, None), (new.name, inode)))

    def unlink(self, path: Path) -> None:
        if path.name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        self._begin("unlink", path.name, NAME_US)
        self._used -= len(self._names.pop(path.name).cache)
        self._pending_names.append(((path.name, None),))

    def fsync_dir(self, path: Path) -> None:
        self._begin("flush_dir", "", self.faults.flush_us())
        self._durable_names = dict(self._names)
        self._pending_names.clear()

    # -- crashes ----------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process is gone, the machine runs on."""
        self._open.clear()
        self.dead = True

    def lose_power(self) -> None:
        """The machine is gone: of what was not flushed any part may be missing."""
        random = self._random
        self.kill()
        lost = random.choice((0.0, 0.1, 0.5, 0.5, 0.9, 1.0, 1.0))
        grain = random.choice((512, 4096, 1 << 30))
        names = self._durable_names
        for changes in self._pending_names:
            if random.random() >= lost:
                for name, inode in changes:
                    if inode is None:
                        names.pop(name, None)
                    else:
                        names[name] = inode
        self._pending_names.clear()
        self._names = names
        self._durable_names = dict(names)
        self._used = 0
        for name in sorted(names):
            self._lose(names[name], lost, grain)
            self._used += len(names[name].cache)

    def _lose(self, inode: Inode, lost: float, grain: int) -> None:
        """Each piece of each unflushed write is lost with that probability; the page cache is gone."""
        if not inode.pending:
            return
        random = self._random.random
        for position, data in inode.pending:
            if lost in (0.0, 1.0) or grain >= len(data):
                if random() >= lost:
                    put(inode.durable, position, data)
                continue
            at, end = position, position + len(data)
            while at < end:
                after = min(end, (at // grain + 1) * grain)
                if random() >= lost:
                    put(inode.durable, at, data[at - position : after - position])
                at = after
        inode.pending.clear()
        inode.cache[:] = inode.durable

    def mount(self) -> None:
        """The next life begins."""
        self.dead = False
        self.faults.armed_cut = 0

    def wipe(self) -> None:
        """A new, empty disk."""
        self._names, self._durable_names = {}, {}
        self._pending_names.clear()
        self._used = 0

    # -- for checks -------------------------------------------------------------------------------------

    @contextmanager
    def without_faults(self) -> Iterator[None]:
        """While entered, operations take no time and meet no fault: a check looks, wherever it is called."""
        self._looked_at += 1
        try:
            yield
        finally:
            self._looked_at -= 1

    def durable(self) -> Mapping[str, bytes]:
        """What a power loss now would surely leave: flushed names, and of each file the flushed bytes."""
        return _Durable(self._durable_names)

    # -- damage -----------------------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        return self._used

    def names(self) -> list[str]:
        return sorted(self._names)

    def settled(self, name: str, start: int, end: int) -> bool:
        """Whether a range of a file is durable and old enough that later flushes spoke of it."""
        inode = self._names[name]
        if end > len(inode.durable) or self._durable_names.get(name) is not inode:
            return False
        ranges = [*inode.recent[0], *inode.recent[1], *((at, at + len(d)) for at, d in inode.pending)]
        return all(end <= low or start >= high for low, high in ranges)

    def durable_bytes(self, name: str) -> bytearray:
        return self._names[name].durable

    def damage(self, name: str, position: int, data: bytes) -> None:
        """Change bytes behind everybody's back, on the disk and in the cache."""
        inode = self._names[name]
        for view in (inode.durable, inode.cache):
            view[position : position + len(data)] = data
