"""Frames to append in tests: small, valid, and different from one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crc32c import crc32c

from lockstep.storage.log.format import BATCH_PREFIX, BATCH_PREFIX_BYTES
from lockstep.storage.log.frame_rewrite import BatchFilter, RewrittenBatch
from lockstep.storage.types import Buffer, DirectoryEntry, Frame, FrameKind


def batch(base_offset: int, body: bytes, leader_epoch: int = 0) -> bytes:
    """A payload with a valid batch prefix; storage takes what follows it as it is."""
    length = BATCH_PREFIX_BYTES + len(body)
    return BATCH_PREFIX.pack(base_offset, length - 12, leader_epoch, 2, crc32c(body)) + body


def entry(partition: int, payload: bytes, records: int, timestamp: int) -> DirectoryEntry:
    base, _, leader_epoch, _, crc = BATCH_PREFIX.unpack_from(payload)
    return DirectoryEntry(partition, base, records, len(payload), crc, leader_epoch, timestamp)


class FrameMaker:
    """Makes frames that follow one another, as a leader would."""

    def __init__(self) -> None:
        self.term = 1
        self.index = 0
        self.next_lsn = 1
        self.time_ms = 1_000
        self.next_offsets: dict[int, int] = {}

    def copy(self) -> FrameMaker:
        other = FrameMaker()
        other.term, other.index, other.next_lsn = self.term, self.index, self.next_lsn
        other.time_ms, other.next_offsets = self.time_ms, dict(self.next_offsets)
        return other

    def follow(self, frame: Frame) -> None:
        """Go on after this frame."""
        self.term, self.index, self.time_ms = frame.term, frame.index, frame.time_ms
        self.next_lsn = frame.first_lsn + frame.record_count
        for each in frame.directory:
            self.next_offsets[each.partition] = each.base_offset + each.record_count

    def data(self, *batches: tuple[int, int, bytes]) -> Frame:
        """A data frame of (partition, record count, body) batches."""
        directory: list[DirectoryEntry] = []
        payloads: list[Buffer] = []
        self.time_ms += 1
        for partition, records, body in batches:
            base = self.next_offsets.get(partition, 0)
            payload = batch(base, body)
            directory.append(entry(partition, payload, records, self.time_ms))
            payloads.append(payload)
            self.next_offsets[partition] = base + records
        return self._frame(FrameKind.DATA, directory, payloads)

    def no_op(self) -> Frame:
        return self._frame(FrameKind.NO_OP, [], [])

    def _frame(self, kind: FrameKind, directory: list[DirectoryEntry], payloads: list[Buffer]) -> Frame:
        records = sum(each.record_count for each in directory)
        self.index += 1
        frame = Frame(kind, self.term, self.index, self.next_lsn, self.time_ms, directory, payloads, records)
        self.next_lsn += records
        return frame


def half(e: DirectoryEntry, payload: Buffer) -> RewrittenBatch:
    """Half of a batch, in its place."""
    body = bytes(payload)[BATCH_PREFIX_BYTES : BATCH_PREFIX_BYTES + (len(payload) - BATCH_PREFIX_BYTES) // 2]
    return RewrittenBatch(batch(e.base_offset, body, e.leader_epoch), e.max_timestamp - 1)


def by_turns(turn: int) -> BatchFilter:
    """Takes away one batch of three, and half of another, by their offsets."""
    said = (True, False, None)

    def judge(e: DirectoryEntry, payload: Buffer) -> RewrittenBatch | bool:
        word = said[(e.base_offset + turn) % 3]
        return half(e, payload) if word is None else word

    return judge


def whole_batches(keep: Callable[[DirectoryEntry], bool]) -> BatchFilter:
    """Keeps or takes away batches as a whole, by what the directory says of them."""
    return lambda entry, payload: keep(entry)


def same(a: Frame, b: Frame) -> bool:
    """Equal in everything that is on the disk."""
    return (
        (a.kind, a.term, a.index, a.first_lsn, a.time_ms, a.record_count, a.directory)
        == (b.kind, b.term, b.index, b.first_lsn, b.time_ms, b.record_count, b.directory)
    ) and [bytes(p) for p in a.payloads] == [bytes(p) for p in b.payloads]


def whole(buffers: Sequence[Buffer]) -> bytes:
    """What a read gave, in one piece."""
    return b"".join(bytes(b) for b in buffers)
