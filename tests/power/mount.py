"""`python -m tests.power.mount DIRECTORY`: serves a `Volume` through FUSE until its standard input ends.

Owns: the way from the kernel to the volume, the handles of open files, and the power switch. Commands come as
JSON lines on standard input, each is answered by one line on standard output (`disk.PowerDisk` speaks them):

- `cut`: the disk stops after `after` further changes and flushes (0: at once), or, with `names`, at a flush
  of a directory after so many others: when names are changed and not yet kept. Whoever changes or flushes
  anything from then on waits; reads are served, as from a page cache. So a broker that runs on for a moment
  and acknowledges what the disk never heard of is found out.
- `lose`: the power is gone. All who wait get EIO, and so does everything until `on`.
- `on`: the next life begins, with what the disk kept.
- `lie`: from now on flushes are acknowledged and not kept.
- `state`: on, cut or off, and how many operations and flushes there were.

Nothing is cached by the kernel (direct I/O, no timeouts), so that after a loss nobody is told of former
bytes. A flush takes up to `--flush-ms`, and keeps what was written before it began: the window in which a
store may not acknowledge yet is as wide as on a disk.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import mfusepy

from tests.power.volume import Directory, File, Node, Volume

ON, CUT, OFF = "on", "cut", "off"
BLOCK_BYTES = 4096


class Switch:
    """Whether the disk has power, and when it will stop. All fields are guarded by `changed`."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.state = ON
        self.life = 0
        self.operations = 0
        self.flushes = 0
        self.left: int | None = None
        """Changes and flushes until the disk stops; of directories alone, if `counts_names`."""
        self.counts_names = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Holds the lock; EIO without power."""
        with self.changed:
            if self.state == OFF:
                raise mfusepy.FuseOSError(errno.EIO)
            yield

    @contextmanager
    def changing(self, flushes_names: bool = False) -> Iterator[None]:
        """Holds the lock; waits while the disk is stopped, then EIO, because that only ends with a loss."""
        with self.changed:
            if self.state == ON and self.left is not None and (flushes_names or not self.counts_names):
                self.left -= 1
                if self.left < 0:
                    self.state = CUT
            life = self.life
            while self.state == CUT and life == self.life:
                self.changed.wait()
            if self.state == OFF or life != self.life:
                raise mfusepy.FuseOSError(errno.EIO)
            self.operations += 1
            yield


class Mount(mfusepy.FUSE):  # type: ignore[misc]
    """Hands a truncation its handle, without which it has no name here. Source: mfusepy 3.1.1 drops it."""

    def truncate_fuse_3(self, path: bytes | None, length: int, fip: Any) -> int:
        name = None if path is None else path.decode(self.encoding, self.errors)
        truncated: int = self.operations.truncate(name, length, fip.contents.fh if fip else None)
        return truncated


class Served(mfusepy.Operations):  # type: ignore[misc]
    """The volume as FUSE wants it. `path` is None where there is a handle.

    One thing is less than a disk's: libfuse refuses fstat of an open file without a name (ESTALE).
    """

    use_ns = True
    flag_nopath = flag_nullpath_ok = True

    def __init__(self, volume: Volume, switch: Switch, flush_s: float) -> None:
        self._volume = volume
        self._switch = switch
        self._flush_s = flush_s
        self._rng = random.Random(0)
        self._open: dict[int, Node] = {}
        self._next_handle = 0

    def forget_handles(self) -> None:
        """Who had files open has died with the power."""
        self._open.clear()

    def init(self, path: str) -> None:
        _say({"ready": True})

    # -- names ------------------------------------------------------------------------------------------

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, Any]:
        with self._switch.reading():
            node = self._node(path, fh)
            if isinstance(node, Directory):
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            size = len(node.seen)
            return {
                "st_mode": stat.S_IFREG | 0o644,
                "st_nlink": 1,
                "st_size": size,
                "st_blocks": -(-size // 512),
                "st_uid": os.geteuid(),
                "st_gid": os.getegid(),
            }

    def opendir(self, path: str) -> int:
        with self._switch.reading():
            return self._handle(self._volume.directory(path))

    def readdir(self, path: str | None, fh: int) -> list[str]:
        with self._switch.reading():
            return [".", "..", *sorted(self._directory(fh).seen)]

    def releasedir(self, path: str | None, fh: int) -> int:
        return self.release(path, fh)

    def mkdir(self, path: str, mode: int) -> int:
        with self._switch.changing():
            self._volume.make_dir(path)
        return 0

    def rmdir(self, path: str) -> int:
        with self._switch.changing():
            self._volume.remove_dir(path)
        return 0

    def unlink(self, path: str) -> int:
        with self._switch.changing():
            self._volume.unlink(path)
        return 0

    def rename(self, old: str, new: str) -> int:
        with self._switch.changing():
            self._volume.rename(old, new)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    def utimens(self, path: str, times: object = None) -> int:
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        blocks = (1 << 34) // BLOCK_BYTES
        sizes = {"f_bsize": BLOCK_BYTES, "f_frsize": BLOCK_BYTES}
        return {**sizes, "f_blocks": blocks, "f_bavail": blocks, "f_bfree": blocks}

    # -- files ------------------------------------------------------------------------------------------

    def create(self, path: str, mode: int, fi: int | None = None) -> int:
        with self._switch.changing():
            return self._handle(self._volume.create(path))

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_TRUNC:
            with self._switch.changing():
                file = self._volume.file(path)
                file.change(0, None)
                return self._handle(file)
        with self._switch.reading():
            return self._handle(self._volume.file(path))

    def release(self, path: str | None, fh: int) -> int:
        with self._switch.changed:
            self._open.pop(fh, None)
        return 0

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        with self._switch.reading():
            return bytes(self._file(fh).seen[offset : offset + size])

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        with self._switch.changing():
            self._file(fh).change(offset, data)
        return len(data)

    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        with self._switch.changing():
            node = self._node(path, fh)
            assert isinstance(node, File)
            node.change(length, None)
        return 0

    def fallocate(self, path: str | None, mode: int, offset: int, size: int, fh: int) -> int:
        if mode:
            raise mfusepy.FuseOSError(errno.EOPNOTSUPP)
        with self._switch.changing():
            file = self._file(fh)
            if offset + size > len(file.seen):
                file.change(offset + size, None)
        return 0

    # -- flushes ----------------------------------------------------------------------------------------

    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        with self._switch.changing():
            file = self._file(fh)
            written = file.changes
            life = self._switch.life
        self._take_time()
        with self._flushed(life):
            self._volume.flush(file, written)
        return 0

    def fsyncdir(self, path: str | None, datasync: int, fh: int) -> int:
        with self._switch.changing(flushes_names=True):
            directory = self._directory(fh)
            life = self._switch.life
        self._take_time()
        with self._flushed(life):
            self._volume.flush_dir(directory)
        return 0

    @contextmanager
    def _flushed(self, life: int) -> Iterator[None]:
        with self._switch.changing():
            if life != self._switch.life:
                raise mfusepy.FuseOSError(errno.EIO)
            self._switch.flushes += 1
            yield

    def _take_time(self) -> None:
        if self._flush_s:
            time.sleep(self._rng.uniform(0, self._flush_s))

    # -- private ----------------------------------------------------------------------------------------

    def _handle(self, node: Node) -> int:
        self._next_handle += 1
        self._open[self._next_handle] = node
        return self._next_handle

    def _file(self, handle: int) -> File:
        node = self._open.get(handle)
        if not isinstance(node, File):
            raise mfusepy.FuseOSError(errno.EBADF)
        return node

    def _directory(self, handle: int) -> Directory:
        node = self._open.get(handle)
        if not isinstance(node, Directory):
            raise mfusepy.FuseOSError(errno.EBADF)
        return node

    def _node(self, path: str | None, handle: int | None) -> Node:
        if handle is not None and handle in self._open:
            return self._open[handle]
        if path is None:
            raise mfusepy.FuseOSError(errno.EBADF)
        return self._volume.find(path)


def command(volume: Volume, switch: Switch, served: Served, asked: dict[str, Any]) -> dict[str, Any]:
    """Does what one line asks for; the answer."""
    with switch.changed:
        match asked["do"]:
            case "cut":
                switch.left, switch.counts_names = asked["after"], asked["names"]
                if not switch.left and not switch.counts_names:
                    switch.state = CUT
            case "lose":
                switch.life += 1
                switch.state, switch.left = OFF, None
                switch.changed.notify_all()
                served.forget_handles()
                return asdict(volume.lose_power(random.Random(asked["seed"])))
            case "on":
                switch.state = ON
            case "lie":
                volume.keeps_flushes = False
            case "state":
                return {"state": switch.state, "operations": switch.operations, "flushes": switch.flushes}
            case unknown:
                return {"error": f"unknown command {unknown!r}"}
    return {}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(words: Sequence[str] | None = None) -> int:
    """Serves until standard input ends or somebody unmounts."""
    parser = argparse.ArgumentParser(prog="python -m tests.power.mount")
    parser.add_argument("directory")
    parser.add_argument("--flush-ms", type=float, default=0.0)
    arguments = parser.parse_args(words)
    volume, switch = Volume(), Switch()
    served = Served(volume, switch, arguments.flush_ms / 1000)

    def listen() -> None:
        for line in sys.stdin:
            _say(command(volume, switch, served, json.loads(line)))
        with switch.changed:
            switch.life += 1
            switch.state = OFF
            switch.changed.notify_all()
        undo = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.run([*undo, arguments.directory], check=False, stdout=sys.stderr)

    threading.Thread(target=listen, daemon=True).start()
    Mount(
        served,
        arguments.directory,
        foreground=True,
        fsname="power",
        direct_io=True,
        hard_remove=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
