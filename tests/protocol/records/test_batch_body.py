"""The records of a batch are decompressed once, and each reader's limit holds."""

from __future__ import annotations

import pytest

from lockstep.protocol.records import batch_body, compression
from lockstep.protocol.records.batch import BATCH_HEADER_BYTES, read_header
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.compression import Codec, DecompressedTooLarge
from lockstep.protocol.records.record import BatchBuilder
from tests.support.cases import each_case


def body_of(codec: Codec) -> BatchBody:
    builder = BatchBuilder(codec=codec)
    builder.append(b"x" * 1000, timestamp_ms=5)
    data = builder.build()
    return BatchBody(data, read_header(data))


@each_case("codec", list(Codec))
def test_every_codec_gives_the_same_records(codec: Codec) -> None:
    plain = body_of(Codec.NONE)
    assert bytes(body_of(codec).data()) == bytes(plain.buf[BATCH_HEADER_BYTES:])


def test_decompressed_once_with_the_limit_of_each_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = compression.decompress

    def counted(codec: int, data: object, max_bytes: int) -> object:
        calls.append(max_bytes)
        return real(codec, data, max_bytes)  # type: ignore[arg-type]

    monkeypatch.setattr(batch_body, "decompress", counted)
    body = body_of(Codec.ZSTD)
    with pytest.raises(DecompressedTooLarge):
        body.data(100)
    size = len(body.data(5000))
    assert len(body.data(size)) == size
    with pytest.raises(DecompressedTooLarge):
        body.data(size - 1)
    assert calls == [100, 5000]
