"""Makes the hypervisor give this machine its memory before anything is measured.

Owns: one pass over free memory, and the wait for calm after it. A page that a young virtual machine has never
touched costs several times one that it has; whichever broker came first would pay for it, and the other would
not.
"""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
import time
from pathlib import Path

import psutil

from bench.pauses import await_calm
from bench.progress import say
from compat_tests.targets import ROOT

_PIECE_BYTES = 256 << 20
_LEFT_BYTES = 2 << 30
"""For everything else that is alive meanwhile."""
_PATIENCE_S = 180.0
"""On a large machine the rest stays as it is."""
_CGROUP = Path("/sys/fs/cgroup")


def touched() -> dict[str, float]:
    """Touch free memory in a process of its own, and give it back; then wait until the machine is calm, as
    the hypervisor, which may take some of it back, stops it for tenths of a second.

    Returns: how much, what a megabyte cost in the dearest piece and in the cheapest, and how long the calm
    took to come; nothing where it could not be done.
    """
    say("touching free memory once, up to three minutes, so that its first use does not count for a broker")
    command = [sys.executable, "-m", __spec__.name]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=False)
    found: dict[str, float] = json.loads(done.stdout) if done.returncode == 0 else {}
    if found:
        say("waiting until the machine stands still no more, up to two minutes")
    return {**found, "calm_after_s": round(await_calm(), 1)} if found else {}


def _free_bytes(cgroup: Path = _CGROUP) -> int:
    """Of the machine, or of what this container may still have."""
    free = int(psutil.virtual_memory().free)
    try:
        most = int((cgroup / "memory.max").read_text())
        return min(free, most - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError):  # no such limit
        return free


def _touch() -> dict[str, float]:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    held: list[mmap.mmap] = []
    ms_per_mb: list[float] = []
    until = time.monotonic() + _PATIENCE_S
    while _free_bytes() > _LEFT_BYTES + _PIECE_BYTES and time.monotonic() < until:
        began = time.perf_counter()
        held.append(mmap.mmap(-1, _PIECE_BYTES, flags=flags))
        ms_per_mb.append((time.perf_counter() - began) * 1e3 / (_PIECE_BYTES / 1e6))
    return {
        "gb": round(len(held) * _PIECE_BYTES / 1e9, 1),
        "ms_per_mb_highest": round(max(ms_per_mb, default=0.0), 3),
        "ms_per_mb_lowest": round(min(ms_per_mb, default=0.0), 3),
    }


if __name__ == "__main__":
    print(json.dumps(_touch()))
