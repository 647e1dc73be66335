"""Measures for how long values have been unchanged, by a monotonic clock.

For expirations in a log whose time may stand still: one frame of a leader whose clock was ahead stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class StableSince(Generic[Key, Value]):
    """Compares successive observations of all keys; a key that one leaves out is forgotten."""

    def __init__(self) -> None:
        self._seen: dict[Key, tuple[Value, float]] = {}
        """Each key's value, and the time of its first observation."""

    def observe(self, now: float) -> Callable[[Key, Value], float]:
        """Begin an observation, at `now` in seconds. Returns a function that gives the seconds for which a
        key has had a value."""
        previous = self._seen
        seen = self._seen = dict[Key, tuple[Value, float]]()

        def seconds_stable(key: Key, value: Value) -> float:
            last, since = previous.get(key, (value, now))
            seen[key] = value, since if last == value else now
            return now - seen[key][1]

        return seconds_stable
