"""The types that all of storage shares: frames, directory entries, buffers, errors.

Invariants: a `Frame` is one Raft entry and one group commit. Its LSNs are `first_lsn` to
`first_lsn + record_count - 1`; `NO_OP` and `CONFIGURATION` frames use an index and no LSN.
Source: LogStore paper (docs/sources.md), one frame in place of its two stores (decision 1).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, Protocol, runtime_checkable

Buffer = bytes | bytearray | memoryview

CONTROL_PARTITION = 0
"""The local id of the partition with a group's own entries (open, close, log starts)."""
LAST_OFFSET = (1 << 63) - 1
"""Above every offset that a record can have."""
NOTES_PARTITION = (1 << 32) - 1
"""A reserved local id for a frame's notes, whose bytes are dead once a checkpoint covers them."""

NO_PARTITION = -1
"""A reserved local id for damage that is in frames and in no batch."""
NO_SEGMENT = 0
"""A reserved sequence for missing records, which are in no segment."""


class FrameKind(IntEnum):
    """The purpose of a frame; the values are on disk."""

    DATA = 0
    NO_OP = 1
    CONFIGURATION = 2
    SKIP = 3


ENTRY: Final = struct.Struct(">IqIIIiqI")
"""partition, base offset, record count, length, batch CRC, leader epoch, max timestamp ms, flags."""
ENTRY_BYTES: Final = ENTRY.size

EntryFields = tuple[int, ...]
"""A directory entry as its eight numbers."""
Run = tuple[int, int, int, int, int, int, int, int]
"""Neighbouring batches of one partition in a frame: partition, base offset, next offset, number of batches,
bytes, leader epoch, newest timestamp ms, flags. Batches with flags are alone."""


class DirectoryEntry:
    """One record batch of a frame, as the frame's directory describes it."""

    __slots__ = (
        "base_offset",
        "crc",
        "flags",
        "leader_epoch",
        "length",
        "max_timestamp",
        "partition",
        "record_count",
    )

    def __init__(
        self,
        partition: int,
        base_offset: int,
        record_count: int,
        length: int,
        crc: int,
        leader_epoch: int,
        max_timestamp: int,
        flags: int = 0,
    ) -> None:
        self.partition = partition
        self.base_offset = base_offset
        self.record_count = record_count
        self.length = length
        self.crc = crc
        self.leader_epoch = leader_epoch
        self.max_timestamp = max_timestamp
        self.flags = flags

    @property
    def fields(self) -> EntryFields:
        """Its numbers, in the order of `ENTRY`."""
        return (
            self.partition,
            self.base_offset,
            self.record_count,
            self.length,
            self.crc,
            self.leader_epoch,
            self.max_timestamp,
            self.flags,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DirectoryEntry) and self.fields == other.fields

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "DirectoryEntry" + repr(self.fields)


