"""Makes the hypervisor give this machine its memory before anything is measured.

Owns: one pass over free memory. A page that a young virtual machine has never touched costs several times
one that it has; whichever broker came first would pay for it, and the other would not.
"""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
import time

import psutil

from compat_tests.targets import ROOT

_PIECE_BYTES = 256 << 20
_LEFT_BYTES = 2 << 30
"""For everything else that is alive meanwhile."""


def touched() -> dict[str, float]:
    """Touch free memory in a process of its own, and give it back.

    Returns: how much, and what a megabyte cost in the dearest piece and in the cheapest.
    """
    done = subprocess.run([sys.executable, "-m", __spec__.name], stdout=subprocess.PIPE, cwd=ROOT, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _touch() -> dict[str, float]:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    held: list[mmap.mmap] = []
    ms_per_mb: list[float] = []
    while psutil.virtual_memory().free > _LEFT_BYTES + _PIECE_BYTES:
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
