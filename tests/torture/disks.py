"""Disks that get full or slow, one per node and only for the processes put on it.

Owns: `SmallDisk`, an ext4 image on a loop device which `fill()` fills to the last block and `free()` frees;
`Throttle`, a cgroup (v1, blkio) that limits how many writes per second its processes have on one device. A
node writes with pwrite and fdatasync, which the kernel does in the node's own context, so the limit holds
for it and for nobody else. Both need root; `NotPossible` says what is missing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

from tests.torture.network import NotPossible, command

_BLKIO = Path("/sys/fs/cgroup/blkio")
_LIMIT = "blkio.throttle.write_iops_device"


class SmallDisk:
    """A fresh file system of `size_bytes` at `directory`/mount."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        image = directory / "disk.img"
        self.mount_point = directory / "mount"
        self.mount_point.mkdir()
        self._ballast = self.mount_point / "ballast"
        with open(image, "wb") as file:
            file.truncate(size_bytes)
        command("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        command("mount", "-o", "loop", str(image), str(self.mount_point))

    def fill(self) -> None:
        """Not a block is left."""
        with open(self._ballast, "ab") as file:
            size = 1 << 30
            while size >= 4096:
                end = os.fstat(file.fileno()).st_size
                try:
                    os.posix_fallocate(file.fileno(), end, size)
                except OSError:
                    size //= 2

    def free(self) -> None:
        """What `fill` took is there again."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmounts; a process that has just been killed may hold it for a moment."""
        for _ in range(50):
            if not os.path.ismount(self.mount_point):
                return
            subprocess.run(["umount", str(self.mount_point)], capture_output=True, check=False)
            time.sleep(0.1)


class Throttle:
    """A cgroup of one node's processes."""

    def __init__(self, name: str) -> None:
        if not (_BLKIO / _LIMIT).exists():
            raise NotPossible("a slow disk needs the blkio controller of cgroup v1")
        self._group = _BLKIO / name
        self._devices: set[str] = set()
        try:
            self._group.mkdir(exist_ok=True)
        except OSError as error:
            raise NotPossible(f"a slow disk needs a cgroup of its own: {error}") from error

    def add(self, process_id: int) -> None:
        """A process and the threads it has or gets."""
        (self._group / "cgroup.procs").write_text(str(process_id))

    def limit(self, directory: Path, writes_per_s: int) -> None:
        """On the device that holds `directory`. 0 is no limit."""
        device = os.stat(directory).st_dev
        name = f"{os.major(device)}:{os.minor(device)}"
        (self._group / _LIMIT).write_text(f"{name} {writes_per_s}")
        self._devices.add(name)

    def free(self) -> None:
        for name in self._devices:
            (self._group / _LIMIT).write_text(f"{name} 0")

    def close(self) -> None:
        """Its processes must have ended; a killed one may take a moment."""
        with contextlib.suppress(OSError):
            self.free()
        for _ in range(50):
            try:
                self._group.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)
            else:
                return
