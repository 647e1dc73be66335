"""The network: copies are frozen; loss, repeats, order and partitions are as the options say."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from lockstep.storage.types import DirectoryEntry, Frame, FrameKind
from tests.sim.network import Network, digest, frozen
from tests.sim.options import Options


class Wire:
    """A network with a heap of its own; `run` gives what arrived, in order."""

    def __init__(self, **changes: Any) -> None:
        self._heap: list[tuple[int, int, Callable[[Any], object], Any]] = []
        self._count = 0
        self.arrived: list[object] = []
        self.network = Network(
            replace(Options(), **changes),
            Random(1),
            self._push,
            lambda parcel: self.arrived.append(parcel[1]),
        )

    def _push(self, at_us: int, handler: Callable[[Any], object], argument: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_us, self._count, handler, argument))

    def run(self, until_us: int = 1 << 60) -> list[object]:
        while self._heap and self._heap[0][0] <= until_us:
            _, _, handler, argument = heapq.heappop(self._heap)
            handler(argument)
        return self.arrived


def _send(wire: Wire, count: int, every_us: int = 10) -> None:
    for number in range(count):
        wire.network.send(number * every_us, 1, 2, number)


def test_what_is_sent_does_not_change_with_the_sender() -> None:
    payload = bytearray(b"bytes")
    entry = DirectoryEntry(1, 0, 1, 5, 0, 1, 0)
    frame = Frame(FrameKind.DATA, 1, 1, 1, 1, [entry], [payload, memoryview(payload)[1:]], 1)
    copy = frozen(frame)
    before = digest(copy)
    payload[:] = b"BYTES"
    entry.partition = 9
    frame.directory.append(entry)
    assert copy.payloads == [b"bytes", b"ytes"]
    assert (len(copy.directory), copy.directory[0].partition, copy.kind) == (1, 1, FrameKind.DATA)
    assert digest(copy) == before != digest(frozen(frame))


def test_a_good_network_loses_nothing() -> None:
    wire = Wire()
    _send(wire, 200)
    assert sorted(wire.run()) == list(range(200))  # type: ignore[type-var]


def test_loss_and_repeats_have_their_share_and_order_is_not_kept() -> None:
    wire = Wire(loss=0.3, duplication=0.5, late=0.1)
    _send(wire, 2000)
    arrived = wire.run()
    different = set(map(str, arrived))
    assert 1250 < len(different) < 1550
    assert 1.4 < len(arrived) / len(different) < 1.6
    assert arrived != sorted(arrived)  # type: ignore[type-var]


def test_a_blocked_link_is_one_way_and_a_clogged_one_late() -> None:
    wire = Wire()
    wire.network.link(1, 2).blocked += 1
    assert not wire.network.send(0, 1, 2, "to 2")
    assert wire.network.send(0, 2, 1, "to 1")
    wire.network.link(1, 3).clogged_until_us = 5_000_000
    wire.network.send(0, 1, 3, "to 3")
    assert wire.run(4_999_999) == ["to 1"]
    assert wire.run() == ["to 1", "to 3"]
    wire.network.heal()
    assert wire.network.send(6_000_000, 1, 2, "again")
