"""The router of a log that every target gets whole: no batch is opened, no byte changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lockstep.player.core.messages import Entry, Part
from lockstep.player.core.router import Parts


class BroadcastRouter:
    """Every batch for each of these targets.

    Args: names: a mapping is read each time: a target added to it gets all entries, too.
    """

    __slots__ = ("_names",)

    def __init__(self, names: Collection[str]) -> None:
        self._names = names if isinstance(names, Mapping) else tuple(dict.fromkeys(names))

    def __call__(self, entry: Entry) -> Parts:
        payload = entry.payload
        assert isinstance(payload, bytes)
        part = Part(entry.position, payload, len(payload), entry.partition)
        return [(name, part) for name in self._names]
