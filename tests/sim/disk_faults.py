"""What is wrong with a node's disk at the moment: asked by `Disk` before each operation, set by the nemesis.

Owns how long flushes take, which operation fails next and with which error, and after how many operations the
node stops in the middle. Everything is counted in `injected`, so that a node's end can be traced to a fault.
"""

from __future__ import annotations

import errno
from random import Random

MUTATING = frozenset({"write", "flush", "create", "rename", "unlink", "flush_dir", "allocate"})
TYPICAL_FREE_BYTES = 1 << 40


class DiskFaults:
    """See the module. `flush_us` is the usual cost of a flush."""

    __slots__ = (
        "_flush_us",
        "_random",
        "armed_cut",
        "cold_reads",
        "cut",
        "failing",
        "free_bytes",
        "injected",
        "read_errors",
        "short_writes",
        "slowness",
        "stale_cache",
        "stall_us",
    )

    def __init__(self, random: Random, flush_us: int, cold_reads: float) -> None:
        self._random = random
        self._flush_us = flush_us
        self.cold_reads = cold_reads
        """Share of reads that find nothing in the page cache."""
        self.slowness = 1
        self.stall_us = 0
        """What the next flush takes on top."""
        self.failing: dict[str, int] = {}
        """Operation to how many of them from now on fail with EIO."""
        self.read_errors = 0.0
        """Share of reads that fail."""
        self.short_writes = 0.0
        """Share of writes that take fewer bytes than they were given."""
        self.free_bytes = TYPICAL_FREE_BYTES
        self.stale_cache = False
        """After a failed flush the page cache still shows what the disk does not have."""
        self.armed_cut = 0
        """The node stops before this many more changing operations are done; 0: not armed."""
        self.cut: BaseException | None = None
        """What to raise then."""
        self.injected: list[str] = []
        """Faults that this life of the node has met."""

    def before(self, operation: str, name: str, used: int, growth: int) -> BaseException | None:
        """The error of an operation about to be done, or None."""
        if self.armed_cut and operation in MUTATING:
            self.armed_cut -= 1
            if self.armed_cut == 0:
                return self.cut
        left = self.failing.get(operation, 0)
        if left:
            self.failing[operation] = left - 1
            return self._fail(operation, name)
        if self.read_errors and operation == "read" and self._random.random() < self.read_errors:
            return self._fail(operation, name)
        if growth and used + growth > self.free_bytes:
            self.injected.append(f"no space for {name}")
            return OSError(errno.ENOSPC, "No space left on device")
        return None

    def _fail(self, operation: str, name: str) -> OSError:
        self.injected.append(f"{operation} {name}")
        return OSError(errno.EIO, "Input/output error")

    def flush_us(self) -> int:
        """What a flush takes now: most near the usual, some a few times that."""
        return int(self._flush_us * (0.5 + self._random.expovariate(2.0)))

    def stalled(self, operation: str) -> int:
        """What this operation takes on top, however slow the disk is."""
        if not self.stall_us or operation != "flush":
            return 0
        stall, self.stall_us = self.stall_us, 0
        return stall

    def write_taken(self, length: int) -> int:
        if self.short_writes and length > 1 and self._random.random() < self.short_writes:
            return self._random.randrange(1, length)
        return length

    def not_cached(self) -> bool:
        return self.cold_reads > 0 and self._random.random() < self.cold_reads

    def heal_space(self) -> None:
        self.free_bytes = TYPICAL_FREE_BYTES

    def heal(self) -> None:
        """Nothing is wrong from now on. An armed cut is disarmed."""
        self.slowness = 1
        self.stall_us = 0
        self.failing.clear()
        self.read_errors = self.short_writes = 0.0
        self.heal_space()
        self.armed_cut = 0
