"""The choice by key: records of one key go to one target, as a producer spreads them over partitions.

Owns: the list of targets, whose order and length are part of the choice: with another list most keys go
elsewhere. The hash is Kafka's default partitioner's, so that the n-th target gets what the n-th partition of
a topic with as many partitions would.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from protocol.partitioner import partition_of
from protocol.records.record import Record

KEYS_REMEMBERED: Final = 16_384
LONGEST_REMEMBERED: Final = 64
"""Bytes: some 3 MB of keys at most."""


class KeyHashChoice:
    """A `Choice`.

    Args:
        targets: in their order; each gets the keys of one slot. A name may stand there more than once.
        keyless: who gets records without a key.
    Raises ValueError without targets.
    """

    __slots__ = ("_keyless", "_remembered", "_slots")

    def __init__(self, targets: Sequence[str], keyless: Sequence[str]) -> None:
        if not targets:
            raise ValueError("keys are spread over at least one target")
        self._slots = [(name,) for name in targets]
        self._keyless = tuple(keyless)
        self._remembered = lru_cache(KEYS_REMEMBERED)(self._chosen)

    def __call__(self, record: Record) -> Sequence[str]:
        key = record.key
        if key is None:
            return self._keyless
        return self._remembered(key) if len(key) <= LONGEST_REMEMBERED else self._chosen(key)

    def _chosen(self, key: bytes) -> Sequence[str]:
        return self._slots[partition_of(key, len(self._slots))]
