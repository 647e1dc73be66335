"""Transactions of 1 KB key-values: who gets which, and the times that travel with them. Pure.

A transaction of k KB is k key-values, and each is for one target. Key-value j of transaction n has the key
n * k + j, and its target is that modulo the number of targets: a transaction goes to as many targets as it
can, and all get equally much. On the wire there is a head (number, sent, dispatched) and then the key-values:
all of them in the log, a target's own in its part. Whoever splits an entry writes when it began to.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from protocol.records.record import Record

_HEAD: Final = struct.Struct(">qqq")
_KEY: Final = struct.Struct(">q")
HEAD_BYTES: Final = _HEAD.size
KEY_VALUE_BYTES: Final = 1000
_FILLING: Final = b"x" * (KEY_VALUE_BYTES - _KEY.size)
NEVER: Final = 0
"""In place of a time: not dispatched yet, or by nobody."""


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
    """A whole transaction, as it stands in a log."""
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
    """The router of the player (`player.routing.selector.TargetSelector`). `dispatched_ns`: kept
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
