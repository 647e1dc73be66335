"""The name that somebody meant who wrote one that there is not.

Pure. Finds one slip of the keyboard: a character too many, one missing, another one, two neighbours swapped;
or capital letters. Invariant: looking takes no more than a lookup for each character of the longest name that
there is, since a request may ask for many thousands. Does not: know what the names are of; look further
(`config.py` does, at a start).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class NearNames:
    """See the module. `names`: what might be written -> what is meant by it; the first of two wins."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._most_characters = max(map(len, names)) + 1
        self._near: dict[str, str] = {}
        """Each of them, and each without one of its characters. Empty until somebody asks."""

    def meant(self, name: str) -> str | None:
        """The name that is meant by `name`, which there is not; None where none is near."""
        if len(name) > self._most_characters:
            return None
        if not self._near:
            self._near.update(self._names)
            for written, what in self._names.items():
                for shorter in _shorter(written):
                    self._near.setdefault(shorter, what)
        written = name.lower()
        near = self._near.get(written)
        return near or next((self._near[each] for each in _shorter(written) if each in self._near), None)

    def hint(self, name: str) -> str:
        """The end of a refusal: "; did you mean ...?", or nothing."""
        meant = self.meant(name)
        return "" if meant is None else f"; did you mean {meant}?"


def _shorter(name: str) -> Iterator[str]:
    return (name[:place] + name[place + 1 :] for place in range(len(name)))
