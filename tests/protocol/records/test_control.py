"""Transaction markers."""

from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatch

from lockstep.protocol.records.batch import MalformedBatch, read_header, verify
from lockstep.protocol.records.control import ControlKind, ControlMarker, build, parse
from lockstep.protocol.records.record import BatchBuilder
from tests.support.cases import each_case


def control_batch(key: bytes | None, value: bytes | None, count: int = 1) -> bytes:
    builder = BatchBuilder(control=True)
    for _ in range(count):
        builder.append(value, key, timestamp_ms=1)
    return builder.build()


@each_case("kind", [ControlKind.COMMIT, ControlKind.ABORT])
def test_markers_round_trip(kind: ControlKind) -> None:
    batch = build(
        kind, producer_id=5, producer_epoch=2, coordinator_epoch=11, timestamp_ms=123, base_offset=9
    )
    header = read_header(batch)
    verify(batch, 0, header)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, -1)
    assert (header.base_offset, header.record_count, header.max_timestamp) == (9, 1, 123)
    assert parse(b"junk" + batch, 4) == ControlMarker(kind, 11)


def test_a_client_takes_them_for_control_batches() -> None:
    batch = DefaultRecordBatch(
        build(ControlKind.ABORT, producer_id=5, producer_epoch=2, coordinator_epoch=0, timestamp_ms=1)
    )
    assert batch.is_control_batch
    assert next(iter(batch)).abort


def test_other_kinds_and_newer_versions() -> None:
    assert parse(control_batch(b"\0\0\0\2", b"")).kind is ControlKind.OTHER
    newer = control_batch(b"\0\7\0\1more", b"\0\7\0\0\0\5more")
    assert parse(newer) == ControlMarker(ControlKind.COMMIT, 5)


@each_case(
    "batch",
    [
        control_batch(None, b"\0\0\0\0\0\5"),
        control_batch(b"\0\0\0", b"\0\0\0\0\0\5"),
        control_batch(b"\0\0\0\1", None),
        control_batch(b"\0\0\0\1", b"\0\0\0\0\0"),
        control_batch(b"\0\0\0\1", b"\0\0\0\0\0\5", count=2),
        control_batch(b"\0\0\0\1", bytes(100_000)),
    ],
)
def test_broken_markers(batch: bytes) -> None:
    with pytest.raises(MalformedBatch):
        parse(batch)


def test_an_ordinary_batch_is_no_marker() -> None:
    builder = BatchBuilder()
    builder.append(b"\0\0\0\0\0\5", b"\0\0\0\1", timestamp_ms=1)
    with pytest.raises(MalformedBatch, match="not a control batch"):
        parse(builder.build())


def test_only_commit_and_abort_are_built() -> None:
    with pytest.raises(ValueError, match="commit and abort"):
        build(ControlKind.OTHER, producer_id=1, producer_epoch=1, coordinator_epoch=1, timestamp_ms=1)
