"""Answers that take more than one turn of the loop: the rest is made in later ones.

A few megabytes name hundreds of thousands of groups, which is seconds of work. Between turns everybody else
is heard, and so are the followers of what this node leads. Nothing else of the connection is done, nor read,
before the answer. What is raised in a later turn closes the connection; so does a lease that has lapsed
meanwhile (`Uncertain`): who asked asks again.
Does not: spread the decoding of a request or the encoding of its answer, nor the first turn, which each
request has for itself; learn that a client has gone, as nothing is read from it meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from broker.context import Answer, ClientContext, Deferred
from broker.turns import SharedTurns, done_in_turn

Named = TypeVar("Named")
Part = TypeVar("Part")


class LaterTurns(Deferred):
    """Completed with what `answer` gives once the last step is taken.

    Args:
        steps: what is left, as `done_in_turn` wants it; it needs nothing of the receive buffer.
    """

    __slots__ = ("_answer", "_steps", "_turns")

    is_alone = True

    def __init__(self, turns: SharedTurns, steps: Iterator[None], answer: Callable[[], Answer]) -> None:
        super().__init__()
        self._turns = turns
        self._steps: Iterator[None] | None = steps
        self._answer = answer
        self.abandoned = self._abandon
        turns.go_on(self._go_on)

    def _abandon(self) -> None:
        self._steps = None

    def _turn(self, steps: Iterator[None]) -> bool:
        """One turn; whether it was the last."""
        return done_in_turn(steps)

    def _go_on(self) -> None:
        steps = self._steps
        if steps is None:
            return
        try:
            if not self._turn(steps):
                self._turns.go_on(self._go_on)
                return
            answer = self._answer()
            if isinstance(answer, Awaitable):
                answer = Deferred.of(answer)
        except Exception as error:
            self._steps = None
            self.fail(error)
            return
        self._steps = None
        self.complete(answer)


def in_turns(
    context: ClientContext,
    names: Iterable[Named],
    part: Callable[[Named], Part],
    answer: Callable[[list[Part]], Answer],
) -> Answer:
    """What `answer` makes of each name's part: at once where that takes no longer than a turn.

    Args:
        part: may raise in the first turn what a handler may raise.
        answer: as a handler answers.
    """
    parts: list[Part] = []

    def steps() -> Iterator[None]:
        for name in names:
            yield
            parts.append(part(name))

    left = steps()
    if done_in_turn(left):
        return answer(parts)
    return LaterTurns(context.services.turns, left, lambda: answer(parts))
