"""The `state` file: hard state and the log's own small state, in two slots that are both written and flushed.

One slot is overwritten and flushed, then the other, so a crash leaves at least one whole; the newer whole
slot wins. When `save` has returned both hold the same, so that one corrupt slot loses nothing. Saving starts
with the slot that does not hold the newest state. Neither slot whole is corruption (`CorruptLog`), never a
crash.

Beside the vote it keeps the log's generation and the position where it began (raised at each open and each
truncation, before anything is written there), the oldest segment that must exist, from which entry on the log
is whole, and how many joins of segments are finished.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from crc32c import crc32c

from lockstep.storage.log.file_system import FileSystem, unless_lost, write_all
from lockstep.storage.log.format import CRC, FORMAT, position_of
from lockstep.storage.types import CorruptLog, HardState, NewerFormat

STATE_NAME = "state"
SLOT_BYTES = 4096
_MAGIC = b"LSTKHARD"
_SLOT = struct.Struct(">8sIHHIQQqQQQQQQ")
"""magic, crc, format, flags, group id, save count, term, voted for, incarnation, generation,
generation start, oldest sequence, whole index, joins; the last two are 0 where an older version saved."""
JOINED_FORMAT = 2
"""A slot's format once segments were joined: versions that would not find those reject it by name."""
_CRC_FROM = 12


class LostState(CorruptLog):
    """Neither slot is whole."""


@dataclass(frozen=True, slots=True)
class LogState:
    """The content of the slots. `generation_start` is a position; below it everything was flushed. Until the
    entry `whole_index` is applied, records may be missing whose replacements come from a snapshot."""

    hard: HardState
    generation: int = 0
    generation_start: int = 0
    oldest_sequence: int = 1
    whole_index: int = 0
    joins: int = 0
    """The number of finished joins: the joined files with such numbers count, later ones do not."""


def encode_slot(group_id: int, saves: int, state: LogState) -> bytes:
    """One slot's bytes; `saves` counts the saves since the directory was made."""
    hard = state.hard
    body = _SLOT.pack(
        _MAGIC,
        0,
        JOINED_FORMAT if state.joins else FORMAT,
        0,
        group_id,
        saves,
        hard.term,
        hard.voted_for,
        hard.incarnation,
        state.generation,
        state.generation_start,
        state.oldest_sequence,
        state.whole_index,
        state.joins,
    )[_CRC_FROM:].ljust(SLOT_BYTES - _CRC_FROM, b"\0")
    return _MAGIC + CRC.pack(crc32c(body)) + body


def decode_slot(data: bytes) -> tuple[int, int, int, LogState] | None:
    """(format, group id, saves, state), or None for bytes that are no whole slot."""
    if len(data) < SLOT_BYTES:
        return None
    magic, crc, fmt, _, group_id, saves, term, voted_for, incarnation, *log = _SLOT.unpack_from(data)
    if magic != _MAGIC or crc != crc32c(data[_CRC_FROM:SLOT_BYTES]):
        return None
    return fmt, group_id, saves, LogState(HardState(term, voted_for, incarnation), *log)


class StateFile:
    """The open state file. `save` is not safe from two threads; the log holds a lock."""

    __slots__ = ("_fd", "_fs", "_group_id", "_newest_slot", "_saves", "damaged", "state")

    def __init__(self, fs: FileSystem, fd: int, group_id: int, slots: list[bytes], path: Path) -> None:
        self._fs = fs
        self._fd = fd
        self._group_id = group_id
        decoded = [decode_slot(slot) for slot in slots]
        whole = [(d[2], i, d) for i, d in enumerate(decoded) if d is not None]
        self.damaged = len(whole) < len(slots)
        """True where one slot did not verify: a crash during a save, or corruption; the other one served."""
        if not whole:
            raise LostState(f"{path}: neither slot of the hard state is whole")
        self._saves, self._newest_slot, (fmt, owner, _, self.state) = max(whole, key=lambda w: w[:2])
        if fmt > JOINED_FORMAT:
            raise NewerFormat(f"{path}: format {fmt}, this version knows up to {JOINED_FORMAT}")
        if owner != group_id:
            raise CorruptLog(f"{path}: belongs to log group {owner}, not {group_id}")

    @classmethod
    def create(cls, fs: FileSystem, directory: Path, group_id: int) -> StateFile:
        """Creates the first file of a new directory; it is complete before it gets its name."""
        temporary = directory / (STATE_NAME + ".tmp")
        slot = encode_slot(group_id, 1, LogState(HardState(), 0, position_of(1, 0), 1))
        fd = fs.open(temporary, create=True)
        try:
            write_all(fs, fd, [slot, slot], 0)
            fs.fdatasync(fd)
        except BaseException:
            fs.close(fd)
            raise
        fs.rename(temporary, directory / STATE_NAME)
        fs.fsync_dir(directory)
        return cls(fs, fd, group_id, [slot, slot], directory / STATE_NAME)

    @classmethod
    def open(cls, fs: FileSystem, directory: Path, group_id: int) -> StateFile | None:
        """The state of a directory, or None where it has none. CorruptLog, NewerFormat; OSError where the one
        slot that may be whole cannot be read: another time it may be."""
        path = directory / STATE_NAME
        try:
            fd = fs.open(path)
        except FileNotFoundError:
            return None
        try:
            unread: list[OSError] = []
            reads = [partial(fs.pread, fd, SLOT_BYTES, slot * SLOT_BYTES) for slot in (0, 1)]
            try:
                return cls(fs, fd, group_id, [unless_lost(read, unread) or b"" for read in reads], path)
            except LostState:
                if unread:
                    raise unread[0] from None
                raise
        except BaseException:
            fs.close(fd)
            raise

    @classmethod
    def in_place_of_lost(cls, fs: FileSystem, directory: Path, group_id: int, state: LogState) -> StateFile:
        """Opens the file of two corrupt slots, with this state; `save` writes it first."""
        path = directory / STATE_NAME
        slot = encode_slot(group_id, 1, state)
        found = cls(fs, fs.open(path), group_id, [slot, slot], path)
        found.damaged = True
        return found

    def save(self, state: LogState) -> None:
        """Writes both slots, and flushes each. After an OSError the new state must not be relied on."""
        saves = self._saves + 1
        slot = encode_slot(self._group_id, saves, state)
        first = 1 - self._newest_slot
        for each in (first, 1 - first):
            write_all(self._fs, self._fd, [slot], each * SLOT_BYTES)
            self._fs.fdatasync(self._fd)
            self._saves, self._newest_slot = saves, each
            self.state = state

    def close(self) -> None:
        self._fs.close(self._fd)
