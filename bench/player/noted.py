"""The records of one target with their times: none lost, doubled or out of order; both delays. Pure.

A target only keeps what came with the time: what is in it is looked at when the run is over.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from bench.load.latency import quantiles
from bench.player.workload import NEVER, Shape, head_of


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
        wanted = [number for number in range(transactions) if target in shape.targets_of(number)]
        found = [head[0] for head in self._heads]
        if found != wanted:
            place = next(
                (at for at, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other),
                min(len(found), len(wanted)),
            )
            raise WrongDelivery(
                f"target {target} got {len(found)} parts of {len(wanted)}, and differs from number {place} "
                f"on: {found[place : place + 3]} instead of {wanted[place : place + 3]}"
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
    """Both delays over all (transaction, target) of the window, in milliseconds. Raises WrongAnswer: none."""
    samples = [each for one in noted for each in one.samples(opens_ns, closes_ns)]
    dispatched = array("q", [player for player, _ in samples if player >= 0])
    found: dict[str, Any] = {"samples": len(samples)}
    found |= _prefix_names("apply", array("q", [apply for _, apply in samples]))
    return found | (_prefix_names("player", dispatched) if dispatched else {})


def _prefix_names(name: str, values: array[int]) -> dict[str, float]:
    return {f"{name}_{figure}": value for figure, value in quantiles(values).items()}
