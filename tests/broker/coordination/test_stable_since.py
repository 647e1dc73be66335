"""How long things were seen as they are."""

from __future__ import annotations

from lockstep.broker.coordination.stable_since import StableSince


def test_looks() -> None:
    things: StableSince[str, int] = StableSince()
    seconds = things.observe(100)
    assert (seconds("a", 1), seconds("b", 1)) == (0, 0)
    seconds = things.observe(105)
    assert (seconds("a", 1), seconds("b", 2), seconds("c", 1)) == (5, 0, 0)
    seconds = things.observe(107)
    assert (seconds("a", 1), seconds("b", 2)) == (7, 2)
    things.observe(108)
    assert things.observe(109)("a", 1) == 0, "forgotten: the look before left it out"