class Frame:
    """One Raft entry: what the data log writes, replicates and replays as a whole.

    Its directory and payloads may be given as objects for each batch; or the directory as the numbers of its
    entries and the payloads as one buffer. `directory` and `payloads` then make the objects, which stay: not
    for a frame that is kept for followers, of which only `entries`, `batches` and `buffers` may be read.
    """

    __slots__ = (
        "_directory",
        "_entries",
        "_payloads",
        "body",
        "body_at",
        "buffer",
        "first_lsn",
        "head",
        "index",
        "kind",
        "record_count",
        "runs",
        "term",
        "time_ms",
        "total_bytes",
    )

    def __init__(
        self,
        kind: FrameKind,
        term: int,
        index: int,
        first_lsn: int,
        time_ms: int,
        directory: list[DirectoryEntry],
        payloads: list[Buffer],
        record_count: int,
        head: bytes | None = None,
    ) -> None:
        self.kind = kind
        self.term = term
        self.index = index
        self.first_lsn = first_lsn
        self.time_ms = time_ms
        self._directory: list[DirectoryEntry] | None = directory
        self._entries: list[EntryFields] | None = None
        self._payloads: list[Buffer] | None = payloads
        self.body: memoryview | None = None
        """All payloads one after the other, where they lie so."""
        self.buffer: memoryview | None = None
        """What `body` is a part of, from `body_at` on: the message in which the frame came, with others."""
        self.body_at = 0
        self.record_count = record_count
        self.head = head
        """Header and directory as they are written, equal on all replicas; None until a log wrote them."""
        self.total_bytes = 0
        """Its size in a segment; 0 until `frame_bytes` computes it."""
        self.runs: list[Run] | None = None
        """Its batches as `log.batch_runs.runs_of` groups them, once that was requested."""

    def pack(
        self,
        entries: list[EntryFields],
        buffer: memoryview | None = None,
        begin: int = 0,
        end: int | None = None,
    ) -> None:
        """Give it the numbers of its directory's entries instead of objects, and its payloads as a part of a
        buffer. For a frame that was made with empty lists, or with the payloads where there is no `buffer`.
        """
        self._directory, self._entries = None, entries
        if buffer is not None:
            self._payloads, self.buffer, self.body_at = None, buffer, begin
            self.body = buffer[begin:end]

    def forget_entries(self) -> None:
        """Free the entries of a frame that has its head, from which they are decoded on demand."""
        if self._directory is None:
            self._entries = None

    @property
    def batch_count(self) -> int:
        """The number of batches and notes in its directory."""
        if self._directory is not None:
            return len(self._directory)
        if self._entries is not None:
            return len(self._entries)
        assert self.head is not None
        return int.from_bytes(self.head[_BATCH_COUNT_AT : _BATCH_COUNT_AT + 4], "big")

    @property
    def entries(self) -> list[EntryFields]:
        """The directory as numbers; not to be changed."""
        if self._directory is not None:
            return [entry.fields for entry in self._directory]
        if self._entries is not None:
            return self._entries
        assert self.head is not None
        count = self.batch_count
        return list(ENTRY.iter_unpack(self.head[-ENTRY_BYTES * count :])) if count else []

    def batches(self) -> Iterator[tuple[EntryFields, Buffer]]:
        """Each batch: the numbers of its entry, and its bytes. Nothing of it stays in the frame."""
        body = self.body
        if body is None:
            yield from zip(self.entries, self.payloads, strict=True)
            return
        at = 0
        for fields in self.entries:
            end = at + fields[3]
            yield fields, body[at:end]
            at = end

    @property
    def directory(self) -> list[DirectoryEntry]:
        """One entry for each batch."""
        if self._directory is None:
            self._directory = [DirectoryEntry(*fields) for fields in self.entries]
            self._entries = None
        return self._directory

    @property
    def payloads(self) -> list[Buffer]:
        """The batches' bytes, one per directory entry, base offset and leader epoch already patched."""
        if self._payloads is None:
            assert self.body is not None
            self._payloads, at = [], 0
            for fields in self.entries:
                self._payloads.append(self.body[at : at + fields[3]])
                at += fields[3]
        return self._payloads

    @payloads.setter
    def payloads(self, payloads: list[Buffer]) -> None:
        self._payloads, self.body, self.buffer, self.body_at = payloads, None, None, 0

    @property
    def buffers(self) -> Sequence[Buffer]:
        """The batches' bytes, in as few buffers as there are."""
        return self.payloads if self.body is None else (self.body,)


_BATCH_COUNT_AT: Final = 48
"""Where a frame's header has the number of batches (docs/disk_format.md)."""


