"""Counting what reached the device: flushes and written bytes of the disk under a directory.

Owns: which block device holds a directory, and its counters from /proc/diskstats (flush requests are field
19, milliseconds spent in them field 20; kernel 5.5 or newer).
Invariant: durability is proven per block of work. In a closed loop at most `max_outstanding` writes can be
acknowledged by one flush, so a block of flushed writes shows at least writes / max_outstanding flushes.
Does not know: whether the device itself makes flushed data durable. The counters are the whole machine's, so
other work on the same disk adds to them: measure on a quiet machine.
"""

from __future__ import annotations

import os
from pathlib import Path

_SECTOR_BYTES = 512
_FLUSH_FIELD = 18
PROOF_SLACK = 0.95
"""Requests around the edges of a block may be flushed outside of it."""


class NoBlockDevice(RuntimeError):
    """The directory is not on a disk whose flushes can be counted (tmpfs, overlay): nothing can be proven."""


class DeviceCounters:
    """One reading, or the difference of two."""

    __slots__ = ("flush_ms", "flushes", "write_bytes", "writes")

    def __init__(self, writes: int, write_bytes: int, flushes: int, flush_ms: int) -> None:
        self.writes = writes
        self.write_bytes = write_bytes
        self.flushes = flushes
        self.flush_ms = flush_ms

    def since(self, earlier: DeviceCounters) -> DeviceCounters:
        return DeviceCounters(
            self.writes - earlier.writes,
            self.write_bytes - earlier.write_bytes,
            self.flushes - earlier.flushes,
            self.flush_ms - earlier.flush_ms,
        )

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


def device_of(directory: Path) -> str:
    """The name of the whole disk under `directory` ("vda"), as /proc/diskstats lists it. NoBlockDevice."""
    number = os.stat(directory).st_dev
    node = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not node.exists():
        raise NoBlockDevice(f"{directory} is not on a block device: its flushes cannot be counted")
    found = node.resolve()
    if (found / "partition").exists():
        found = found.parent
    return found.name


def parse_counters(diskstats: str, device: str) -> DeviceCounters:
    """The counters of `device` in the text of /proc/diskstats. NoBlockDevice when it has no flush fields."""
    for line in diskstats.splitlines():
        fields = line.split()
        if len(fields) > 2 and fields[2] == device:
            if len(fields) <= _FLUSH_FIELD + 1:
                raise NoBlockDevice(f"this kernel does not count the flushes of {device}")
            return DeviceCounters(
                int(fields[7]),
                int(fields[9]) * _SECTOR_BYTES,
                int(fields[_FLUSH_FIELD]),
                int(fields[_FLUSH_FIELD + 1]),
            )
    raise NoBlockDevice(f"/proc/diskstats does not list {device}")


def read_counters(device: str) -> DeviceCounters:
    """The counters of `device` now."""
    return parse_counters(Path("/proc/diskstats").read_text(), device)


def flushes_needed(acknowledged_writes: float, max_outstanding: float) -> float:
    """The fewest flushes that could have made so many writes durable before each was acknowledged."""
    return acknowledged_writes / max_outstanding * PROOF_SLACK


def queue_facts(device: str) -> dict[str, str]:
    """The kernel's facts about the disk: scheduler, write cache, forced unit access, model."""
    base = Path("/sys/block") / device
    facts = {"device": device}
    for name in ("queue/scheduler", "queue/write_cache", "queue/fua", "queue/rotational", "device/model"):
        path = base / name
        if path.exists():
            facts[name.rsplit("/", 1)[1]] = path.read_text().strip()
    return facts
