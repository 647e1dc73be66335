"""The 61-byte header of a record batch (magic 2), read, verified and patched without opening records.

Owns: the layout of the header, the CRC-32C rule, and the changes that a broker makes to a batch.

Invariants: the checksum covers everything from the attributes (byte 21) to the end, so base offset,
length, partition leader epoch, magic and the checksum itself lie outside it; `patch_whole` therefore needs no
new checksum and `set_log_append_time` does. Nothing here copies a batch or looks at a record.

Does not: decompress, decide whether a producer may send this batch (counts against offsets, control
batches, sequences: that is the broker's append path), or read the older magics 0 and 1.

Source: Kafka's DefaultRecordBatch, KIP-98 (producer fields), KIP-101 (leader epoch), KIP-534 (delete
horizon).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from crc32c import crc32c

Buffer = bytes | bytearray | memoryview

BATCH_HEADER_BYTES: Final = 61
LENGTH_PREFIX_BYTES: Final = 12
"""Base offset and length: what `batch_length` does not count."""

CURRENT_MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

HEADER: Final = Struct(">qiibIhiqqqhii")
_LEADER_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_INT32: Final = Struct(">i")
_PREFIX: Final = Struct(">qii")
"""Base offset, length, leader epoch."""
_INT64: Final = Struct(">q")
_UINT32: Final = Struct(">I")
_INT16: Final = Struct(">h")
_MAX_OFFSET_DELTA: Final = (1 << 31) - 1
_MIN_BATCH_LENGTH: Final = BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES


class MalformedBatch(ValueError):
    """Bytes that cannot be a record batch: too short, another magic, lengths or counts that cannot be."""


class CorruptBatch(MalformedBatch):
    """A batch of the right shape whose bytes are not those its producer checksummed."""


class BatchHeader:
    """One batch's header as numbers; a value of its own, not a view."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(
        self,
        base_offset: int,
        batch_length: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def total_bytes(self) -> int:
        """The whole batch, from the base offset to the last record's end."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def codec(self) -> int:
        """The compression codec's number; 5 to 7 mean nothing to Kafka."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        """True where `base_timestamp` is the time from which tombstones may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number; sequences wrap to 0 after 2**31 - 1, and -1 means none."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    def pack(self) -> bytes:
        """The 61 bytes again."""
        return HEADER.pack(*self._values())

    def _values(self) -> tuple[int, ...]:
        return (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchHeader) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"BatchHeader(base_offset={self.base_offset}, batch_length={self.batch_length}, "
            f"leader_epoch={self.leader_epoch}, magic={self.magic}, crc={self.crc:#010x}, "
            f"attributes={self.attributes:#06x}, last_offset_delta={self.last_offset_delta}, "
            f"base_timestamp={self.base_timestamp}, max_timestamp={self.max_timestamp}, "
            f"producer_id={self.producer_id}, producer_epoch={self.producer_epoch}, "
            f"base_sequence={self.base_sequence}, record_count={self.record_count})"
        )


def peek_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`, where only the header need be present (a scan that reads headers first).

    Raises MalformedBatch when 61 bytes are not there, the magic is not 2, or a length or count in it
    cannot be.
    """
    if pos < 0 or len(buf) - pos < BATCH_HEADER_BYTES:
        raise MalformedBatch(
            f"{len(buf) - pos} bytes at {pos}: a record batch header has {BATCH_HEADER_BYTES}"
        )
    header = BatchHeader(*HEADER.unpack_from(buf, pos))
    if header.magic != CURRENT_MAGIC:
        raise MalformedBatch(f"magic {header.magic} at {pos}: only record batches of magic 2 are accepted")
    if header.batch_length < _MIN_BATCH_LENGTH or header.last_offset_delta < 0 or header.record_count < 0:
        raise MalformedBatch(
            f"batch at {pos} with length {header.batch_length}, last offset delta {header.last_offset_delta} "
            f"and {header.record_count} records cannot be"
        )
    return header


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos` of a batch that is wholly in `buf`; bytes after it are the caller's business.

    Raises MalformedBatch as `peek_header` does, and when the batch runs past the end of the buffer.
    """
    header = peek_header(buf, pos)
    left = len(buf) - pos
    if header.batch_length + LENGTH_PREFIX_BYTES > left:
        raise MalformedBatch(f"batch at {pos} reports {header.total_bytes} bytes, {left} are there")
    return header


def crc_of(buf: Buffer, pos: int, total_bytes: int) -> int:
    """CRC-32C of the batch's bytes from its attributes to its end; no copy."""
    return crc32c(memoryview(buf)[pos + _ATTRIBUTES_AT : pos + total_bytes])


