"""Control batches: the markers that end a transaction in a partition.

Owns: the key and value of a control record. A marker is a batch of one record with the control and the
transactional flag; clients may read it and never write it.

Does not: know the other control records of Kafka's own metadata log (leader change, snapshot header and
footer, KRaft version, voters); `parse` returns `OTHER` for them.

Source: Kafka's ControlRecordType and EndTransactionMarker; KIP-98.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import Final, NamedTuple

from lockstep.protocol.records.batch import Buffer, MalformedBatch, read_header
from lockstep.protocol.records.record import BatchBuilder, iter_records

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_NEWEST_VERSION: Final = 0
_LARGEST_MARKER_BYTES: Final = 64 * 1024


class ControlKind(IntEnum):
    """The type of a control record; the values are on the wire."""

    OTHER = -1
    ABORT = 0
    COMMIT = 1


class ControlMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    kind: ControlKind
    coordinator_epoch: int
    """The epoch of the transaction coordinator that wrote it; -1 for kinds without one."""


def build(
    kind: ControlKind,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
) -> bytes:
    """A batch with one commit or abort marker."""
    if kind is ControlKind.OTHER:
        raise ValueError("only commit and abort markers can be built")
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )
    builder.append(
        _VALUE.pack(_NEWEST_VERSION, coordinator_epoch),
        _KEY.pack(_NEWEST_VERSION, kind),
        timestamp_ms=timestamp_ms,
    )
    return builder.build(base_offset)


def parse(buf: Buffer, pos: int = 0) -> ControlMarker:
    """The marker in the control batch at `pos`.

    Versions above 0 may carry more fields at their end, which are ignored. Raises MalformedBatch when the
    batch is no control batch or its record is too short.
    """
    header = read_header(buf, pos)
    if not header.is_control:
        raise MalformedBatch(f"the batch at {pos} is not a control batch")
    if header.record_count != 1:
        raise MalformedBatch(f"a control batch of {header.record_count} records at {pos}")
    (record,) = iter_records(buf, pos, max_decompressed_bytes=_LARGEST_MARKER_BYTES)
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (ControlKind.ABORT, ControlKind.COMMIT):
            return ControlMarker(ControlKind.OTHER, -1)
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except error as too_short:
        raise MalformedBatch(f"the control record at {pos} is too short") from too_short
    return ControlMarker(ControlKind(kind), coordinator_epoch)
