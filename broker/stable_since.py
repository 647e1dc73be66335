"""For how long things have been as they are, by a clock that nobody sets.

For what waits in a log whose time may stand still: one frame of a leader whose clock was ahead stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class StableSince(Generic[Key, Value]):
    """Over looks at all of them; what one look leaves out is forgotten."""

    def __init__(self) -> None:
        self._seen: dict[Key, tuple[Value, float]] = {}
        """Each as it is, and when it was seen so first."""

    def observe(self, now: float) -> Callable[[Key, Value], float]:
        """Begin a look, at `now` in seconds: what it gives says how many seconds a key has had a value."""
        previous = self._seen
        seen = self._seen = dict[Key, tuple[Value, float]]()

        def seconds_stable(key: Key, value: Value) -> float:
            last, since = previous.get(key, (value, now))
            seen[key] = value, since if last == value else now
            return now - seen[key][1]

        return seconds_stable
