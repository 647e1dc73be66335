"""Record batches that lie: the corpus behind the malformed Produce requests.

Owns: a list of named families, each drawing one batch set from a random generator. An honest batch is among
them, so that "refuses everything" would be noticed. Bombs are built once: small batches
that expand to 64 MiB (raw snappy, which shrinks nothing below 5 %, to 16 MiB).
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable

import cramjam

from tests.support.handmade_frames import batch, record, uvarint, values_batch, varint

EXPANDED_BYTES = 64 << 20
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TRANSACTIONAL, CONTROL = 0x10, 0x20
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
PRODUCER_IDS = (0, 1, 5, INT64_MAX, -2, INT64_MIN)
"""Few, so that producer state which the broker rightly keeps stays small."""


class BatchCorpus:
    """Draws (family, records) pairs."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._one = record(0, None, b"value")
        self._three = b"".join(record(n, b"k", b"v" * n) for n in range(3))
        self._bombs: list[tuple[str, bytes]] = []
        self._families: list[tuple[str, Callable[[], bytes]]] = [
            ("honest", lambda: values_batch([b"a", b"b"])),
            ("crc", lambda: batch(self._three, 3, crc_error=rng.choice((1, 0xFFFFFFFF, 0x80000000)))),
            ("magic", self._other_magic),
            ("length", lambda: batch(self._three, 3, length_error=rng.choice((-1, 1, -60, 10_000, 2**30)))),
            (
                "count",
                lambda: batch(
                    self._three, rng.choice((0, -1, 2, 4, 2**31 - 1, -(2**31))), last_offset_delta=2
                ),
            ),
            (
                "delta",
                lambda: batch(
                    self._three, 3, last_offset_delta=rng.choice((0, 1, 3, -1, 2**31 - 1, -(2**31)))
                ),
            ),
            ("both", lambda: batch(self._three, 2**31 - 1, last_offset_delta=2**31 - 2)),
            (
                "control",
                lambda: batch(_control_record(), 1, attributes=CONTROL, producer_id=1, producer_epoch=0),
            ),
            ("transactional", lambda: batch(self._one, 1, attributes=TRANSACTIONAL)),
            ("codec", lambda: batch(self._three, 3, attributes=rng.choice((5, 6, 7)))),
            ("mislabelled", lambda: batch(rng.randbytes(50), 3, attributes=rng.choice((1, 2, 3, 4)))),
            (
                "attributes",
                lambda: batch(self._three, 3, attributes=rng.choice((-1, -(2**15), 0x7FC0, 0x08))),
            ),
            (
                "timestamp",
                lambda: batch(self._one, 1, timestamp=rng.choice((INT64_MIN, INT64_MAX, -1, -2, 0))),
            ),
            ("base-offset", lambda: batch(self._one, 1, base_offset=rng.choice((-1, INT64_MAX, INT64_MIN)))),
            ("producer", self._producer),
            ("empty", lambda: b""),
            ("short", lambda: values_batch([b"a"])[: rng.randrange(1, 70)]),
            ("two", lambda: values_batch([b"a"]) + values_batch([b"b"])),
            ("two-second-cut", lambda: values_batch([b"a"]) + values_batch([b"b"])[: rng.randrange(1, 69)]),
            ("trailing", lambda: values_batch([b"a"]) + rng.randbytes(rng.choice((1, 11, 12, 60, 61, 500)))),
            ("record-length", self._record_length),
            ("noise", lambda: rng.randbytes(rng.choice((1, 12, 61, 200)))),
            ("no-records", lambda: batch(b"", 0, last_offset_delta=0)),
        ]

    def draw(self) -> tuple[str, bytes]:
        """One batch set from a random family."""
        name, make = self._rng.choice(self._families)
        return name, make()

    def draw_bomb(self) -> tuple[str, bytes]:
        """One decompression bomb, with a right CRC."""
        if not self._bombs:
            self._bombs = make_bombs()
        return self._rng.choice(self._bombs)

    def families(self) -> list[str]:
        """All names, for reports."""
        return [name for name, _ in self._families]

    def _other_magic(self) -> bytes:
        magic = self._rng.choice((0, 1, 3, -1, 127))
        if magic not in (0, 1):
            return batch(self._three, 3, magic=magic)
        # message set v0 or v1: offset, size, crc, magic, attributes, (timestamp,) key, value
        body = (
            struct.pack(">bb", magic, 0)
            + (struct.pack(">q", 1) if magic else b"")
            + struct.pack(">ii", -1, 1)
            + b"v"
        )
        return struct.pack(">qiI", 0, len(body) + 4, self._rng.getrandbits(32)) + body

    def _producer(self) -> bytes:
        rng = self._rng
        return batch(
            self._one,
            1,
            producer_id=rng.choice(PRODUCER_IDS),
            producer_epoch=rng.choice((-1, 0, 1, 32767, -32768)),
            base_sequence=rng.choice((-1, 0, 1, 2**31 - 1, -(2**31))),
        )

    def _record_length(self) -> bytes:
        lie = self._rng.choice((0, 1, 2**31 - 1, -1, -(2**31), 2**62))
        return batch(varint(lie) + self._one[1:], 1)


def _control_record() -> bytes:
    return record(0, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0))


def make_bombs() -> list[tuple[str, bytes]]:
    """For each codec, batches within max.message.bytes that expand, or claim to expand, far beyond it."""
    zeros = bytes(EXPANDED_BYTES)
    raw_snappy_claim = uvarint(2**32 - 1) + b"\xfe\x00\x00" * 20
    xerial_claim = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 2**31 - 1) + bytes(20)
    xerial_negative = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -1) + bytes(20)
    nested = gzip.compress(gzip.compress(zeros, 1), 9)
    return [
        ("gzip", batch(gzip.compress(zeros, 9), 1, attributes=GZIP)),
        ("gzip-nested", batch(nested, 1, attributes=GZIP)),
        (
            "snappy",
            batch(bytes(cramjam.snappy.compress_raw(zeros[: EXPANDED_BYTES // 4])), 1, attributes=SNAPPY),
        ),
        ("snappy-claim", batch(raw_snappy_claim, 1, attributes=SNAPPY)),
        ("xerial-claim", batch(xerial_claim, 1, attributes=SNAPPY)),
        ("xerial-negative", batch(xerial_negative, 1, attributes=SNAPPY)),
        ("lz4", batch(bytes(cramjam.lz4.compress(zeros)), 1, attributes=LZ4)),
        ("zstd", batch(bytes(cramjam.zstd.compress(zeros, 19)), 1, attributes=ZSTD)),
    ]
