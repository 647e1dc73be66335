"""The partition of a key: the same as the Java producer's, so that all producers of a topic agree.

Source: Kafka's BuiltInPartitioner; Austin Appleby's MurmurHash2 (public domain) with Kafka's seed.
"""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition for a key among `partition_count`."""
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    state = (_SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        state = (state * _M & _MASK) ^ word
    if whole != len(data):
        state = (state ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    state = (state ^ state >> 13) * _M & _MASK
    return state ^ state >> 15
