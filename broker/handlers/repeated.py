"""What a request names again: told again, as Kafka does, but never so often that few bytes ask for many."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, TypeVar

MOST_REPEATED: Final = 100
"""LIMIT. In one request, all it repeats counted."""

Named = TypeVar("Named", bound=Hashable)


class Repeated:
    """Over one request. Args: most: what all it repeats may count."""

    __slots__ = ("_left", "_seen")

    def __init__(self, most: int = MOST_REPEATED) -> None:
        self._left = most
        self._seen: set[Hashable] = set()

    def is_told(self, name: Hashable, weight: int = 1) -> bool:
        """Is it to be told here? The first time always; `weight` is as how many it counts again."""
        if name not in self._seen:
            self._seen.add(name)
            return True
        self._left -= weight
        return self._left >= 0

    def told(self, names: Iterable[Named]) -> Iterator[Named]:
        """These, without what was repeated too often."""
        return (name for name in names if self.is_told(name))
