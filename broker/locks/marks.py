"""By which offset each lock of a partition was last raised: exact for the newest, never too low for the rest.

Owns the memory: the newest `recent` locks are known exactly; of older ones only estimates stay, in an array
of fixed size that several hash functions look into. An estimate is the lowest of its cells: where others have
raised them all it is too high, and somebody is refused who need not be; too low it never is. Nobody is
refused wrongly who has applied everything up to `horizon`, the newest mark that left the exact part. Pure.

Memory: at most 300 bytes for each of `recent`, and 8 for each of `cells`.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections import OrderedDict
from struct import Struct
from typing import Final

HASH_BYTES: Final = 16
"""Of a lock's name, keyed with the topic's id."""
RECENT: Final = 65_536
CELLS: Final = 1 << 20
"""A power of two: with four looks each, 10^6 old locks find all their cells taken nine times out of ten, 10^5
once in a hundred."""
_LOOKS: Final = Struct(">4I")
_HEAD: Final = Struct(">qqII")
_MARK: Final = Struct(f">{HASH_BYTES}sq")


class Marks:
    """The marks of one partition. Args: floor: what every lock counts as raised by."""

    __slots__ = ("_cells", "_mask", "_most", "_recent", "floor", "horizon")

    def __init__(self, floor: int, recent: int = RECENT, cells: int = CELLS) -> None:
        self.floor = floor
        self.horizon = -1
        self._most = recent
        self._mask = cells - 1
        self._recent: OrderedDict[bytes, int] = OrderedDict()
        self._cells: array[int] | None = None

    def of(self, lock: bytes) -> tuple[int, bool]:
        """(offset that raised it last, or more; whether that is exact). -1: nobody has."""
        mark = self._recent.get(lock)
        if mark is not None:
            return mark, True
        cells, mark = self._cells, -1
        if cells is not None:
            mask = self._mask
            one, two, three, four = _LOOKS.unpack(lock)
            mark = min(cells[one & mask], cells[two & mask], cells[three & mask], cells[four & mask])
        mark = max(mark, self.floor)
        return mark, mark < 0

    def raised(self, lock: bytes, offset: int) -> None:
        """It was raised by the batch that ends at this offset, which is higher than any before."""
        recent = self._recent
        recent.pop(lock, None)
        recent[lock] = offset
        if len(recent) > self._most:
            self._forget(*recent.popitem(last=False))

    def _forget(self, lock: bytes, mark: int) -> None:
        """Marks come here in rising order: a cell is never lowered."""
        cells = self._cells
        if cells is None:
            cells = self._cells = array("q", [-1]) * (self._mask + 1)
        for look in _LOOKS.unpack(lock):
            cells[look & self._mask] = mark
        self.horizon = mark

    def snapshot(self) -> bytes:
        """`restored` gives an equal state."""
        recent = b"".join([_MARK.pack(lock, mark) for lock, mark in self._recent.items()])
        packed = b""
        if self._cells is not None:
            cells = array("q", self._cells)
            if sys.byteorder == "little":
                cells.byteswap()
            packed = zlib.compress(cells.tobytes(), 1)
        head = _HEAD.pack(self.floor, self.horizon, len(self._recent), self._mask + 1 if packed else 0)
        return head + recent + packed


def restored(data: bytes, recent: int = RECENT, cells: int = CELLS) -> Marks:
    """From a snapshot. Where it has another number of cells, what they knew becomes the floor."""
    floor, horizon, count, had_cells = _HEAD.unpack_from(data)
    marks = Marks(floor, recent, cells)
    marks.horizon = horizon
    end = _HEAD.size + count * _MARK.size
    if had_cells == cells:
        known = array("q", zlib.decompress(data[end:]))
        if sys.byteorder == "little":
            known.byteswap()
        marks._cells = known
    elif had_cells:
        marks.floor = max(floor, horizon)
    for lock, mark in _MARK.iter_unpack(data[_HEAD.size : end]):
        marks.raised(lock, mark)
    return marks
