"""Keeps free memory in the page cache while brokers are measured: a machine that runs has it there.

Owns: a process that maps a file of holes, page after page of the cache, and the wait for calm after it was
begun. A hypervisor takes back what a virtual machine frees, at once; the first use of a page after that costs
some 2.7 ms a megabyte, later ones 0.3. A broker that writes into free memory is bound by that, at some 300
MB/s, and how much of it there is depends on who was measured before. Clean pages of the cache are the
machine's own: the kernel reuses them at once.

Mapped, or a host that looks for unused pages takes them; and marked as cold, so that they go first.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from bench.exit_status import log_progress
from bench.machine.device import NoBlockDevice, device_of
from bench.machine.pauses import await_calm
from compat_tests.targets import ROOT

Figures = dict[str, float]

PIECE_BYTES: Final = 256 << 20
LEFT_BYTES: Final = 512 << 20
"""For everything else that is alive; with less the kernel begins to take pages before anybody needs them."""
TIMEOUT_S: Final = 180.0
"""On a large machine the rest stays as it is."""
_MADV_COLD: Final = 20
_CGROUP: Final = Path("/sys/fs/cgroup")


class Holder:
    """A process that maps the file; it ends when this process closes its input, or ends."""

    def __init__(self, parent: Path, left_bytes: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(parent), str(left_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,  # an interrupt is for the measuring process
        )
        self.figures: Figures = {}
        """Like `kept`'s."""

    def fill(self) -> Figures:
        """Like `FileOfHoles.fill`. OSError, ValueError where the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("fill\n")
        self._process.stdin.flush()
        found: Figures = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> int:
        """Give everything back; the exit status."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait()


_holders: list[Holder] = []
"""The one that there is, if any."""


def kept(parent: Path, left_bytes: int = LEFT_BYTES) -> Figures:
    """Begin to keep free memory, but `left_bytes`, in the cache of a file in `parent`, for as long as this
    process lives; then wait until the machine is calm: its hypervisor may stop it for tenths of a second.

    Returns: how much, what a megabyte cost in the dearest piece and in the cheapest, and how long the calm
    took to come; nothing where it could not be done.
    """
    if _holders:
        keep_again()
        return _holders[0].figures if _holders else {}
    try:
        device_of(parent)
    except NoBlockDevice:
        return {}  # the cache of such a file is no cache; the measurement reports that, too
    log_progress("filling the page cache, up to three minutes, so that no broker is the first to use memory")
    _holders.append(Holder(parent, left_bytes))
    found = keep_again()
    if found:
        log_progress("waiting until the machine stands still no more, up to two minutes")
        _holders[0].figures = {**found, "calm_after_s": round(await_calm(), 1)}
    return _holders[0].figures if _holders else {}


def keep_again() -> Figures:
    """After files were removed: the same for what became free, before another process takes it. Nothing where
    nothing is kept."""
    if not _holders:
        return {}
    try:
        return _holders[0].fill()
    except (OSError, ValueError):
        log_progress("FREE MEMORY IS KEPT NO MORE, its process has ended: from here on memory is as it comes")
        let_go()
        return {}


def let_go() -> None:
    """Give back what is kept: who is started now keeps it by itself, or needs it."""
    while _holders:
        _holders.pop().end()


class FileOfHoles:
    """Pages of the page cache without a byte on the disk.

    Args:
        parent: a directory on a disk.
        left_bytes: what is left free.
    """

    def __init__(self, parent: Path, left_bytes: int = LEFT_BYTES) -> None:
        self._left_bytes = left_bytes
        self._fd, name = tempfile.mkstemp(dir=parent)
        os.unlink(name)
        self._end = 0
        self._mapped: list[mmap.mmap] = []

    def fill(self, free_bytes: Callable[[], int], piece_bytes: int = PIECE_BYTES) -> Figures:
        """More of them, until no more than that and a piece is free; or more of them make no less free, as
        where a container has a limit that is not seen here; or the requesting process has ended."""
        pieces: list[float] = []
        until, parent, free = time.monotonic() + TIMEOUT_S, os.getppid(), free_bytes()
        while free > self._left_bytes + piece_bytes and time.monotonic() < until and os.getppid() == parent:
            began = time.perf_counter()
            self._map(piece_bytes)
            pieces.append((time.perf_counter() - began) * 1e3 / (piece_bytes / 1e6))
            before, free = free, free_bytes()
            if before - free < piece_bytes / 2:
                break
        return {
            "gb": round(len(pieces) * piece_bytes / 1e9, 1),
            "ms_per_mb_highest": round(max(pieces, default=0.0), 3),
            "ms_per_mb_lowest": round(min(pieces, default=0.0), 3),
        }

    def _map(self, size: int) -> None:
        start, self._end = self._end, self._end + size
        os.ftruncate(self._fd, self._end)
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        mapped = mmap.mmap(self._fd, size, flags, mmap.PROT_READ, offset=start)
        with contextlib.suppress(OSError):  # kernels before 5.4
            mapped.madvise(_MADV_COLD)
        self._mapped.append(mapped)


def free_memory(cgroup: Path = _CGROUP) -> int:
    """Bytes that are free, of the machine or of what this container may still have."""
    free = int(psutil.virtual_memory().free)
    try:
        most = int((cgroup / "memory.max").read_text())
        return min(free, most - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError):  # no such limit
        return free


if __name__ == "__main__":
    holes = FileOfHoles(Path(sys.argv[1]), int(sys.argv[2]))
    for _ in sys.stdin:
        print(json.dumps(holes.fill(free_memory)), flush=True)
