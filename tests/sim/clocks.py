"""The product's `time` module, on virtual time, while a world runs.

The core takes clocks as arguments; a few modules measure their own work or pace themselves with `time`. They
see the time of the node whose callback runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.world import World

PACKAGES = ("lockstep.storage", "lockstep.broker", "lockstep.protocol")
EPOCH_MS = 1_700_000_000_000
"""What wall clocks show at the start of a world."""


class VirtualTime:
    """Stands where a module said `import time`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def perf_counter(self) -> float:
        current = self._world.current
        return (current.now_us if current is not None else self._world.now_us) / 1e6

    monotonic = perf_counter

    def time(self) -> float:
        return EPOCH_MS / 1000 + self.perf_counter()

    def sleep(self, seconds: float) -> None:
        current = self._world.current
        if current is not None:
            current.charge(int(seconds * 1e6))


@contextmanager
def virtual_time(world: World) -> Iterator[None]:
    """Replace `time` in every loaded module of the product."""
    stand_in = VirtualTime(world)
    replaced = [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith(PACKAGES) and getattr(module, "time", None) is time
    ]
    for module in replaced:
        module.time = stand_in  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in replaced:
            module.time = time  # type: ignore[attr-defined]
