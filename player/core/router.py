"""The type of a router, and the check of its results: from entries to parts.

Owns: the check that no target gets two parts of one entry, and that each part has its entry's position. Else
an entry would be applied twice, or never. Does not: choose targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lockstep.player.core.messages import Entry, Part

Parts = Sequence[tuple[str, Part]]
Router = Callable[[Entry], Parts]
"""An entry's part for each of its targets, by name; a function of the entry alone."""


class BadRoute(ValueError):
    """A router returned parts that cannot be delivered once and in order."""


def route_entries(route: Router, entries: Iterable[Entry]) -> list[Parts]:
    """The parts of each entry. Raises BadRoute, and the router's own errors."""
    found = [(entry, route(entry)) for entry in entries]
    for entry, parts in found:
        if len(parts) > 1 and len({name for name, _ in parts}) < len(parts):
            raise BadRoute(f"the entry at {entry.position} has two parts for one target")
        for name, part in parts:
            if part.position != entry.position or part.is_dummy:
                raise BadRoute(f"the part of {name!r} has no payload, or is not at {entry.position}")
    return [parts for _, parts in found]
