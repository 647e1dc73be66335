"""Limits repeated names: a request gets a result for each, as in Kafka, but never many for few bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, TypeVar

MAX_DUPLICATES: Final = 100
"""LIMIT. Repeated names of one request."""

Key = TypeVar("Key", bound=Hashable)


class DuplicateNames:
    """The names of one request. Args: limit: the total weight of its repeated names."""

    __slots__ = ("_remaining", "_seen")

    def __init__(self, limit: int = MAX_DUPLICATES) -> None:
        self._remaining = limit
        self._seen: set[Hashable] = set()

    def is_allowed(self, name: Hashable, weight: int = 1) -> bool:
        """True for the first occurrence of a name, and for further ones within the limit, each of
        `weight`."""
        if name not in self._seen:
            self._seen.add(name)
            return True
        self._remaining -= weight
        return self._remaining >= 0

    def without_excess(self, names: Iterable[Key]) -> Iterator[Key]:
        """The names without those that exceed the limit."""
        return (name for name in names if self.is_allowed(name))
