"""Settings of the C library's heap, and the return of its free pages to the system (glibc only).

On other C libraries, such as musl or macOS, every function here does nothing. Does not: measure memory.
Reasons and measurements: docs/decisions/0049-closed-partitions-cost-nothing.md.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

LARGE_BLOCK_BYTES: Final = (4 << 20) + (64 << 10)
"""Above an ordinary producer's largest request (1 MiB) and above one read of the log (4 MiB): these buffers
are reused from the heap, as fresh pages for each read cost more than twice the rest of a catch-up read."""
ARENAS: Final = 2
"""One for the event loop's thread, one for all others. By default each thread gets an arena of its own, up to
eight for each core, and arenas do not shrink after a peak. The interpreter runs one thread at a time, so
threads hardly ever wait for each other's arena."""
ARENA_VARIABLE: Final = "MALLOC_ARENA_MAX"
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def keep_large_blocks_apart() -> None:
    """Fix M_MMAP_THRESHOLD, so that larger blocks come from the system and return to it when they are freed.

    By default the first large block that is freed raises the threshold, up to 32 MiB, and the next ones leave
    holes in the heap: 15 to 20 MiB stayed resident after a few frames of megabytes.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        set_option(_TRIM_THRESHOLD, 2 * LARGE_BLOCK_BYTES)


def share_arenas() -> None:
    """Have all threads but the first share one arena, unless the environment sets their number. Call it
    before any thread is started."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None and ARENA_VARIABLE not in os.environ:
        set_option(_ARENA_MAX, ARENAS)


def trim_heap() -> None:
    """Returns free pages of the heap to the system. Blocks allocating threads for 2 ms per MiB returned."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
