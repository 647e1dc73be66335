"""The locks of a log group's partitions: raised with the batches that raise them, on every member alike.

A tail machine of its group: it follows the appended log through notes, which are in the frames of the batches
they describe, so that neither followers nor a restart open a batch. `take` notes what was appended here; a
checkpoint has all of it, so marks outlive the records that raised them. A partition is known from its first
batch as a topic with locks to its first one without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Final

from lockstep.broker.locks.lock_versions import CELLS, HASH_BYTES, RECENT, LockVersions, restore
from lockstep.storage.types import NOTES_PARTITION, Buffer, CorruptLog, DirectoryEntry, NewerFormat

SECTION: Final = "locks"
STATE_VERSION: Final = 1

BEGIN: Final = 1
"""From here on this partition's locks are kept; the offset is their floor, `LockVersions.since` follows."""
RAISE: Final = 2
"""The locks whose hashes follow are raised by the batch that ends at the offset."""
END: Final = 3
"""The partition's later batches have no notes: its topic has no locks any more."""
SINCE: Final = 4
"""A note that sets `LockVersions.since`."""

_NOTE: Final = Struct(">IBqI")
"""Partition, what, offset, bytes that follow."""
_SINCE: Final = Struct(">q")
_VERSION: Final = Struct(">H")
_PARTITION: Final = Struct(">II")


def begin(partition: int, floor: int, metadata_index: int) -> bytes:
    """The note of a beginning."""
    return _NOTE.pack(partition, BEGIN, floor, _SINCE.size) + _SINCE.pack(metadata_index)


def since(partition: int, metadata_index: int) -> bytes:
    """The note of a setting that was seen in newer metadata."""
    return _NOTE.pack(partition, SINCE, metadata_index, 0)


def raises(partition: int, offset: int, locks: Iterable[bytes]) -> bytes:
    """The note of what a batch raises, by hashes."""
    hashes = b"".join(locks)
    return _NOTE.pack(partition, RAISE, offset, len(hashes)) + hashes


def end(partition: int, offset: int) -> bytes:
    """The note of an end, at the offset of the batch that has no locks any more."""
    return _NOTE.pack(partition, END, offset, 0)


class LockTable:
    """The lock versions of each partition that has any, by local id."""

    def __init__(self, recent: int = RECENT, cells: int = CELLS) -> None:
        self._recent = recent
        self._cells = cells
        self.partitions: dict[int, LockVersions] = {}
        self.is_closed: Callable[[int], bool] = lambda local_id: False
        """Whether a partition is closed permanently: a replay may restore its locks here."""

    def take(self, notes: Buffer) -> None:
        """Applies the notes of a frame. Raises CorruptLog for malformed ones."""
        at = 0
        while at < len(notes):
            if len(notes) - at < _NOTE.size:
                raise CorruptLog("a note on locks that is cut short")
            local_id, what, offset, size = _NOTE.unpack_from(notes, at)
            at += _NOTE.size
            if size > len(notes) - at:
                raise CorruptLog("a note on locks that is cut short")
            if what == RAISE:
                marks = self.partitions.get(local_id)
                if marks is not None:  # it may have been closed since
                    for cell in range(at, at + size, HASH_BYTES):
                        marks.raise_lock(bytes(notes[cell : cell + HASH_BYTES]), offset)
            elif what == BEGIN and size == _SINCE.size:
                (metadata_index,) = _SINCE.unpack_from(notes, at)
                self.partitions[local_id] = LockVersions(offset, metadata_index, self._recent, self._cells)
            elif what == SINCE:
                if (marks := self.partitions.get(local_id)) is not None:
                    marks.since = offset
            elif what == END:
                self.partitions.pop(local_id, None)
            else:
                raise CorruptLog(f"a note on locks of an unknown kind {what}")
            at += size

    def forget(self, local_id: int) -> None:
        """The partition is gone."""
        self.partitions.pop(local_id, None)

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """Applies a batch of another leader, or a recovered one; see StateMachine."""
        if entry.partition == NOTES_PARTITION:
            self.take(payload)

    def replay_run(self, partition: int, payloads: Sequence[Buffer], time_ms: int) -> None:
        """See RunMachine: only notes matter here."""

    def snapshot(self, time_ms: int) -> bytes:
        """See StateMachine."""
        for local_id in [local_id for local_id in self.partitions if self.is_closed(local_id)]:
            del self.partitions[local_id]
        if not self.partitions:
            return b""
        pieces = [_VERSION.pack(STATE_VERSION)]
        for local_id, marks in self.partitions.items():
            data = marks.snapshot()
            pieces += [_PARTITION.pack(local_id, len(data)), data]
        return b"".join(pieces)

    def restore(self, data: bytes) -> None:
        """See StateMachine. Raises NewerFormat."""
        self.partitions = {}
        if not data:
            return
        (version,) = _VERSION.unpack_from(data)
        if version > STATE_VERSION:
            raise NewerFormat(f"locks of version {version}, known up to {STATE_VERSION}")
        at = _VERSION.size
        while at < len(data):
            local_id, size = _PARTITION.unpack_from(data, at)
            at += _PARTITION.size
            self.partitions[local_id] = restore(data[at : at + size], self._recent, self._cells)
            at += size
