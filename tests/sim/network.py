"""Messages between nodes: copied whole at sending, then lost, late, repeated, out of order, or held back.

Invariants: the receiver shares no object with the sender (`frozen`), so a buffer changed after sending
changes nothing that was sent; a message is delivered at a time drawn when it is sent; what is decided depends
only on the network's own random numbers. A link is one direction from one node to another.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any

from tests.sim.options import Options
from tests.sim.trace import label

_ATOMS = frozenset({int, float, str, bytes, bool, type(None)})
_NUMBERS = frozenset({int, bool})
_fields: dict[type, tuple[str, ...]] = {}
NODE_MASK = 0xFFFFFFFF


def node_of(member_id: int) -> int:
    """The node whose incarnation this member is."""
    return member_id & NODE_MASK


def _fields_of(kind: type) -> tuple[str, ...]:
    names = _fields.get(kind)
    if names is None:
        found: dict[str, None] = {}
        for base in reversed(kind.__mro__):
            slots = base.__dict__.get("__slots__", ())
            found.update(dict.fromkeys((slots,) if isinstance(slots, str) else slots))
        names = _fields[kind] = tuple(found)
    return names


def frozen(value: Any) -> Any:
    """An equal value that shares nothing changeable with the original."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is bytearray or kind is memoryview:
        return bytes(value)
    if kind is tuple:
        return tuple([frozen(each) for each in value])
    if kind is list:
        return [frozen(each) for each in value]
    if kind is dict:
        return {frozen(key): frozen(each) for key, each in value.items()}
    if isinstance(value, Enum):
        return value
    copy = object.__new__(kind)
    put = object.__setattr__
    for name in _fields_of(kind) or tuple(value.__dict__):
        field = getattr(value, name)
        put(copy, name, field if type(field) in _ATOMS else frozen(field))
    return copy


def digest(value: Any) -> str:
    """A message in a few characters: its fields, byte strings by their checksum. For the trace."""
    kind = type(value)
    if kind is bytes:
        return f"{len(value)}b:{zlib.crc32(value):08x}"
    if kind in _ATOMS:
        return str(value)
    if kind is tuple or kind is list:
        return "[" + ",".join([digest(each) for each in value]) + "]"
    if isinstance(value, Enum):
        return value.name
    parts = []
    for name in _fields_of(kind) or tuple(value.__dict__):
        field = getattr(value, name)
        parts.append(str(field) if type(field) in _NUMBERS else digest(field))
    return f"{label(kind)}({','.join(parts)})"


class Link:
    """One direction between two nodes."""

    __slots__ = ("blocked", "clogged_until_us", "loss")

    def __init__(self, loss: float) -> None:
        self.loss = loss
        self.blocked = 0
        """How many partitions cut it."""
        self.clogged_until_us = 0
        """Until then nothing arrives; it is late, not lost."""


class Network:
    """See the module.

    Args:
        push: the world's `push(time, handler, argument)`.
        arrived: called with (node id, message) when a message arrives.
    """

    def __init__(
        self,
        options: Options,
        random: Random,
        push: Callable[[int, Callable[[Any], object], Any], None],
        arrived: Callable[[tuple[int, object]], None],
    ) -> None:
        self._options = options
        self._random = random
        self._push = push
        self._arrived = arrived
        self._links: dict[tuple[int, int], Link] = {}
        self.calm = False
        """Healed: no loss, no repeats, short delays."""
        self.sent = self.lost = self.repeated = 0

    def link(self, source: int, target: int) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self._options.loss)
        return link

    def delay_us(self) -> int:
        """One message's way: mostly near the mean, sometimes far beyond it, and then out of order."""
        options, random = self._options, self._random
        delay = options.delay_us * (0.5 + random.expovariate(2.0))
        if not self.calm and random.random() < options.late:
            delay *= random.uniform(5, 50)
        return int(delay) + 1

    def send(self, now_us: int, source: int, target: int, message: object) -> bool:
        """Send a message that nobody changes any more (`frozen`); whether it was not lost at once."""
        self.sent += 1
        link, random = self.link(source, target), self._random
        if link.blocked or (not self.calm and link.loss and random.random() < link.loss):
            self.lost += 1
            return False
        copies = 1
        if not self.calm and random.random() < self._options.duplication:
            copies = 2
            self.repeated += 1
        for _ in range(copies):
            at_us = max(now_us, link.clogged_until_us) + self.delay_us()
            self._push(at_us, self._arrived, (target, message))
        return True

    def heal(self) -> None:
        self.calm = True
        for link in self._links.values():
            link.blocked = 0
            link.clogged_until_us = 0