class HardState:
    """Term and vote; flushed in two slots before any response that depends on them."""

    __slots__ = ("incarnation", "term", "voted_for")

    def __init__(self, term: int = 0, voted_for: int = -1, incarnation: int = 0) -> None:
        self.term = term
        self.voted_for = voted_for
        self.incarnation = incarnation

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HardState) and (self.term, self.voted_for, self.incarnation) == (
            other.term,
            other.voted_for,
            other.incarnation,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"HardState(term={self.term}, voted_for={self.voted_for}, incarnation={self.incarnation})"


class Checkpoint:
    """State derived from the frames up to `index`, by section name; lets those frames be freed.

    `chain` is the header checksum of the frame at `index`, the seed of the next frame's.
    """

    __slots__ = ("chain", "index", "next_lsn", "sections", "term", "time_ms")

    def __init__(
        self, index: int, term: int, next_lsn: int, chain: int, time_ms: int, sections: dict[str, bytes]
    ) -> None:
        self.index = index
        self.term = term
        self.next_lsn = next_lsn
        self.chain = chain
        self.time_ms = time_ms
        self.sections = sections

    def without_sections(self) -> Checkpoint:
        """Returns only the position: the frame that it covers."""
        return Checkpoint(self.index, self.term, self.next_lsn, self.chain, self.time_ms, {})


class StateMachine(Protocol):
    """State derived from a group's batches and kept in its checkpoints."""

    def snapshot(self, time_ms: int) -> bytes:
        """The whole state as bytes; `restore(snapshot(t))` gives an equal state.

        `time_ms` is the leader time of the newest frame: what has expired by then may be left out.
        """

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot; `b""` is the empty state."""

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """Apply one batch, written at the leader's `time_ms`. Reads no clock.

        Tail machines also get a frame's notes, after its batches, as an entry of `NOTES_PARTITION`.
        """


@runtime_checkable
class RunMachine(Protocol):
    """A tail machine that also takes a run at once."""

    def replay_run(self, partition: int, payloads: Sequence[Buffer], time_ms: int) -> None:
        """Apply neighbouring batches whose directory entries have no flags, as `replay` would one by one.

        Args:
            payloads: the batches in their order; a buffer may hold several, one after the other.
        """


class StorageError(Exception):
    """Base of what storage raises for its callers to handle."""


class StorageFull(StorageError):
    """No room for this append; reads continue, and appends do once there is room again."""


class BatchTooLarge(StorageError):
    """No frame of this log can hold the batch."""


class Backlogged(StorageError):
    """More bytes wait for the disk or for a majority than the limit allows; try again."""


class WriteFailed(StorageError):
    """A file of the log could not be written, and the disk is not full; the log is as it was."""


class FlushFailed(StorageError):
    """A write or flush failed: what is on the disk is unknown, so the process must stop, never retry."""


class CorruptLog(StorageError):
    """Bytes that were once flushed do not verify: corruption, never a torn tail. Names file and position."""


class DamagedBatch(CorruptLog):
    """A batch of a log file does not verify, or the disk has lost it: [base_offset, next_offset) of a
    partition by local id. For a whole file, all that the file held of the partition."""

    def __init__(
        self, sequence: int, serial: int, partition: int, base_offset: int, next_offset: int, problem: str
    ) -> None:
        super().__init__(problem)
        self.sequence = sequence
        self.serial = serial
        """`Segment.serial`: the segment that was read, which may have been replaced since."""
        self.partition = partition
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.problem = problem


class NewerFormat(StorageError):
    """The directory was written by a newer format than this code knows."""


class OffsetOutOfRange(StorageError):
    """An offset below the log start or beyond the end."""


class FramesUnavailable(StorageError):
    """Frames that were freed, truncated or replaced; a member that needs them is sent a snapshot."""


class NotLeader(StorageError):
    """This node cannot append to the group now."""


class ReadResult:
    """Batches of one partition, whole and in offset order, ready to continue a socket.

    `buffers` are read-only in effect: they do not change after the append. `cold` is True where
    bytes must come from the disk first and `buffers` is empty.
    """

    __slots__ = ("buffers", "cold", "next_offset", "total_bytes")

    def __init__(
        self, buffers: Sequence[Buffer], total_bytes: int, cold: bool = False, next_offset: int = 0
    ) -> None:
        self.buffers = buffers
        self.total_bytes = total_bytes
        self.cold = cold
        self.next_offset = next_offset
        """The offset of the next read, where the limit of bytes or the end offset ended this one; else 0. Of
        a read in another thread than the log's own it may be too large."""
