"""Members of a group, driven together: records for them, reading to a count, waiting for an assignment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from compat_tests.clients.face import Member, Stored
from compat_tests.raw import RawConnection, batch

SETTLE_S = 25.0


def fill(raw: RawConnection, topic: str, partitions: int, each: int = 5, name: str = "") -> set[bytes]:
    """`each` records into every partition; all values."""
    values = set()
    for index in range(partitions):
        wanted = [b"%s%d/%d" % (name.encode(), index, n) for n in range(each)]
        raw.produce(topic, batch(wanted), partition=index)
        values.update(wanted)
    return values


def drain(members: Sequence[Member], count: int, timeout_s: float = SETTLE_S) -> list[Stored]:
    """Poll the members in turn until they have `count` records between them."""
    found: list[Stored] = []
    until = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < until:
        for member in members:
            found += member.poll(count - len(found), 0.3)
    return found


def settle(
    members: Sequence[Member], partitions: Iterable[tuple[str, int]], timeout_s: float = SETTLE_S
) -> list[set[tuple[str, int]]]:
    """Drive the members until every partition is owned, each once, by members that all own some."""
    wanted = sorted(partitions)
    owned: list[set[tuple[str, int]]] = []
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        for member in members:
            member.poll(0, 0.2)
        owned = [member.assignment() for member in members]
        if sorted(each for own in owned for each in own) == wanted and all(owned):
            return owned
    raise AssertionError(f"never settled: {owned}")


def all_of(topic: str, partitions: int) -> set[tuple[str, int]]:
    """All partitions of a topic."""
    return {(topic, index) for index in range(partitions)}
