"""Regular expressions that tools filter transactional ids by, matched without backtracking (KIP-1152).

Kafka's are RE2's, whose time grows with the text and not with the pattern's ambiguities. Python's own matcher
would block the broker for ages at `(a+)+b`; here Python only parses, and the parsed pattern becomes an
automaton whose states are all followed at once (Thompson). Syntax that RE2 rejects is rejected: lookaround,
back references, possessive and very long repetitions.
Owns: `IdPattern`. Invariants: a match costs at most states times characters, and all matches of one pattern
no more than `MAX_STEPS`. Does not: know RE2's own escapes (`\\z`, `\\pN`, `\\Q`) or its named classes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

MAX_STATES: Final = 2_000
MAX_REPEATED: Final = 1_000
"""RE2's."""
MAX_ITEMS: Final = 10_000
"""The cost of compiling: parts of a pattern, members of classes too, each as often as it is repeated."""
MAX_STEPS: Final = 20_000_000
"""LIMIT. Some seconds of a thread: 100,000 ids of 40 characters and a simple pattern take a fifth of it."""

CharacterTest = Callable[[str], bool]
PositionTest = Callable[[str, int], bool]


class InvalidPattern(ValueError):
    """The pattern is invalid, or would take too long."""


class IdPattern:
    """One compiled pattern. Raises InvalidPattern."""

    def __init__(self, text: str) -> None:
        self._states: list[tuple[Any, tuple[int, ...], bool]] = [(None, (), False)]
        """(test or None; the states after it; whether it is a PositionTest). The first is the end."""
        self._items = self._steps = 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # syntax that a later Python may parse differently
                parsed = parser.parse(text)
        except (re.error, RecursionError, OverflowError, Warning) as error:
            raise InvalidPattern(str(error)) from None
        flags = parsed.state.flags
        self._start = self._sequence(parsed, 0, flags)

    def matches(self, text: str) -> bool:
        """Returns whether it matches the whole of `text`. Raises InvalidPattern where that takes too long."""
        current = self._reach([self._start], text, 0)
        for at, character in enumerate(text):
            reached: list[int] = []
            for state in current:
                test, after, at_position = self._states[state]
                if test is not None and not at_position and test(character):
                    reached += after
            current = self._reach(reached, text, at + 1)
            if not current:
                return False
        return 0 in current

    def _reach(self, states: Iterable[int], text: str, at: int) -> set[int]:
        """Returns the states that are reached without a further character."""
        reached: set[int] = set()
        pending = list(states)
        while pending:
            state = pending.pop()
            if state in reached:
                continue
            reached.add(state)
            test, after, at_position = self._states[state]
            if test is None or (at_position and test(text, at)):
                pending += after
        self._steps += len(reached) + 1
        if self._steps > MAX_STEPS:
            raise InvalidPattern("the pattern takes too long")
        return reached

    # --- from what Python parsed ----------------------------------------------------------------------------

    def _add(self, test: CharacterTest | PositionTest | None, *after: int, at_position: bool = False) -> int:
        if len(self._states) >= MAX_STATES:
            raise InvalidPattern("the pattern is too large")
        self._states.append((test, after, at_position))
        return len(self._states) - 1

    def _sequence(self, items: Any, after: int, flags: int) -> int:
        for kind, value in reversed(list(items)):
            after = self._item(kind, value, after, flags)
        return after

    def _item(self, kind: Any, value: Any, after: int, flags: int) -> int:
        """Returns the first state of this item, whose end leads to `after`."""
        self._items += len(value) if kind is constants.IN else 1
        if self._items > MAX_ITEMS:
            raise InvalidPattern("the pattern is too large")
        if kind is constants.BRANCH:
            return self._add(None, *(self._sequence(each, after, flags) for each in value[1]))
        if kind is constants.SUBPATTERN:
            _, added, removed, items = value
            return self._sequence(items, after, (flags | added) & ~removed)
        if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            least, most, items = value
            return self._repeat(least, most, items, after, flags)
        if kind is constants.AT:
            return self._add(_position_test(value, flags), after, at_position=True)
        return self._add(_character_test(kind, value, flags), after)

    def _repeat(self, least: int, most: Any, items: Any, after: int, flags: int) -> int:
        endless = most is constants.MAXREPEAT
        if least > MAX_REPEATED or (not endless and most > MAX_REPEATED):
            raise InvalidPattern("a repetition is too long")
        if endless:
            loop = self._add(None)
            self._states[loop] = None, (self._sequence(items, loop, flags), after), False
            after = loop
        else:
            for _ in range(most - least):
                after = self._add(None, self._sequence(items, after, flags), after)
        for _ in range(least):
            before, after = after, self._sequence(items, after, flags)
            if after == before:
                break  # an empty item, however often repeated
        return after


