"""The pauses of the whole machine: a thread that sleeps records by how much it overslept.

A virtual machine whose host is busy, or takes back memory that was just freed, stops for tenths of a second,
all of its processes at once. Whoever is measured then looks as if it had stalled. Nothing is taken out of a
figure for it: blocks have it (`longest_pause_ms`), and a run begins when it has been still for a while,
or after two minutes without that.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

SLEEP_S: Final = 0.005
PAUSE_MS: Final = 50.0
"""From here on it is a pause; a thread that waits for one of two busy processors oversleeps by less."""
CALM_S: Final = 15.0
TIMEOUT_S: Final = 120.0


class Pauses:
    """While it is entered: `longest_ms` that this process overslept."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            if self._over.wait(SLEEP_S):
                return
            self.longest_ms = max(self.longest_ms, (time.monotonic() - began - SLEEP_S) * 1e3)


def await_calm(calm_s: float = CALM_S, timeout_s: float = TIMEOUT_S) -> float:
    """Wait until the machine has not paused for `calm_s`, or `timeout_s` are over; the seconds it took."""
    began = last = now = time.monotonic()
    while now - last < calm_s and now - began < timeout_s:
        time.sleep(SLEEP_S)
        woken = time.monotonic()
        if (woken - now - SLEEP_S) * 1e3 >= PAUSE_MS:
            last = woken
        now = woken
    return now - began
