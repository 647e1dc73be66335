"""Recompresses a batch to its topic's `compression.type`, where its producer used another codec.

Batches are taken apart as a whole, up to MAX_BYTES: no record is opened. Source: Kafka's LogValidator;
KIP-390.
"""

from __future__ import annotations

from typing import Final

from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import MalformedBatch
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.batch_filter import rebuild_batch
from lockstep.protocol.records.compression import Codec, DecompressedTooLarge
from lockstep.storage.types import Buffer

CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""By value of the setting; `producer` is none of them."""
MAX_BYTES: Final = 8 << 20
"""LIMIT. Uncompressed bytes of a batch. A larger batch is appended as it was sent, as every batch names its
own codec: a small one may expand to what would take seconds of the loop, and be sent again and again."""


def recompress(body: BatchBody, compression_type: str, max_bytes: int) -> Buffer:
    """The batch with the topic's compression; the same batch where it has that already, or is too large.

    Args:
        max_bytes: max.message.bytes, which a batch may exceed by it.
    Raises:
        RequestError: MESSAGE_TOO_LARGE, or INVALID_RECORD where it cannot be opened.
    """
    codec, header = CODECS[compression_type], body.header
    if header.codec == codec:
        return body.buf
    try:
        data = body.data(MAX_BYTES)
        rebuilt = rebuild_batch(header, data, header.record_count, header.max_timestamp, codec)
    except DecompressedTooLarge:
        return body.buf
    except MalformedBatch as error:
        raise RequestError(ErrorCode.INVALID_RECORD, str(error)) from None
    if len(rebuilt) > max_bytes:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(rebuilt)} bytes with compression.type={compression_type}; "
            f"max.message.bytes is {max_bytes}",
        )
    return rebuilt
