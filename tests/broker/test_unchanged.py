"""How long things were seen as they are."""

from __future__ import annotations

from broker.unchanged import Unchanged


def test_looks() -> None:
    things: Unchanged[str, int] = Unchanged()
    seconds = things.look(100)
    assert (seconds("a", 1), seconds("b", 1)) == (0, 0)
    seconds = things.look(105)
    assert (seconds("a", 1), seconds("b", 2), seconds("c", 1)) == (5, 0, 0)
    seconds = things.look(107)
    assert (seconds("a", 1), seconds("b", 2)) == (7, 2)
    things.look(108)
    assert things.look(109)("a", 1) == 0, "forgotten: the look before left it out"
