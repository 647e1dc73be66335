"""The selector by key: records of one key go to one target, as a producer spreads them over partitions.

Owns: the list of targets, whose order and length are part of the result: with another list most keys go to
another target. The hash is Kafka's default partitioner's, so that the n-th target gets the records of the
n-th partition of a topic with as many partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from lockstep.protocol.partitioner import partition_of
from lockstep.protocol.records.record import Record

MAX_CACHED_KEYS: Final = 16_384
MAX_CACHED_KEY_BYTES: Final = 64
"""Bytes: some 3 MB of keys at most."""


class KeyHashSelector:
    """A `TargetSelector`.

    Args:
        targets: in their order; each gets the keys of one slot. A name may stand there more than once.
        keyless: the targets of records without a key.
    Raises ValueError without targets.
    """

    __slots__ = ("_cached", "_keyless", "_slots")

    def __init__(self, targets: Sequence[str], keyless: Sequence[str]) -> None:
        if not targets:
            raise ValueError("keys are spread over at least one target")
        self._slots = [(name,) for name in targets]
        self._keyless = tuple(keyless)
        self._cached = lru_cache(MAX_CACHED_KEYS)(self._select)

    def __call__(self, record: Record) -> Sequence[str]:
        key = record.key
        if key is None:
            return self._keyless
        return self._cached(key) if len(key) <= MAX_CACHED_KEY_BYTES else self._select(key)

    def _select(self, key: bytes) -> Sequence[str]:
        return self._slots[partition_of(key, len(self._slots))]
