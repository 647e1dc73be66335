"""Suggests the closest known setting for a misspelled one.

Pure. Finds one typing error: a character too many, one missing, a wrong one, two neighbours swapped;
or capital letters. Invariant: a search takes at most one lookup for each character of the longest known
name, since a request may have many thousands of names. Does not: know what the names mean; search further
(`config.py` does, at a start).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Suggestions:
    """See the module. `names`: each known spelling -> its suggestion; the first of two wins."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._max_characters = max(map(len, names)) + 1
        self._index: dict[str, str] = {}
        """Each name, and each without one of its characters. Empty before the first lookup."""

    def suggest(self, name: str) -> str | None:
        """The closest name to the unknown `name`; None where none is close."""
        if len(name) > self._max_characters:
            return None
        if not self._index:
            self._index.update(self._names)
            for written, suggestion in self._names.items():
                for deletion in _deletions(written):
                    self._index.setdefault(deletion, suggestion)
        written = name.lower()
        exact = self._index.get(written)
        return exact or next((self._index[each] for each in _deletions(written) if each in self._index), None)

    def hint(self, name: str) -> str:
        """The end of an error text: "; did you mean ...?", or nothing."""
        suggestion = self.suggest(name)
        return "" if suggestion is None else f"; did you mean {suggestion}?"


def _deletions(name: str) -> Iterator[str]:
    return (name[:place] + name[place + 1 :] for place in range(len(name)))
