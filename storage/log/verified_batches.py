"""A cache of the batches of the log files that were verified lately: the next reader skips their checksum.

An entry is a range of offsets of a partition in a segment, all of whole batches, with the file's modification
time at the read. It is valid for `TTL_SECONDS` while that time is unchanged; all entries of a partition in a
segment are dropped when a read there had to go to the disk. So a write to the file invalidates them at once,
and a page that the kernel dropped and read again with other content is trusted for at most the TTL
(decision 45).
Bounded in owners and in ranges of each; an owner is a partition in a segment, keyed as in `shared_reads`.
Does not: read files, compute checksums, or read a clock. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

TTL_SECONDS: Final = 60.0
MERGE_SECONDS: Final = 5.0
"""A range is merged with an overlapping or adjacent one that was verified at most so long before; the result
counts as verified when the older one was."""
MAX_OWNERS: Final = 4096
"""LIMIT. The least recently verified owner is evicted."""
MAX_RANGES: Final = 16
"""LIMIT. Ranges of one owner; the oldest is evicted."""

Range = tuple[int, int, int, float]
"""First offset, the one after the last, the file's mtime in ns, and when it was verified in clock seconds."""


class VerifiedRangesCache:
    """See the module. `modified` is a file's mtime in ns, `now` the seconds of a monotonic clock."""

    __slots__ = ("_lock", "_ranges")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranges: OrderedDict[int, list[Range]] = OrderedDict()

    def has(self, owner: int, first: int, last: int, modified: int, now: float) -> bool:
        """Returns whether offsets [first, last) were verified lately and the file has not been written to
        since."""
        for begin, end, at_modified, at in self._ranges.get(owner, ()):
            if begin <= first and last <= end:
                return at_modified == modified and now - at < TTL_SECONDS
        return False

    def note(self, owner: int, first: int, last: int, modified: int, now: float) -> None:
        """Add verified offsets [first, last). `modified` must have been taken before they were read."""
        with self._lock:
            kept: list[Range] = []
            at = now
            for each in self._ranges.pop(owner, ()):
                begin, end, at_modified, verified = each
                if at_modified != modified or now - verified >= TTL_SECONDS:
                    continue
                if begin <= last and first <= end and now - verified < MERGE_SECONDS:
                    first, last, at = min(first, begin), max(last, end), min(at, verified)
                elif not (first <= begin and end <= last):
                    kept.append(each)
            kept.append((first, last, modified, at))
            self._ranges[owner] = kept[-MAX_RANGES:]
            if len(self._ranges) > MAX_OWNERS:
                self._ranges.popitem(last=False)

    def forget(self, owner: int) -> None:
        """Drop the owner's ranges: a read of it had to go to the disk."""
        with self._lock:
            self._ranges.pop(owner, None)
