"""Batches of log files that were verified lately: so that who reads them again need not pay for it again.

A read compares each batch with its checksum. That is remembered as rows of a partition's index in a segment,
with the file's modification time, for `REMEMBERED_SECONDS` at most; what had to come from the disk since is
forgotten at once. So what is remembered never vouches for bytes that were written to the file since, and for
bytes that the system dropped and read again no longer than that (decision 45).
Bounded in owners and in ranges of each. Owners are keys of a partition in a segment, as `shared_reads`' are.
Does not: read, or compute checksums; know the time. For any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

REMEMBERED_SECONDS: Final = 60.0
NEIGHBOURS_SECONDS: Final = 5.0
"""Ranges that touch and were verified within so long of each other are one, as old as the older."""
MOST_OWNERS: Final = 4096
MOST_RANGES: Final = 16

Range = tuple[int, int, int, float]
"""First row, the row after the last, the file's modification time, when it was verified."""


class VerifiedRows:
    """See the module."""

    __slots__ = ("_lock", "_ranges")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranges: OrderedDict[int, list[Range]] = OrderedDict()

    def has(self, owner: int, first: int, last: int, modified: int, now: float) -> bool:
        """Whether rows [first, last) are known to be right in the file as it is."""
        for begin, end, at_modified, at in self._ranges.get(owner, ()):
            if begin <= first and last <= end:
                return at_modified == modified and now - at < REMEMBERED_SECONDS
        return False

    def note(self, owner: int, first: int, last: int, modified: int, now: float) -> None:
        """Rows [first, last) were verified; the file's modification time is that of before they were read."""
        with self._lock:
            kept: list[Range] = []
            at = now
            for each in self._ranges.pop(owner, ()):
                begin, end, at_modified, verified = each
                if at_modified != modified or now - verified >= REMEMBERED_SECONDS:
                    continue
                if begin <= last and first <= end and now - verified < NEIGHBOURS_SECONDS:
                    first, last, at = min(first, begin), max(last, end), min(at, verified)
                elif not (first <= begin and end <= last):
                    kept.append(each)
            kept.append((first, last, modified, at))
            self._ranges[owner] = kept[-MOST_RANGES:]
            if len(self._ranges) > MOST_OWNERS:
                self._ranges.popitem(last=False)

    def forget(self, owner: int) -> None:
        """Some of it had to come from the disk."""
        with self._lock:
            self._ranges.pop(owner, None)
