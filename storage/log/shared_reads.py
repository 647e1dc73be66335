"""Caches recently read byte ranges of segment files, so that readers of the same records share one read.

Consumer groups that each read all of a topic fetch the same bytes within moments of one another. The first
one's read is kept as it is, a reference and no copy; the others get views of it. A range is found by any
position within it: a reader that begins in the middle gets the rest of it, and joins the readers before it.
Keys are (serial of the segment, position). A segment that is truncated, rewritten or recycled is another one,
with another serial, and only batches that were committed are read: a cached range is never out of date.
A reader alone gains nothing, and reads faster into memory that its last response has just given back: reads
are kept only while other readers fetch, within a few reads, bytes that had just been read. Bounded in number
and bytes; the oldest goes first, because readers of the same range advance together. A range that is dropped
lives on for as long as a response on its way holds a view of it. Used from any thread. Does not read files,
nor know where batches begin.
"""

from __future__ import annotations

import threading
from collections import deque

MIN_SHARED_BYTES = 128 << 10
"""Shorter reads cost about as much as keeping them would."""
MAX_SHARED = 8
"""Cached ranges: they are searched one by one, and suffice for readers that are not quite in step."""


class SharedReads:
    """See the module. `limit_bytes` 0 keeps nothing."""

    __slots__ = ("_kept", "_limit_bytes", "_lock", "_read", "_reads_to_keep", "hits", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._kept: dict[tuple[int, int], memoryview] = {}
        """In order of age."""
        self._read: deque[tuple[int, int, int]] = deque(maxlen=MAX_SHARED)
        """(serial, from, to) of the last reads, kept or not."""
        self._reads_to_keep = 0
        """The number of further reads that are cached although no other reader fetches the same bytes."""
        self.used_bytes = 0
        self.hits = 0

    def find(self, serial: int, position: int) -> memoryview | None:
        """Returns the kept bytes of a segment from a position on; None where that byte is not kept."""
        with self._lock:
            view = self._kept.get((serial, position))
            if view is None:
                for (owner, start), each in self._kept.items():
                    if owner == serial and start < position < start + len(each):
                        view = each[position - start :]
                        break
            if view is not None:
                self.hits += 1
                self._reads_to_keep = MAX_SHARED
            elif any(each[0] == serial and each[1] <= position < each[2] for each in self._read):
                self._reads_to_keep = MAX_SHARED
            return view

    def keep(self, serial: int, position: int, view: memoryview) -> None:
        """This was read from a position on: keep it if it is neither little nor too much, and if reads have
        lately been shared, or could have been."""
        length = len(view)
        if not MIN_SHARED_BYTES <= length <= self._limit_bytes:
            return
        key = serial, position
        with self._lock:
            self._read.append((serial, position, position + length))
            if self._reads_to_keep == 0:
                return
            self._reads_to_keep -= 1
            kept = self._kept
            if self._reads_to_keep == 0:
                kept.clear()
                self.used_bytes = 0
                return
            former = kept.get(key)
            if former is not None:
                if len(former) >= length:
                    return
                self._drop(key)
            while len(kept) >= MAX_SHARED or self.used_bytes + length > self._limit_bytes:
                self._drop(next(iter(kept)))
            kept[key] = view
            self.used_bytes += length

    def _drop(self, key: tuple[int, int]) -> None:
        self.used_bytes -= len(self._kept.pop(key))
