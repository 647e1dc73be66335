"""The records of one batch, decompressed at most once for all callers.

Does not: keep a batch that was found to be too large.
"""

from __future__ import annotations

from lockstep.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, Buffer
from lockstep.protocol.records.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    DecompressedTooLarge,
    decompress,
)


class BatchBody:
    """The one batch in `buf`, whose header was read already."""

    __slots__ = ("_data", "buf", "header")

    def __init__(self, buf: Buffer, header: BatchHeader) -> None:
        self.buf = buf
        self.header = header
        self._data: Buffer | None = None

    def data(self, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Buffer:
        """The records. Raises MalformedBatch, or DecompressedTooLarge for more than `max_bytes`."""
        data = self._data
        if data is None:
            compressed = memoryview(self.buf)[BATCH_HEADER_BYTES : self.header.total_bytes]
            data = self._data = decompress(self.header.codec, compressed, max_bytes)
        elif len(data) > max_bytes:
            raise DecompressedTooLarge(f"{len(data)} bytes of records, at most {max_bytes} are opened")
        return data
