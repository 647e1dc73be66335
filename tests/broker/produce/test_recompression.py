"""A topic's own codec: every batch has it, whatever it came in; nothing is opened where none asks for it."""

from __future__ import annotations

import pytest

from lockstep.broker.produce.recompression import CODECS, MAX_BYTES
from lockstep.broker.settings.topic_config import LOCKS_KEPT
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records import batch_body, compression
from lockstep.protocol.records.batch import read_header, verify
from lockstep.protocol.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec
from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.storage.types import Buffer
from tests.broker.appends import HOUR_MS, NOW_MS, Limits, Transactional, World, batch, changed, dated

CODEC_NAMES = {codec: name for name, codec in CODECS.items()}


@pytest.mark.parametrize("wanted", list(CODEC_NAMES.values()))
async def test_a_topic_may_have_one_codec(world: World, wanted: str) -> None:
    limits = Limits(compression_type=wanted)
    for codec in Codec:
        data = bytes(
            batch(b"a" * 500, b"b", codec=codec, producer_id=9, producer_epoch=0, base_sequence=2 * codec)
        )
        base_offset = world.append(data, limits)
        assert base_offset == world.append(data, limits) == 2 * codec, "sent again it is the same"
    await world.group.committed()
    found = world.group.read(world.partition, 0, 1 << 20).buffers
    for place, stored in enumerate(found):
        header = read_header(stored)
        verify(stored, 0, header)
        assert CODEC_NAMES[Codec(header.codec)] == wanted
        assert (header.base_offset, header.base_sequence, header.producer_id) == (2 * place, 2 * place, 9)
        assert [record.value for record in iter_records(stored)] == [b"a" * 500, b"b"]
    assert len(found) == len(Codec)


@pytest.mark.parametrize("size", [MAX_BYTES + 1, DEFAULT_MAX_DECOMPRESSED_BYTES + 1])
async def test_what_would_take_long_is_kept_as_it_was_sent(world: World, size: int) -> None:
    data = bytes(batch(bytes(size), codec=Codec.ZSTD))
    assert world.append(data, Limits(compression_type="gzip")) == 0
    await world.group.committed()
    (stored,) = world.group.read(world.partition, 0, 1 << 20).buffers
    verify(stored, 0, read_header(stored))
    assert read_header(stored).codec == Codec.ZSTD and bytes(stored[61:]) == data[61:]


async def test_what_grows_beyond_the_limit_or_cannot_be_opened_is_refused(world: World) -> None:
    limits = Limits(max_message_bytes=500, compression_type="uncompressed")
    text = world.refuse(bytes(batch(b"a" * 5000, codec=Codec.ZSTD)), ErrorCode.MESSAGE_TOO_LARGE, limits)
    assert "compression.type=uncompressed" in text
    broken = batch(b"a" * 99, codec=Codec.GZIP)
    broken[70:75] = bytes(5)
    world.refuse(changed(broken), ErrorCode.INVALID_RECORD, limits)


async def test_no_record_is_opened_where_none_is_needed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(*_: object, **__: object) -> None:
        raise AssertionError("the produce path works per batch")

    for name in (
        "lockstep.broker.produce.batch_times.open_body",
        "lockstep.protocol.records.batch_body.decompress",
        "lockstep.broker.produce.record_keys.open_body",
    ):
        monkeypatch.setattr(name, looked)
    for codec in Codec:
        world.append(bytes(dated(NOW_MS, NOW_MS - HOUR_MS, codec=codec)))
        world.append(bytes(batch(codec=codec)), Limits(timestamp_before_max_ms=10))
        world.append(bytes(batch(codec=codec)), Limits(compression_type=CODEC_NAMES[codec]))


async def test_a_batch_is_decompressed_once_for_all_uses(
    both: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, locks, another codec and limits of times each look at the records."""
    calls: list[int] = []
    real = compression.decompress

    def counted(codec: int, data: Buffer, max_bytes: int) -> Buffer:
        calls.append(codec)
        return real(codec, data, max_bytes)

    monkeypatch.setattr(batch_body, "decompress", counted)
    limits = Limits(
        is_compacted=True,
        lockstep_locks=LOCKS_KEPT,
        compression_type="lz4",
        timestamp_before_max_ms=HOUR_MS,
    )
    builder = BatchBuilder(codec=Codec.ZSTD)
    for key in (b"a", b"b"):
        builder.append(b"v" * 100, key, timestamp_ms=NOW_MS)
    both.appender.append(both.one, builder.build(), limits, 9)
    assert calls == [Codec.ZSTD]
