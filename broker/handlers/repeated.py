"""What a request names again: told again, as Kafka does, but never so often that few bytes ask for many."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, TypeVar

MOST_REPEATED: Final = 100
"""LIMIT. In one request, all it repeats counted."""

Named = TypeVar("Named", bound=Hashable)


class Repeated:
    """Over one request."""

    __slots__ = ("_left", "_seen")

    def __init__(self) -> None:
        self._left = MOST_REPEATED
        self._seen: set[Hashable] = set()

    def told(self, names: Iterable[Named]) -> Iterator[Named]:
        """These, without what was repeated too often."""
        for name in names:
            if name not in self._seen:
                self._seen.add(name)
            elif self._left:
                self._left -= 1
            else:
                continue
            yield name
