"""Every order in which a few claimants may read and claim: a term has one holder, and terms only grow.

The topic is a list, and its lock the rule of docs/locks.md; time does not come into it, since whoever tries
may do so at any moment. What a claimant decides is `ClaimTable`'s; what it appends, `claims.Claims`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from lockstep.player_host.claim_table import ClaimTable, LogClaim
from tests.lockstep.player_host.claimants import check
from tests.support.cases import each_case

LOG = "cluster/topic/0"


def orders(left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every sequence in which each claimant has so many steps."""
    if not any(left):
        yield ()
    for number, steps in enumerate(left):
        if steps:
            rest = (*left[:number], steps - 1, *left[number + 1 :])
            yield from ((number, *others) for others in orders(rest))


class Claimant:
    """Reads, then claims; where it holds the log, renews instead, and gives it up the second time."""

    def __init__(self, name: str) -> None:
        self.table = ClaimTable(name, name)
        self.position = 0
        self.held: tuple[LogClaim, int] | None = None
        self.renewed = 0
        self.is_reading = True

    def step(self, topic: list[LogClaim], has_lock: bool) -> None:
        if self.is_reading:
            self._read(topic)
        else:
            self._append(topic, has_lock)
        self.is_reading = not self.is_reading

    def _read(self, topic: list[LogClaim]) -> None:
        for offset in range(self.position, len(topic)):
            self.table.read(topic[offset], offset, 0)
        self.position = len(topic)
        newest = self.table.newest.get(LOG)
        if self.held is not None and newest is not None and not self.table.is_own(newest):
            self.held = None

    def _append(self, topic: list[LogClaim], has_lock: bool) -> None:
        if self.held is None:
            wanted, hwm = self.table.next_claim(LOG, 0, 0), self.position - 1
        else:
            wanted, hwm = self.held
            self.renewed += 1
            if self.renewed == 2:
                wanted = wanted._replace(player=None)
        if has_lock and len(topic) - 1 > hwm:
            return  # refused: somebody's claim stands behind what this was computed from
        topic.append(wanted)
        self.held = None if wanted.player is None else (wanted, len(topic) - 1)


@each_case("steps", [(6, 6), (8, 4), (4, 4, 4), (6, 2, 2)])
def test_whatever_the_order(steps: tuple[int, ...]) -> None:
    terms = set()
    for order in orders(steps):
        topic: list[LogClaim] = []
        claimants = [Claimant(name) for name, _ in zip("abc", steps, strict=False)]
        for number in order:
            claimants[number].step(topic, has_lock=True)
        check(topic)
        terms.add(max(each.player_term for each in topic))
    assert max(terms) > 1, "the log changes hands"


def test_without_the_lock_it_is_found() -> None:
    topic: list[LogClaim] = []
    a, b = Claimant("a"), Claimant("b")
    for each in chain.from_iterable(repeat((a, b), 2)):
        each.step(topic, has_lock=False)
    with pytest.raises(AssertionError):
        check(topic)
