"""Transactions of 1 KB key-values: who gets which, and the times that travel with them. Pure.

A transaction of k KB is k key-values, and each is for one target. Key-value j of transaction n has the key
n * k + j, and its target is that modulo the number of targets: a transaction goes to as many targets as it
can, and all get equally much. On the wire there is a head (number, sent, dispatched) and then the key-values:
all of them in the log, a target's own in its part. Whoever splits an entry writes when it began to. What a
target received (`Noted`) is looked at when the run is over: none lost, doubled or out of order; both delays.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from bench.load.latency import quantiles
from lockstep.protocol.records.record import Record

_HEAD: Final = struct.Struct(">qqq")
_KEY: Final = struct.Struct(">q")
HEAD_BYTES: Final = _HEAD.size
KEY_VALUE_BYTES: Final = 1000
_FILLING: Final = b"x" * (KEY_VALUE_BYTES - _KEY.size)
NEVER: Final = 0
"""In place of a time: not dispatched."""


class Head(NamedTuple):
    """Times are nanoseconds of the machine's monotonic clock."""

    number: int
    sent_ns: int
    """Just before the append of it was sent."""
    dispatched_ns: int
    """Just before a player processed it."""


class Shape(NamedTuple):
    """The shape of all transactions of a run."""

    targets: int
    keys: int

    def targets_of(self, number: int) -> list[int]:
        """The targets of a part, each once."""
        first = number * self.keys % self.targets
        return [(first + place) % self.targets for place in range(min(self.keys, self.targets))]


def transaction(number: int, sent_ns: int, keys: int) -> bytes:
    """A whole transaction, as in a log."""
    first = number * keys
    body = [_KEY.pack(key) + _FILLING for key in range(first, first + keys)]
    return b"".join([_HEAD.pack(number, sent_ns, NEVER), *body])


def split(value: bytes, targets: int, dispatched_ns: int) -> dict[int, bytes]:
    """The part of each target that has one, by its number."""
    number, sent_ns, _ = _HEAD.unpack_from(value)
    head = _HEAD.pack(number, sent_ns, dispatched_ns)
    parts: dict[int, list[bytes]] = {}
    for at in range(HEAD_BYTES, len(value), KEY_VALUE_BYTES):
        (key,) = _KEY.unpack_from(value, at)
        parts.setdefault(key % targets, [head]).append(value[at : at + KEY_VALUE_BYTES])
    return {target: b"".join(each) for target, each in parts.items()}


def head_of(value: bytes) -> Head:
    """The head of a transaction, or of a part."""
    return Head(*_HEAD.unpack_from(value))


class SplitByKey:
    """The router of the player (`lockstep.player.routing.selector.TargetSelector`). `dispatched_ns`: kept
    by the shell, which notes it when it hands entries to the player."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self.dispatched_ns = NEVER

    def __call__(self, record: Record) -> dict[str, bytes | None]:
        parts = split(bytes(record.value or b""), len(self._names), self.dispatched_ns)
        return {self._names[target]: value for target, value in parts.items()}


def target_names(count: int) -> list[str]:
    """The names of the targets."""
    return [f"target-{number}" for number in range(count)]


class WrongDelivery(RuntimeError):
    """A target did not get its parts in order, once."""


class Noted:
    """One target's values in the order of their arrival."""

    def __init__(self) -> None:
        self._heads: list[tuple[int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._heads)

    def note(self, value: bytes, at_ns: int) -> None:
        """A part came at that time."""
        self._heads.append((*head_of(value), at_ns))

    def check(self, target: int, shape: Shape, transactions: int) -> None:
        """Everything that was written for it, once and in order. Raises WrongDelivery."""
        expected = [number for number in range(transactions) if target in shape.targets_of(number)]
        found = [head[0] for head in self._heads]
        if found != expected:
            place = next(
                (at for at, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other),
                min(len(found), len(expected)),
            )
            raise WrongDelivery(
                f"target {target} got {len(found)} parts of {len(expected)}, and differs from number {place} "
                f"on: {found[place : place + 3]} instead of {expected[place : place + 3]}"
            )

    def samples(self, opens_ns: int, closes_ns: int) -> Iterable[tuple[int, int]]:
        """(delay since it was dispatched, or -1; delay since it was sent) of what was sent in the window."""
        for _, sent_ns, dispatched_ns, at_ns in self._heads:
            if opens_ns <= sent_ns < closes_ns:
                yield at_ns - dispatched_ns if dispatched_ns != NEVER else -1, at_ns - sent_ns


def expected_parts(target: int, shape: Shape, transactions: int) -> int:
    """The number of a target's parts for so many transactions."""
    return sum(target in shape.targets_of(number) for number in range(transactions))


def delays(noted: Sequence[Noted], opens_ns: int, closes_ns: int) -> dict[str, Any]:
    """Both delays over all (transaction, target) of the window, in milliseconds. Raises UnexpectedResponse:
    none."""
    samples = [each for one in noted for each in one.samples(opens_ns, closes_ns)]
    dispatched = array("q", [player for player, _ in samples if player >= 0])
    found: dict[str, Any] = {"samples": len(samples)}
    found |= _prefix_names("apply", array("q", [apply for _, apply in samples]))
    return found | (_prefix_names("player", dispatched) if dispatched else {})


def _prefix_names(name: str, values: array[int]) -> dict[str, float]:
    return {f"{name}_{figure}": value for figure, value in quantiles(values).items()}
