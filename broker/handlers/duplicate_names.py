"""What a request names again: told again, as Kafka does, but never so often that few bytes ask for many."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, TypeVar

MAX_DUPLICATES: Final = 100
"""LIMIT. In one request, all it repeats counted."""

Key = TypeVar("Key", bound=Hashable)


class DuplicateNames:
    """Over one request. Args: most: what all it repeats may count."""

    __slots__ = ("_remaining", "_seen")

    def __init__(self, limit: int = MAX_DUPLICATES) -> None:
        self._remaining = limit
        self._seen: set[Hashable] = set()

    def is_allowed(self, name: Hashable, weight: int = 1) -> bool:
        """Is it to be told here? The first time always; `weight` is as how many it counts again."""
        if name not in self._seen:
            self._seen.add(name)
            return True
        self._remaining -= weight
        return self._remaining >= 0

    def without_excess(self, names: Iterable[Key]) -> Iterator[Key]:
        """These, without what was repeated too often."""
        return (name for name in names if self.is_allowed(name))
