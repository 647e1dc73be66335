"""Keys are hashed as Java does it, and the cache cannot be made to grow."""

from __future__ import annotations

import struct

from lockstep.broker.coordination.key_hash import _cached_hash, positive_hash
from tests.support.cases import each_case


@each_case(
    ("key", "expected"),
    [
        ("", 0),
        ("g", 103),
        ("my-group", 1906497762),
        ("console-consumer-70812", 163941759),
        ("polygenelubricants", 0),  # Java's hash of it is -2^31
        ("\u00e4", 228),
        ("\U0001f600", 1772899),
    ],
)
def test_hashes_are_javas(key: str, expected: int) -> None:
    assert positive_hash(key) == expected


def test_hashes_of_long_keys() -> None:
    text = "a\u00e4\U0001f600" * 500
    found = 0
    for unit in struct.unpack(">2000H", text.encode("utf-16-be")):
        found = (31 * found + unit) & 0xFFFF_FFFF
    assert positive_hash(text) == (found if found < 1 << 31 else (1 << 32) - found)


def test_long_keys_are_not_remembered() -> None:
    before = _cached_hash.cache_info().currsize
    for n in range(10):
        positive_hash(f"{n}" * 30_000)
    assert _cached_hash.cache_info().currsize == before
