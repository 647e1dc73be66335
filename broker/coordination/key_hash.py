"""The hash that maps a group id, or a transactional id, to a partition of its coordinator's topic.

Owns: `positive_hash`, as Java computes it, and its cache. Invariants: the cache is bounded in entries and in
bytes, whatever ids clients make up. Does not: know topics (`coordinator_registry.py`).
Source: Java's String.hashCode, Kafka's Utils.abs.
"""

from __future__ import annotations

from functools import lru_cache
from operator import mul
from struct import unpack
from typing import Final

MAX_CACHED_HASHES: Final = 10_000
MAX_CACHED_LENGTH: Final = 256
"""Characters. Real ids are shorter; a client could fill the cache with 10,000 made-up ids of 32 KB each."""
_STEP: Final = 256
_POWERS: Final = [pow(31, exponent, 1 << 32) for exponent in reversed(range(_STEP))]


def positive_hash(key: str) -> int:
    """Java's String.hashCode, and Kafka's Utils.abs of it."""
    return _cached_hash(key) if len(key) <= MAX_CACHED_LENGTH else _hash(key)


def _hash(key: str) -> int:
    found = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(encoded) // 2}H", encoded)
    for at in range(0, len(units), _STEP):
        some = units[at : at + _STEP]
        added = sum(map(mul, some, _POWERS[-len(some) :]))
        found = (found * pow(31, len(some), 1 << 32) + added) & 0xFFFF_FFFF
    if found < 1 << 31:
        return found
    return 0 if found == 1 << 31 else (1 << 32) - found


_cached_hash = lru_cache(MAX_CACHED_HASHES)(_hash)
