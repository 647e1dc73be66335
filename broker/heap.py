"""What the C library's heap keeps of memory that was freed, and when the system gets it back (glibc only).

Elsewhere, as on musl or macOS, every function here does nothing. Does not: measure, or know who allocates.
Reasons and measurements: docs/decisions/0049-closed-partitions-cost-nothing.md.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

LARGE_BLOCK_BYTES: Final = (4 << 20) + (64 << 10)
"""Above an ordinary producer's largest request (1 MiB) and above one read of the log (4 MiB), which are worth
keeping in the heap: fresh pages for each read cost more than twice the rest of a catch-up read."""
ARENAS: Final = 2
"""One for the event loop's thread, one for all others. By default each thread gets a heap of its own, up to
eight for each core, and none of them is small again after a peak. The interpreter lets one thread run at a
time, so that they hardly ever wait for each other's heap."""
ARENA_VARIABLE: Final = "MALLOC_ARENA_MAX"
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def keep_large_blocks_apart() -> None:
    """Take large blocks from the system and return them at once.

    By default the first large block that is freed raises that threshold up to 32 MiB, and the next ones
    leave holes in the heap: 15 to 20 MiB stayed resident after a few frames of megabytes.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        set_option(_TRIM_THRESHOLD, 2 * LARGE_BLOCK_BYTES)


def share_arenas() -> None:
    """Have all threads but the first share one heap. Only before they are started, and only where the
    environment does not set a number of heaps itself."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None and ARENA_VARIABLE not in os.environ:
        set_option(_ARENA_MAX, ARENAS)


def give_memory_back() -> None:
    """Return free pages to the system. Holds up who allocates meanwhile: 2 ms for each MiB returned."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
