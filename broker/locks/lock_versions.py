"""By which offset each lock of a partition was last raised: exact for the newest, never too low for the rest.

Owns the memory: the newest `recent` locks are known exactly; of older ones only estimates stay, in an array
of fixed size that several hash functions look into. An estimate is the lowest of its cells: where others
have raised them all it is too high, and a batch is rejected that need not be; too low it never is. Nothing
is rejected wrongly if its writer has applied everything up to `horizon`, the newest version outside the
exact part. Pure.

Memory: at most 300 bytes for each of `recent`, and 8 for each of `cells`.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from struct import Struct
from typing import Final

HASH_BYTES: Final = 16
"""The size of the hash of a lock's name, keyed with the topic's id."""
RECENT: Final = 65_536
CELLS: Final = 1 << 20
"""A power of two: with four cells each, 10^6 old locks find all their cells taken nine times out of ten, 10^5
once in a hundred."""
_CELL_HASHES: Final = Struct(">4I")
_HEAD: Final = Struct(">qqqII")


class LockVersions:
    """The lock versions of one partition.

    Args:
        floor: what every lock counts as raised by.
        since: the metadata index at which a leader began to keep them (`lock_check`).
    """

    __slots__ = ("_cells", "_mask", "_most", "_recent", "floor", "horizon", "since")

    def __init__(self, floor: int, since: int = 0, recent: int = RECENT, cells: int = CELLS) -> None:
        self.floor = floor
        self.since = since
        self.horizon = -1
        self._most = recent
        self._mask = cells - 1
        self._recent: OrderedDict[bytes, int] = OrderedDict()
        self._cells: array[int] | None = None

    def of(self, lock: bytes) -> tuple[int, bool]:
        """(offset that raised it last, or more; whether that is exact). -1: no record has."""
        mark = self._recent.get(lock)
        if mark is not None:
            return mark, True
        cells, mark = self._cells, -1
        if cells is not None:
            mask = self._mask
            one, two, three, four = _CELL_HASHES.unpack(lock)
            mark = min(cells[one & mask], cells[two & mask], cells[three & mask], cells[four & mask])
        mark = max(mark, self.floor)
        return mark, mark < 0

    def raise_lock(self, lock: bytes, offset: int) -> None:
        """Records that the batch that ends at this offset, which is higher than any before, raised it."""
        recent = self._recent
        recent.pop(lock, None)
        recent[lock] = offset
        if len(recent) > self._most:
            self._forget(*recent.popitem(last=False))

    def _forget(self, lock: bytes, mark: int) -> None:
        """Moves a lock's version to the cells: versions come in rising order, so no cell is lowered."""
        cells = self._cells
        if cells is None:
            cells = self._cells = array("q", [-1]) * (self._mask + 1)
        for cell_hash in _CELL_HASHES.unpack(lock):
            cells[cell_hash & self._mask] = mark
        self.horizon = mark

    def snapshot(self) -> bytes:
        """The whole state, for `restore`."""
        recent, cells = self._recent, self._cells
        packed_cells = b"" if cells is None else _pack(cells)
        head = _HEAD.pack(
            self.floor, self.since, self.horizon, len(recent), self._mask + 1 if packed_cells else 0
        )
        return head + b"".join(recent) + _pack(array("q", recent.values())) + packed_cells


def restore(data: bytes, recent: int = RECENT, cells: int = CELLS) -> LockVersions:
    """Restores a snapshot. Where it has another number of cells, their highest offset becomes the floor."""
    floor, since, horizon, count, had_cells = _HEAD.unpack_from(data)
    marks = LockVersions(floor, since, recent, cells)
    marks.horizon = horizon
    offsets_at = _HEAD.size + count * HASH_BYTES
    end = offsets_at + count * 8
    if had_cells == cells:
        marks._cells = _unpack(data[end:])
    elif had_cells:
        marks.floor = max(floor, horizon)
    for place, offset in enumerate(_unpack(data[offsets_at:end])):
        at = _HEAD.size + place * HASH_BYTES
        marks.raise_lock(data[at : at + HASH_BYTES], offset)
    return marks


def _pack(numbers: array[int]) -> bytes:
    """Eight bytes each, big-endian."""
    if sys.byteorder == "little":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _unpack(data: bytes) -> array[int]:
    numbers = array("q", data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
