"""The better direction of a figure, by its unit. Pure."""

from __future__ import annotations

MORE_IS_BETTER = frozenset({"MB/s", "GB/s", "/s", "requests/s", "records/s", "commits/s", "transactions/s"})
LESS_IS_BETTER = frozenset({"ms", "s", "MB", "KiB"})


def more_is_better(unit: str) -> bool:
    """True if more of it is better. Raises ValueError for a unit without a direction."""
    if unit not in MORE_IS_BETTER | LESS_IS_BETTER:
        raise ValueError(f"is more {unit!r} better?")
    return unit in MORE_IS_BETTER