def verify(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """Raise CorruptBatch unless the checksum in `header` is that of the bytes at `pos`."""
    found = crc_of(buf, pos, header.batch_length + LENGTH_PREFIX_BYTES)
    if found != header.crc:
        raise CorruptBatch(f"batch at {pos}: CRC-32C is {found:#010x}, its header has {header.crc:#010x}")


def patch_whole(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Write where the batch landed: its first bytes, outside the checksum. The only change to an ordinary
    batch. The length between them is written again, which is one packing instead of two."""
    _PREFIX.pack_into(batch, 0, base_offset, len(batch) - LENGTH_PREFIX_BYTES, leader_epoch)


def set_log_append_time(batch: bytearray | memoryview, timestamp_ms: int, pos: int = 0) -> int:
    """Stamp the batch with the broker's time and recompute its checksum; returns the new CRC-32C.

    By the flag in the attributes readers use the batch's max timestamp for every record.
    """
    header = read_header(batch, pos)
    _INT16.pack_into(batch, pos + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG)
    _INT64.pack_into(batch, pos + _MAX_TIMESTAMP_AT, timestamp_ms)
    crc = crc_of(batch, pos, header.total_bytes)
    _UINT32.pack_into(batch, pos + _CRC_AT, crc)
    return crc


def clear_log_append_time(batch: bytearray | memoryview, header: BatchHeader) -> None:
    """Take the flag that a producer has no right to set out of `batch` and `header`, with a new checksum."""
    header.attributes &= ~LOG_APPEND_TIME_FLAG
    _INT16.pack_into(batch, _ATTRIBUTES_AT, header.attributes)
    _checksum(batch, header)


def set_max_timestamp(batch: bytearray | memoryview, header: BatchHeader, timestamp_ms: int) -> None:
    """Set the newest time among the records in `batch` and `header`, with a new checksum."""
    header.max_timestamp = timestamp_ms
    _INT64.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    _checksum(batch, header)


def _checksum(batch: bytearray | memoryview, header: BatchHeader) -> None:
    header.crc = crc_of(batch, 0, header.total_bytes)
    _UINT32.pack_into(batch, _CRC_AT, header.crc)


def empty_batch(base_offset: int, end_offset: int) -> bytes:
    """A batch without records over [base_offset, end_offset), as Kafka's cleaner leaves where no record of a
    batch is left: clients skip it. A range longer than a batch may have is cut at its maximum."""
    batch = bytearray(BATCH_HEADER_BYTES)
    delta = min(end_offset - base_offset - 1, _MAX_OFFSET_DELTA)
    HEADER.pack_into(
        batch, 0, base_offset, _MIN_BATCH_LENGTH, NO_LEADER_EPOCH, CURRENT_MAGIC, 0, 0, delta,
        NO_TIMESTAMP, NO_TIMESTAMP, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 0,
    )  # fmt: skip
    _UINT32.pack_into(batch, _CRC_AT, crc_of(batch, 0, BATCH_HEADER_BYTES))
    return bytes(batch)


def iter_headers(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch in `buf` from `pos`, in order.

    A last batch that is cut, as a Fetch response's may be, ends the walk silently; anything else that
    is not a batch raises MalformedBatch.
    """
    end = len(buf)
    while end - pos >= BATCH_HEADER_BYTES:
        header = peek_header(buf, pos)
        if header.total_bytes > end - pos:
            return
        yield pos, header
        pos += header.total_bytes