def _character_test(kind: Any, value: Any, flags: int) -> CharacterTest:
    """Returns the test of an item's characters."""
    if kind is constants.ANY:
        return (lambda character: True) if flags & re.DOTALL else (lambda character: character != "\n")
    if kind is constants.LITERAL:
        return _fold(lambda character: character == chr(value), flags)
    if kind is constants.NOT_LITERAL:
        matched = _fold(lambda character: character == chr(value), flags)
        return lambda character: not matched(character)
    if kind is constants.IN:
        negated = bool(value) and value[0][0] is constants.NEGATE
        tests = [_member(*each) for each in value[negated:]]
        inside = _fold(lambda character: any(test(character) for test in tests), flags)
        return (lambda character: not inside(character)) if negated else inside
    raise InvalidPattern(f"{kind} is not known")


def _member(kind: Any, value: Any) -> CharacterTest:
    """Returns the test of one part of a class in brackets."""
    if kind is constants.LITERAL:
        return lambda character: character == chr(value)
    if kind is constants.RANGE:
        first, last = value
        return lambda character: first <= ord(character) <= last
    matched = re.compile(_CATEGORIES[value], re.ASCII)
    return lambda character: matched.match(character) is not None


_CATEGORIES: Final = {
    constants.CATEGORY_DIGIT: r"\d",
    constants.CATEGORY_NOT_DIGIT: r"\D",
    constants.CATEGORY_SPACE: r"[\t\n\f\r ]",
    constants.CATEGORY_NOT_SPACE: r"[^\t\n\f\r ]",
    constants.CATEGORY_WORD: r"\w",
    constants.CATEGORY_NOT_WORD: r"\W",
}
"""RE2's: of ASCII alone."""


def _fold(test: CharacterTest, flags: int) -> CharacterTest:
    if not flags & re.IGNORECASE:
        return test
    return lambda character: test(character) or test(character.lower()) or test(character.upper()[0])


def _position_test(kind: Any, flags: int) -> PositionTest:
    """Returns the test of an item's positions between characters."""
    begins: PositionTest = lambda text, at: at == 0  # noqa: E731
    ends: PositionTest = lambda text, at: at == len(text)  # noqa: E731
    if kind is constants.AT_BEGINNING:
        return (lambda text, at: at == 0 or text[at - 1] == "\n") if flags & re.MULTILINE else begins
    if kind is constants.AT_END:
        return (lambda text, at: at == len(text) or text[at] == "\n") if flags & re.MULTILINE else ends
    if kind is constants.AT_BEGINNING_STRING:
        return begins
    if kind is constants.AT_BOUNDARY:
        return _is_boundary
    if kind is constants.AT_NON_BOUNDARY:
        return lambda text, at: not _is_boundary(text, at)
    raise InvalidPattern(f"{kind} is not known")


def _is_boundary(text: str, at: int) -> bool:
    return _is_word(text[at - 1 : at] if at else "") != _is_word(text[at : at + 1])


def _is_word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())
