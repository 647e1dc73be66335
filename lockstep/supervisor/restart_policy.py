"""The decision when the process of a node ends by itself: it is started again, or all processes stop. Pure.

Invariants: a node is started again with growing pauses for as long as the others serve; an end that a start
cannot mend (a failed flush, wrong usage), and a node that never could start, end all, because clients would
wait for that node's partitions for ever. Times are arguments, in seconds.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A process that ran for this time has ended for a new reason: the pauses begin again."""
BAD_START: Final = 1
WRONG_USAGE: Final = 2
FAILED_FLUSH: Final = 70


@dataclass(frozen=True)
class Restart:
    """The decision to start the process again after a pause."""

    pause_seconds: float


@dataclass(frozen=True)
class EndAll:
    """All processes are stopped, and the command ends with this status."""

    status: int


class RestartPolicy:
    """The ends of one node's process."""

    __slots__ = ("_pauses", "_started")

    def __init__(self) -> None:
        self._started = 0.0
        self._pauses = 0

    def on_start(self, now: float) -> None:
        """The process is started."""
        self._started = now

    def on_end(self, status: int, now: float, *, has_served: bool) -> Restart | EndAll:
        """The process has ended by itself.

        Args:
            status: as `subprocess` gives it; negative for a signal.
            has_served: whether the cluster has served clients since the command was started.
        """
        if status in (WRONG_USAGE, FAILED_FLUSH) or (status == BAD_START and not has_served):
            return EndAll(status)
        if now - self._started >= STEADY_SECONDS:
            self._pauses = 0
        pause = min(FIRST_PAUSE_SECONDS * 2**self._pauses, MAX_PAUSE_SECONDS)
        if pause < MAX_PAUSE_SECONDS:
            self._pauses += 1
        return Restart(pause)


def describe_end(status: int) -> str:
    """The end of a process in words."""
    if status == 0:
        return "has stopped"
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:
        name = ""
    return f"was killed by signal {-status}{name}"
